// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// ShardBytes is the default size of a shard's data: a Nomad Variable holds
// 64 KiB, keys and values together.
const ShardBytes = 60 << 10

// shardOverhead is an upper bound for what a shard's items hold beside data.
const shardOverhead = 256

// Shard is one piece of an encoded profile, as items of a Nomad Variable:
// "data", and "version", "shard" (from 0), "of" and "sha256" (of the whole),
// by which [Join] knows pieces of one profile from a mix of two.
type Shard map[string]string

// Shards cuts the compact JSON of the profile into pieces of at most max bytes,
// items' names included (0: [ShardBytes]).
func (p *Profile) Shards(max int) ([]Shard, error) {
	if max == 0 {
		max = ShardBytes
	}
	if max <= shardOverhead {
		return nil, fmt.Errorf("shards of %d bytes are too small, want more than %d", max, shardOverhead)
	}
	var b bytes.Buffer
	// Encode gives valid JSON: Compact cannot fail.
	if err := json.Compact(&b, p.Encode()); err != nil {
		panic(err)
	}
	data := b.Bytes()
	sum := sha256.Sum256(data)
	pieces := cut(string(data), max-shardOverhead)
	shards := make([]Shard, len(pieces))
	for i, piece := range pieces {
		shards[i] = Shard{
			"version": strconv.Itoa(p.Version),
			"shard":   strconv.Itoa(i),
			"of":      strconv.Itoa(len(pieces)),
			"sha256":  hex.EncodeToString(sum[:]),
			"data":    piece,
		}
	}
	return shards, nil
}

// cut splits between runes, as a Variable's items are JSON strings.
func cut(s string, size int) []string {
	var pieces []string
	for len(s) > size {
		end := size
		for end > 1 && !utf8.RuneStart(s[end]) {
			end--
		}
		pieces, s = append(pieces, s[:end]), s[end:]
	}
	return append(pieces, s)
}

// Join puts the pieces of one profile, in any order, together again. It fails
// where one is missing or they are of different profiles, as when they are
// read while another profile is being written.
func Join(shards []Shard) (*Profile, error) {
	if len(shards) == 0 {
		return nil, fmt.Errorf("profile: no shards")
	}
	first := shards[0]
	of, err := strconv.Atoi(first["of"])
	if err != nil || of < 1 {
		return nil, fmt.Errorf("profile: shard item \"of\" is %q, want a number from 1", first["of"])
	}
	if of != len(shards) {
		return nil, fmt.Errorf("profile version %s: %d of %d shards", first["version"], len(shards), of)
	}
	parts := make([]string, of)
	for _, s := range shards {
		if s["sha256"] != first["sha256"] || s["of"] != first["of"] {
			return nil, fmt.Errorf("profile: shards of versions %s and %s are mixed", first["version"], s["version"])
		}
		i, err := strconv.Atoi(s["shard"])
		if err != nil || i < 0 || i >= of || parts[i] != "" {
			return nil, fmt.Errorf("profile version %s: shard number %q of %d is out of range or twice", s["version"], s["shard"], of)
		}
		parts[i] = s["data"]
	}
	var b bytes.Buffer
	for _, s := range parts {
		b.WriteString(s)
	}
	sum := sha256.Sum256(b.Bytes())
	if hex.EncodeToString(sum[:]) != first["sha256"] {
		return nil, fmt.Errorf("profile version %s: the shards' checksum is wrong", first["version"])
	}
	return Parse(b.Bytes())
}

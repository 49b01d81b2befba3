// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// shardOverhead is an upper bound for the size of a shard's items other than data.
const shardOverhead = 256

// Shard is one piece of an encoded profile, as items of a Nomad Variable. Besides "data", a shard
// has "version", "shard" (its number, from 0), "of" (the number of shards) and "sha256" (of the
// whole profile). With these items, [Join] detects a mix of two profiles. The data of all pieces,
// in order, is the profile's JSON, compressed (gzip) and in base64. The profile of 10,000 nodes
// with 8 GPUs each takes 109 Variables.
type Shard map[string]string

// maxProfile limits the size of what Join unpacks: a writer of the Variables must not be able to
// fill the placer's memory.
const maxProfile = 1 << 30

// Shards cuts the packed profile into pieces of at most `max` bytes, including the items' names.
func (p *Profile) Shards(max int) ([]Shard, error) {
	data, err := p.pack()
	if err != nil {
		return nil, fmt.Errorf("packing the profile: %w", err)
	}
	sum := sha256.Sum256([]byte(data))
	pieces := cut(data, max-shardOverhead)
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

// pack returns the profile's compact JSON, compressed, in base64.
func (p *Profile) pack() (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(p); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

func unpack(data string) (*Profile, error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("unpacking the profile: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxProfile))
	if err != nil {
		return nil, fmt.Errorf("unpacking the profile: %w", err)
	}
	return Parse(plain)
}

func cut(s string, size int) []string {
	var pieces []string
	for len(s) > size {
		pieces, s = append(pieces, s[:size]), s[size:]
	}
	return append(pieces, s)
}

// Join joins the pieces of one profile, in any order. It returns an error if a piece is missing, or
// if the pieces belong to different profiles. Join can fail if a profile is written while the
// caller reads the pieces. The caller should then read all pieces again.
func Join(shards []Shard) (*Profile, error) {
	if len(shards) == 0 {
		return nil, fmt.Errorf("profile: no shards")
	}
	first := shards[0]
	of, err := strconv.Atoi(first["of"])
	if err != nil || of < 1 {
		return nil, fmt.Errorf("profile: shard item \"of\" is %q, want a positive integer", first["of"])
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
			return nil, fmt.Errorf("profile version %s: shard number %q of %d is out of range or appears twice", s["version"], s["shard"], of)
		}
		parts[i] = s["data"]
	}
	data := strings.Join(parts, "")
	sum := sha256.Sum256([]byte(data))
	if hex.EncodeToString(sum[:]) != first["sha256"] {
		return nil, fmt.Errorf("profile version %s: the shards' checksum is wrong", first["version"])
	}
	return unpack(data)
}

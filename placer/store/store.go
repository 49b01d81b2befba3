// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package store keeps what the placer and its commands remember in Nomad's
// variables below nomad-pal/. [In] returns a [Store], with one method for each kind of
// value: a [Variable], or [Shards] where one variable is too small. The rules are the same
// for all:
//
//   - A variable's items take [Bytes] at most. A value that is larger loses what is
//     least important; one that is still too large is [ErrNotStorable].
//   - What cannot be understood counts as not there, and the error that names it is
//     [Unreadable]. The next write replaces it.
//   - A change that must not undo somebody else's goes through [Variable.Change].
//   - Shards are written one by one. A write that fails half-way is put right by the
//     next one.
//
// The package decides nothing, and keeps nothing in memory.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const (
	// Bytes is what the items of a variable take at most, with their names: Nomad
	// refuses more than 64 KiB.
	Bytes = 60 << 10
	// pathBytes is how long Nomad lets a path be.
	pathBytes = 128
	// tries bounds how often a change is made again on what somebody else has written
	// meanwhile.
	tries = 5
)

// Store is all of them in one cluster.
type Store struct{ nomad *nomad.Client }

// In is the store in the client's cluster and namespace.
func In(c *nomad.Client) Store { return Store{c} }

// ErrNotStorable is a value that no variable can hold.
var ErrNotStorable = errors.New("it cannot be stored")

type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

func unreadable(path string, err error) error {
	return unreadableError{fmt.Errorf("reading variable %q: %w", path, err)}
}

// Unreadable reports whether reading failed by what was read. It is then as if that
// were not there; whatever else was read stands.
func Unreadable(err error) bool {
	var u unreadableError
	return errors.As(err, &u)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_~-]*$`)

// Path is where something lies below a prefix that has a name of these parts, a
// job's namespace and id, say. Different names have different paths. Paths allow
// few characters, and 128 of them: other names are hashed, below the first part as
// far as it goes, so that a policy can let a namespace's people read what is of
// their jobs.
func Path(prefix string, name ...string) string {
	good, path := true, prefix
	for _, part := range name {
		good, path = good && plain.MatchString(part), path+"/"+part
	}
	if good && len(path) <= pathBytes {
		return path
	}
	sum := sha256.Sum256([]byte(strings.Join(name, "\x00")))
	hash := hex.EncodeToString(sum[:16])
	if path = prefix + "/" + name[0] + "/~" + hash; plain.MatchString(name[0]) && len(path) <= pathBytes {
		return path
	}
	return prefix + "/~/" + hash
}

type items = map[string]string

// codec is how values stand in a variable's items.
type codec[T any] struct {
	encode func(T) (items, error)
	decode func(items) (T, error)
	// shrink leaves out the least important of a value, and reports whether there was
	// something to leave out. What the value points to stays as it is.
	shrink func(*T) bool
}

// asJSON has the value in one item.
func asJSON[T any](item string, shrink func(*T) bool) codec[T] {
	return codec[T]{
		func(v T) (items, error) {
			b, err := json.Marshal(v)
			return items{item: string(b)}, err
		},
		func(is items) (v T, err error) {
			err = json.Unmarshal([]byte(is[item]), &v)
			return v, err
		},
		shrink,
	}
}

// AtMost is the beginning of a text that takes so many bytes at most.
func AtMost(bytes int, text string) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("…")], "") + "…"
}

// Variable is one variable that holds a value.
type Variable[T any] struct {
	Path  string
	nomad *nomad.Client
	codec codec[T]
}

// Value is what a variable holds; the zero value stands for a variable that is not
// there.
type Value[T any] struct {
	Of    T
	There bool
	// Index is Nomad's of the last write, Written when that was by the servers' clock.
	Index   uint64
	Written time.Time
}

// Read reads it. An unreadable value has its Index all the same, by which it can be
// written over.
func (v Variable[T]) Read(ctx context.Context) (Value[T], error) {
	raw, err := v.nomad.ReadVariable(ctx, v.Path)
	if err != nil || raw == nil {
		return Value[T]{}, err
	}
	value := Value[T]{There: true, Index: raw.ModifyIndex, Written: time.Unix(0, raw.ModifyTime)}
	of, err := v.codec.decode(raw.Items)
	if err != nil {
		return Value[T]{Index: raw.ModifyIndex}, unreadable(v.Path, err)
	}
	value.Of = of
	return value, nil
}

// Write writes it, whatever is there.
func (v Variable[T]) Write(ctx context.Context, of T) error {
	is, err := v.fit(&of)
	if err != nil {
		return err
	}
	return v.nomad.WriteVariable(ctx, v.Path, is)
}

// holds reports whether it is known to hold these items.
func (v Variable[T]) holds(ctx context.Context, is items) bool {
	raw, err := v.nomad.ReadVariable(ctx, v.Path)
	return err == nil && raw != nil && maps.Equal(raw.Items, is)
}

// Change writes what change makes of the value, where nobody else has written it
// since it was as in from; where somebody has, change is asked again, about theirs.
// What they left unreadable is as if it were not there. It returns the value as it
// is known after that. Of an error of change's nothing is written.
//
// A write whose answer is lost is an error, and may have been done: asked again,
// change may meet its own work.
func (v Variable[T]) Change(ctx context.Context, from Value[T], change func(Value[T]) (T, error)) (Value[T], error) {
	for try := 1; ; try++ {
		of, err := change(from)
		if err != nil {
			return from, err
		}
		is, err := v.fit(&of)
		if err != nil {
			return from, err
		}
		index, err := v.nomad.WriteChecked(ctx, v.Path, is, from.Index)
		if err == nil {
			return Value[T]{Of: of, There: true, Index: index}, nil
		}
		if !errors.Is(err, nomad.ErrChanged) || try == tries {
			return from, err
		}
		theirs, err := v.Read(ctx)
		if err != nil && !Unreadable(err) {
			return from, err
		}
		from = theirs
	}
}

// fit makes the value fit the variable. Errors are [ErrNotStorable].
func (v Variable[T]) fit(of *T) (items, error) {
	for {
		is, err := v.codec.encode(*of)
		if err != nil {
			return nil, fmt.Errorf("writing variable %q: %w: %w", v.Path, ErrNotStorable, err)
		}
		n := 0
		for name, text := range is {
			n += len(name) + len(text)
		}
		if n <= Bytes {
			return is, nil
		}
		if v.codec.shrink == nil || !v.codec.shrink(of) {
			return nil, fmt.Errorf("writing variable %q: %w: %d bytes, a variable holds %d", v.Path, ErrNotStorable, n, Bytes)
		}
	}
}

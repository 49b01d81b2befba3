// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package store keeps the data of the placer and its commands in Nomad's variables below
// nomad-pal/. [In] returns a [Store]. A Store has one method for each kind of value. The method
// returns a [Variable], or [Shards] if one variable is too small for the value. The same rules
// apply to all values:
//
//   - The items of a variable take at most [Bytes]. A larger value loses its least important parts.
//     If it is still too large, the error is [ErrNotStorable].
//   - Data that cannot be parsed counts as missing. The error that names this data is [Unreadable].
//     The next write replaces the data.
//   - A change that must not overwrite somebody else's change goes through [Variable.Change].
//   - Shards are written one by one. If a write fails half-way, the next write completes it. Until
//     the write is complete, readers get either valid data or an [Unreadable] error.
//
// The package makes no decisions, and keeps nothing in memory.
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
	// Bytes is the maximum size of the items of a variable, including the names of the items.
	// Nomad's own limit is 64 KiB.
	Bytes = 60 << 10
	// pathBytes is Nomad's limit for the length of a path.
	pathBytes = 128
	// tries is how often Change tries to write the variable if somebody else keeps changing it.
	tries = 5
)

// Store gives access to the data in one cluster.
type Store struct{ nomad *nomad.Client }

// In returns the store in the cluster and namespace of the client.
func In(c *nomad.Client) Store { return Store{c} }

// ErrNotStorable means that a value cannot be encoded or does not fit into a variable.
var ErrNotStorable = errors.New("it cannot be stored")

type unreadableError struct{ error }

func (e unreadableError) Unwrap() error { return e.error }

func unreadable(path string, err error) error {
	return unreadableError{fmt.Errorf("reading variable %q: %w", path, err)}
}

// Unreadable reports whether an error means only that some data could not be parsed. Data that
// could not be parsed counts as missing. All other data that was read is valid.
func Unreadable(err error) bool {
	var u unreadableError
	return errors.As(err, &u)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_~-]*$`)

// Path returns the path of a variable below a prefix. The name has several parts, such as the
// namespace and the id of a job. Different names have different paths. Nomad allows only a few
// kinds of characters in paths, and at most 128 characters. If the name does not fit, Path uses a
// hash of the name. If only the first part of the name fits, the path consists of this part and a
// hash. With such paths, a policy can let the users of a namespace read the data of their own jobs.
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
	path = prefix + "/" + name[0] + "/~" + hash
	if plain.MatchString(name[0]) && len(path) <= pathBytes {
		return path
	}
	return prefix + "/~/" + hash
}

type items = map[string]string

// codec converts values to the items of a variable, and items to values.
type codec[T any] struct {
	encode func(T) (items, error)
	decode func(items) (T, error)
	// shrink removes the least important part of a value. shrink also reports whether it has
	// removed anything. shrink must not change data to which the value points, because the caller
	// still uses this data.
	shrink func(*T) bool
}

// asJSON stores the value as JSON in one item.
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

// AtMost shortens a text to at most the given number of bytes.
func AtMost(bytes int, text string) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("…")], "") + "…"
}

// Variable is a variable that stores one value.
type Variable[T any] struct {
	Path  string
	nomad *nomad.Client
	codec codec[T]
}

// Value is the content of a variable. The zero Value means that there is no such variable.
type Value[T any] struct {
	Of    T
	There bool
	// Index is Nomad's index of the last write, and Written is the server's time of that write.
	Index   uint64
	Written time.Time
}

// Read reads the value. If Read returns an [Unreadable] error, only Index is set in the Value. The
// caller needs Index to overwrite the variable.
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

// Write writes the value, even if somebody else has changed the variable.
func (v Variable[T]) Write(ctx context.Context, of T) error {
	is, err := v.fit(&of)
	if err != nil {
		return err
	}
	return v.nomad.WriteVariable(ctx, v.Path, is)
}

// holds reports whether the variable has exactly these items. holds returns false if the variable
// cannot be read.
func (v Variable[T]) holds(ctx context.Context, is items) bool {
	raw, err := v.nomad.ReadVariable(ctx, v.Path)
	return err == nil && raw != nil && maps.Equal(raw.Items, is)
}

// Change calls change with a value that the caller has read (from). If nobody else has written the
// variable since the value was read, Change writes the result. If somebody else has written the
// variable, Change calls change again with the newer value. If the value is unreadable, it counts
// as missing. If change returns an error, Change writes nothing. Change returns the value that it
// has read or written last.
//
// If Nomad's answer to a write is lost, Change returns an error, although Nomad may have written
// the value. So if the caller repeats the call, change may get the value that it returned before.
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

// Replace writes the value in place of damaged data. index is the index of the damaged data that the
// caller has read. If somebody else has written readable data since then, Replace keeps that data.
// Replace returns the value that the variable then has.
func (v Variable[T]) Replace(ctx context.Context, index uint64, by T) (Value[T], error) {
	return v.Change(ctx, Value[T]{Index: index}, func(is Value[T]) (T, error) {
		if is.There {
			return is.Of, nil
		}
		return by, nil
	})
}

// fit shrinks the value until it fits into the variable. All errors of fit are [ErrNotStorable].
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
			return nil, fmt.Errorf("writing variable %q: %w: the content has %d bytes, but a variable can hold only %d", v.Path, ErrNotStorable, n, Bytes)
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

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

// holds says whether it is known to hold these items.
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

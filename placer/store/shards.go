// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Shards consist of all variables below a prefix. Each variable holds a value of type T. Together,
// the variables hold a value of type V.
type Shards[T, V any] struct {
	prefix string
	nomad  *nomad.Client
	codec  codec[T]
	join   func([]T) (V, error)
	split  func(V) (map[string]T, error) // by path below the prefix
	// but is a prefix whose paths are not read, or "".
	but string
}

// Paths lists the paths of the existing shards, sorted.
func (s Shards[T, V]) Paths(ctx context.Context) ([]string, error) {
	vars, err := s.list(ctx)
	return pathsOf(vars), err
}

func (s Shards[T, V]) list(ctx context.Context) ([]*api.VariableMetadata, error) {
	vars, err := s.nomad.ListVariables(ctx, s.prefix+"/")
	return slices.DeleteFunc(vars, func(v *api.VariableMetadata) bool {
		return !strings.HasPrefix(v.Path, s.prefix+"/") || s.but != "" && strings.HasPrefix(v.Path, s.but+"/")
	}), err
}

func pathsOf(vars []*api.VariableMetadata) (paths []string) {
	for _, v := range vars {
		paths = append(paths, v.Path)
	}
	return paths
}

// Read reads all shards, in the order of their paths. If a shard cannot be parsed, Read leaves it
// out and names it in an [Unreadable] error.
func (s Shards[T, V]) Read(ctx context.Context) (v V, err error) {
	paths, err := s.Paths(ctx)
	if err != nil {
		return v, err
	}
	return s.read(ctx, paths)
}

// read is like Read for the shards at the given paths.
func (s Shards[T, V]) read(ctx context.Context, paths []string) (v V, err error) {
	var shards []T
	var bad []error
	for _, path := range paths {
		switch shard, err := s.At(path).Read(ctx); {
		case Unreadable(err):
			bad = append(bad, err)
		case err != nil:
			return v, err
		case shard.There: // the shard has not been deleted
			shards = append(shards, shard.Of)
		}
	}
	if v, err = s.join(shards); err != nil {
		bad = append(bad, unreadable(s.prefix+"/*", err))
	}
	return v, errors.Join(bad...)
}

// ReadOrRefused is like Read, but for callers that may lack the permission to read the shards. If a
// caller has no permission, Nomad returns an empty list. So ReadOrRefused also reads a single
// variable. Nomad refuses to return the variable if the caller lacks the permission, even if the
// variable does not exist.
func (s Shards[T, V]) ReadOrRefused(ctx context.Context) (V, error) {
	vars, err := s.list(ctx)
	if err == nil && len(vars) == 0 {
		_, err = s.nomad.ReadVariable(ctx, s.prefix+"/0000")
	}
	if err != nil {
		var none V
		return none, err
	}
	return s.read(ctx, pathsOf(vars))
}

// Write makes the shards hold the value v, and nothing else. Write writes only the shards that have
// changed. If Nomad refuses a shard, Write still writes the other shards. If Nomad does not answer,
// Write stops. After all writes have succeeded, Write deletes the shards that v does not need.
func (s Shards[T, V]) Write(ctx context.Context, v V) error {
	shards, err := s.split(v)
	if err != nil {
		return fmt.Errorf("writing variables %q: %w: %w", s.prefix+"/*", ErrNotStorable, err)
	}
	paths, err := s.Paths(ctx)
	if err != nil {
		return err
	}
	left := map[string]bool{}
	for _, path := range paths {
		left[path] = true
	}
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		shard, of := s.At(s.prefix+"/"+name), shards[name]
		is, err := shard.fit(&of)
		if err == nil && !(left[shard.Path] && shard.holds(ctx, is)) {
			err = s.nomad.WriteVariable(ctx, shard.Path, is)
		}
		delete(left, shard.Path)
		if err != nil {
			failed = append(failed, err)
			if ctx.Err() != nil || errors.Is(err, nomad.ErrNoAnswer) {
				break
			}
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	for _, path := range slices.Sorted(maps.Keys(left)) {
		if err := s.Delete(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes one shard.
func (s Shards[T, V]) Delete(ctx context.Context, path string) error {
	return s.nomad.DeleteVariable(ctx, path)
}

// At returns the shard at a path.
func (s Shards[T, V]) At(path string) Variable[T] { return Variable[T]{path, s.nomad, s.codec} }

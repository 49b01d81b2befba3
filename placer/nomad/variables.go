// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// ErrChanged means that somebody else has changed the variable since the caller read it.
var ErrChanged = errors.New("the variable changed meanwhile")

// ListVariables lists the placer's variables whose paths begin with a prefix, sorted by path.
func (c *Client) ListVariables(ctx context.Context, prefix string) ([]*api.VariableMetadata, error) {
	q := (&api.QueryOptions{Namespace: c.namespace, Prefix: prefix}).WithContext(ctx)
	vars, _, err := c.api.Variables().List(q)
	if err != nil {
		return nil, fmt.Errorf("listing variables %q: %w", prefix, Denied(err, ListVariables))
	}
	return slices.DeleteFunc(vars, func(v *api.VariableMetadata) bool { return v == nil }), nil
}

// ReadVariable reads a variable. ReadVariable returns nil if there is no such variable.
func (c *Client) ReadVariable(ctx context.Context, path string) (*api.Variable, error) {
	v, _, err := c.api.Variables().Peek(path, (&api.QueryOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading variable %q: %w", path, Denied(err, ReadVariables))
	}
	return v, nil
}

// WriteVariable replaces all items of a variable.
func (c *Client) WriteVariable(ctx context.Context, path string, items map[string]string) error {
	v := &api.Variable{Namespace: c.namespace, Path: path, Items: items}
	_, _, err := c.api.Variables().Update(v, (&api.WriteOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("writing variable %q: %w", path, Denied(err, WriteVariables))
	}
	return nil
}

// WriteChecked replaces all items of a variable if the variable still has the given index.
// WriteChecked returns the new index. With index 0, WriteChecked requires that the variable does
// not exist. If the variable has another index, WriteChecked fails with [ErrChanged].
func (c *Client) WriteChecked(ctx context.Context, path string, items map[string]string, index uint64) (uint64, error) {
	v := &api.Variable{Namespace: c.namespace, Path: path, Items: items, ModifyIndex: index}
	written, _, err := c.api.Variables().CheckedUpdate(v, (&api.WriteOptions{Namespace: c.namespace}).WithContext(ctx))
	var conflict api.ErrCASConflict
	switch {
	case errors.As(err, &conflict):
		return 0, fmt.Errorf("writing variable %q: %w", path, ErrChanged)
	case err != nil:
		return 0, fmt.Errorf("writing variable %q: %w", path, Denied(err, WriteVariables))
	}
	return written.ModifyIndex, nil
}

// DeleteVariable removes a variable.
func (c *Client) DeleteVariable(ctx context.Context, path string) error {
	_, err := c.api.Variables().Delete(path, (&api.WriteOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("deleting variable %q: %w", path, Denied(err, DeleteVariables))
	}
	return nil
}

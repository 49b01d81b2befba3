// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// ErrChanged is a lost race: the variable was written by somebody else.
var ErrChanged = errors.New("the variable changed meanwhile")

// ReadChecked reads a variable's items and the index for [Client.WriteChecked];
// nil and 0 where there is none.
func (c *Client) ReadChecked(ctx context.Context, path string) (map[string]string, uint64, error) {
	v, err := c.ReadDated(ctx, path)
	if v == nil || err != nil {
		return nil, 0, err
	}
	return v.Items, v.ModifyIndex, nil
}

// WriteChecked replaces a variable's items where nobody has written it since it
// had the index, and fails with [ErrChanged] otherwise. It returns the new index.
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

// ReadDated reads a variable with the time and index of its last change; nil where
// there is none.
func (c *Client) ReadDated(ctx context.Context, path string) (*api.Variable, error) {
	v, _, err := c.api.Variables().Peek(path, (&api.QueryOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading variable %q: %w", path, Denied(err, ReadVariables))
	}
	return v, nil
}

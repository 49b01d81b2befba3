// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Measurements are the raw measurements that the nodes publish and the GPUs
// that exist, id to model, measured or not. A node speaks for its own GPUs alone
// (see owner.go). A node whose attribute cannot be read, and a GPU of which it says
// what cannot be, is left out and named in the error.
func (s *State) Measurements() (samples []profile.Sample, known map[string]string, err error) {
	known = map[string]string{}
	var problems []error
	for _, n := range s.gpuNodes() {
		for _, d := range gpuDevices(n) {
			own := map[string]bool{}
			for _, in := range d.Instances {
				known[in.ID], own[in.ID] = d.Name, true
			}
			ms, err := attr.ParseMeasurements(rawOf(d))
			if err != nil {
				problems = append(problems, fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, err))
				continue
			}
			others := len(ms)
			ms = slices.DeleteFunc(ms, func(m attr.Measurement) bool { return !own[m.GPU] })
			if others -= len(ms); others > 0 {
				problems = append(problems, fmt.Errorf("node %q: %d measurements of GPUs of model %q that it does not have are left out", n.Name, others, d.Name))
			}
			samples = append(samples, profile.SamplesOf(d.Name, ms)...)
		}
	}
	samples, bad := profile.Consistent(samples)
	for _, text := range bad {
		problems = append(problems, errors.New(text))
	}
	return samples, known, atMost(maxWarnings, problems)
}

// atMost is so many errors as one.
func atMost(n int, errs []error) error {
	if more := len(errs) - n; more > 0 {
		errs = append(errs[:n], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

const profilePath = "nomad-pal/profile"

// ErrProfile is a stored profile that cannot be understood.
var ErrProfile = errors.New("reading the profile in force")

// ReadProfile reads the profile in force; nil where there is none. One that is not
// whole, or that somebody has written over, is [ErrProfile].
func (c *Client) ReadProfile(ctx context.Context) (*profile.Profile, error) {
	shards, err := c.readShards(ctx)
	if err != nil || len(shards) == 0 {
		return nil, err
	}
	p, err := profile.Join(shards)
	if err != nil {
		return nil, fmt.Errorf("%w, in variables %q: %w", ErrProfile, profilePath, err)
	}
	return p, nil
}

func (c *Client) readShards(ctx context.Context) ([]profile.Shard, error) {
	vars, err := c.ListVariables(ctx, profilePath+"/")
	if err != nil {
		return nil, err
	}
	var shards []profile.Shard
	for _, v := range vars {
		items, err := c.ReadVariable(ctx, v.Path)
		if err != nil {
			return nil, err
		}
		if items != nil {
			shards = append(shards, profile.Shard(items))
		}
	}
	return shards, nil
}

// WriteProfile puts a profile in force, and removes what a larger one before it
// left.
func (c *Client) WriteProfile(ctx context.Context, p *profile.Profile) error {
	shards, err := p.Shards(profile.ShardBytes)
	if err != nil {
		return fmt.Errorf("splitting the profile into variables: %w", err)
	}
	keep := map[string]bool{}
	for i, s := range shards {
		path := fmt.Sprintf("%s/%04d", profilePath, i)
		keep[path] = true
		if err := c.WriteVariable(ctx, path, s); err != nil {
			return err
		}
	}
	vars, err := c.ListVariables(ctx, profilePath+"/")
	if err != nil {
		return err
	}
	for _, v := range vars {
		if !keep[v.Path] {
			if err := c.DeleteVariable(ctx, v.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ListVariables lists our variables under a prefix, by path.
func (c *Client) ListVariables(ctx context.Context, prefix string) ([]*api.VariableMetadata, error) {
	q := (&api.QueryOptions{Namespace: c.namespace, Prefix: prefix}).WithContext(ctx)
	vars, _, err := c.api.Variables().List(q)
	if err != nil {
		return nil, fmt.Errorf("listing variables %q: %w", prefix, Denied(err, ListVariables))
	}
	return slices.DeleteFunc(vars, func(v *api.VariableMetadata) bool { return v == nil }), nil
}

// ReadVariable reads a variable's items; nil where there is none.
func (c *Client) ReadVariable(ctx context.Context, path string) (map[string]string, error) {
	v, _, err := c.api.Variables().Peek(path, (&api.QueryOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading variable %q: %w", path, Denied(err, ReadVariables))
	}
	if v == nil {
		return nil, nil
	}
	return v.Items, nil
}

// WriteVariable replaces a variable's items.
func (c *Client) WriteVariable(ctx context.Context, path string, items map[string]string) error {
	v := &api.Variable{Namespace: c.namespace, Path: path, Items: items}
	_, _, err := c.api.Variables().Update(v, (&api.WriteOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("writing variable %q: %w", path, Denied(err, WriteVariables))
	}
	return nil
}

// DeleteVariable removes a variable.
func (c *Client) DeleteVariable(ctx context.Context, path string) error {
	_, err := c.api.Variables().Delete(path, (&api.WriteOptions{Namespace: c.namespace}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("deleting variable %q: %w", path, Denied(err, DeleteVariables))
	}
	return nil
}

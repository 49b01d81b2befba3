// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Measurements are the raw measurements that the nodes publish and the GPUs
// that exist, id to model, measured or not. A node whose attribute cannot be
// read, and a GPU of which nodes say different things, is left out and named in
// the error.
func (s *State) Measurements() (samples []profile.Sample, known map[string]string, err error) {
	known = map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[id]
		for _, d := range gpuDevices(n) {
			for _, in := range d.Instances {
				known[in.ID] = d.Name
			}
			a := d.Attributes[attr.Raw]
			if a == nil || a.StringVal == nil {
				continue
			}
			ms, parseErr := attr.ParseMeasurements(*a.StringVal)
			if parseErr != nil {
				err = fmt.Errorf("node %q: attribute %s: %w", n.Name, attr.Raw, parseErr)
				continue
			}
			samples = append(samples, profile.SamplesOf(d.Name, ms)...)
		}
	}
	samples, problems := profile.Consistent(samples)
	if len(problems) > 0 {
		err = errors.Join(err, errors.New(strings.Join(problems, "; ")))
	}
	return samples, known, err
}

const profilePath = "nomad-pal/profile"

// ReadProfile reads the profile in force; nil where there is none.
func (c *Client) ReadProfile(ctx context.Context) (*profile.Profile, error) {
	shards, err := c.readShards(ctx)
	if err != nil || len(shards) == 0 {
		return nil, err
	}
	p, err := profile.Join(shards)
	if err != nil {
		return nil, fmt.Errorf("reading the profile from variables %q: %w", profilePath, err)
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
	return vars, nil
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

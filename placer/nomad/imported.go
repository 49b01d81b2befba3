// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/measured"
)

// importedPath is where measurements lie that were made elsewhere: one
// variable per 60 KiB, below the name of their source.
const importedPath = "nomad-pal/measurements"

// shardItem is the item that holds a shard's rows, as a table with a head.
const shardItem = "csv"

// ReadImported reads the imported measurements of all sources but one ("":
// all), in the order of their names; several times of one GPU are repetitions.
func (c *Client) ReadImported(ctx context.Context, but string) ([]profile.Sample, error) {
	vars, err := c.ListVariables(ctx, importedPath+"/")
	if err != nil {
		return nil, err
	}
	var samples []profile.Sample
	for _, v := range vars {
		if but != "" && strings.HasPrefix(v.Path, importedPath+"/"+but+"/") {
			continue
		}
		items, err := c.ReadVariable(ctx, v.Path)
		if err != nil {
			return nil, err
		}
		if items == nil {
			continue // deleted meanwhile
		}
		rows, err := measured.ReadCSV("variable "+v.Path, strings.NewReader(items[shardItem]), measured.Defaults{})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			samples = append(samples, r.Sample)
		}
	}
	return samples, nil
}

// WriteImported replaces the measurements of one source; none deletes it. Each
// variable stands for itself, so a writer that dies half way leaves rows of
// both versions, all of them sound; writing again puts it right.
func (c *Client) WriteImported(ctx context.Context, source string, samples []profile.Sample) error {
	if err := CheckSource(source); err != nil {
		return err
	}
	shards, err := shardRows(samples)
	if err != nil {
		return err
	}
	prefix, keep := importedPath+"/"+source+"/", map[string]bool{}
	for i, text := range shards {
		path := fmt.Sprintf("%s%04d", prefix, i)
		keep[path] = true
		if err := c.WriteVariable(ctx, path, map[string]string{shardItem: text}); err != nil {
			return err
		}
	}
	vars, err := c.ListVariables(ctx, prefix)
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

// CheckSource says whether a source's name can be part of a variable's path.
func CheckSource(source string) error {
	if !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(source) {
		return fmt.Errorf("source %q is not 1 to 64 letters, digits, '-' or '_'", source)
	}
	return nil
}

// shardRows cuts samples into tables that fit one variable each.
func shardRows(samples []profile.Sample) ([]string, error) {
	const rowsAtOnce = 64 // rows are about 100 bytes
	var shards []string
	var now bytes.Buffer
	flush := func() {
		if now.Len() > 0 {
			shards = append(shards, now.String())
			now.Reset()
		}
	}
	for chunk := range slices.Chunk(samples, rowsAtOnce) {
		var b bytes.Buffer
		if err := measured.WriteCSV(&b, chunk); err != nil {
			return nil, fmt.Errorf("encoding measurements: %w", err)
		}
		if b.Len() > profile.ShardBytes {
			return nil, fmt.Errorf("encoding measurements: %d rows take %d bytes, more than a variable holds", len(chunk), b.Len())
		}
		if now.Len()+b.Len() > profile.ShardBytes {
			flush()
		}
		text := b.Bytes()
		if now.Len() > 0 {
			_, text, _ = bytes.Cut(text, []byte("\n")) // one head is enough
		}
		now.Write(text)
	}
	flush()
	return shards, nil
}

// MergeSamples puts imported measurements over published ones: for a GPU and
// application that was imported, what its node publishes does not count. known
// are the cluster's GPUs, id to model; it completes and overrules the model of
// a sample.
func MergeSamples(published, imported []profile.Sample, known map[string]string) []profile.Sample {
	type gpuApp struct{ gpu, app string }
	over := map[gpuApp]bool{}
	for _, s := range imported {
		over[gpuApp{s.GPU, string(s.App)}] = true
	}
	var out []profile.Sample
	for _, s := range published {
		if !over[gpuApp{s.GPU, string(s.App)}] {
			out = append(out, s)
		}
	}
	for _, s := range imported {
		if model, ok := known[s.GPU]; ok {
			s.Model = model
		}
		out = append(out, s)
	}
	return out
}

// ReadNodes reads the nodes only.
func (c *Client) ReadNodes(ctx context.Context) (*State, error) {
	s := NewState()
	if err := c.readNodes(ctx, s, NewState()); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", Denied(err, ReadNodes))
	}
	return s, nil
}

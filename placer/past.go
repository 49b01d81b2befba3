// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// How long runs of each name took, which the order of the line goes by, lies in
// a few variables, so that the next placer expects what this one does. A name
// is always in the same one.
const (
	pastPath   = "nomad-pal/history"
	pastShards = 8
	// pastBytes leaves room in the 64 KiB that a variable may hold.
	pastBytes = 60 << 10
	// pastEvery is how often it is written at most while the placer works.
	pastEvery = time.Minute
)

// pasts is what is known of those variables.
type pasts struct {
	loaded  bool
	written [pastShards]string
	lessons int64 // of the line, when it was written last
	at      time.Time
}

// readPast reads what earlier placers learned of run times.
func readPast(ctx context.Context, c *nomad.Client) (history []queue.Past, written [pastShards]string, err error) {
	vars, err := c.ListVariables(ctx, pastPath+"/")
	if err != nil {
		return nil, written, err
	}
	there := map[string]bool{}
	for _, v := range vars {
		there[v.Path] = true
	}
	for i := range written {
		path := shardPath(i)
		if !there[path] {
			continue
		}
		items, err := c.ReadVariable(ctx, path)
		if err != nil {
			return nil, written, err
		}
		if items["runs"] == "" {
			continue // gone meanwhile, or all forgotten
		}
		var shard []queue.Past
		if err := json.Unmarshal([]byte(items["runs"]), &shard); err != nil {
			return nil, written, fmt.Errorf("reading variable %q: %w", path, err)
		}
		history, written[i] = append(history, shard...), items["runs"]
	}
	return history, written, nil
}

// recallPast gives the line what earlier placers learned, once. What cannot be
// understood is learned anew.
func (p *Placer) recallPast(ctx context.Context) error {
	if p.past.loaded {
		return nil
	}
	history, written, err := readPast(ctx, p.nomad)
	if err != nil {
		if ctx.Err() != nil || !unreadable(err) {
			return err
		}
		p.log.Warn("what was learned of run times cannot be read, it is learned anew", "error", err)
		history = nil
	}
	p.line.Remember(history)
	p.past = pasts{loaded: true, written: written, lessons: p.line.Lessons()}
	return nil
}

// unreadable says whether reading failed by what was read.
func unreadable(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind)
}

// savePast writes what the line has learned since, if it is time.
func (p *Placer) savePast(ctx context.Context, now time.Time, atOnce bool) error {
	if !p.past.loaded || p.line.Lessons() == p.past.lessons || !atOnce && now.Sub(p.past.at) < pastEvery {
		return nil
	}
	lessons := p.line.Lessons()
	for i, shard := range pastShardsOf(p.line.History()) {
		text, err := encodePast(shard)
		if err != nil {
			return err
		}
		if text == p.past.written[i] {
			continue
		}
		if err := p.nomad.WriteVariable(ctx, shardPath(i), map[string]string{"runs": text}); err != nil {
			return err
		}
		p.past.written[i] = text
	}
	p.past.lessons, p.past.at = lessons, now
	return nil
}

func shardPath(i int) string { return fmt.Sprintf("%s/%d", pastPath, i) }

func pastShardsOf(history []queue.Past) [pastShards][]queue.Past {
	var shards [pastShards][]queue.Past
	for _, h := range history {
		f := fnv.New32a()
		f.Write([]byte(h.Name))
		i := f.Sum32() % pastShards
		shards[i] = append(shards[i], h)
	}
	return shards
}

// encodePast is the shard as text that fits a variable: where it does not, each
// name loses the older half of its runs.
func encodePast(shard []queue.Past) (string, error) {
	if len(shard) == 0 {
		return "", nil
	}
	for {
		b, err := json.Marshal(shard)
		if err != nil {
			return "", fmt.Errorf("encoding what was learned of run times: %w", err)
		}
		if len(b) <= pastBytes {
			return string(b), nil
		}
		halves := make([]queue.Past, 0, len(shard))
		for _, h := range shard {
			if len(h.Runs) > 1 {
				h.Runs = h.Runs[len(h.Runs)/2:]
				halves = append(halves, h)
			}
		}
		shard = halves // names that are nothing but long go last
	}
}

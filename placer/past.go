// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
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
	due     bool // to be read
	loaded  bool
	written [pastShards]string
	lessons int64 // of the line, when it was written last
	at      time.Time
}

// readPast reads what earlier placers learned of run times. What of it cannot be
// understood is left out, and the error is unreadable.
func readPast(ctx context.Context, c *nomad.Client) (history []queue.Past, written [pastShards]string, err error) {
	vars, err := c.ListVariables(ctx, pastPath+"/")
	if err != nil {
		return nil, written, err
	}
	there, bad := map[string]bool{}, []error(nil)
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
			bad = append(bad, fmt.Errorf("reading variable %q: %w", path, err))
			continue
		}
		history, written[i] = append(history, shard...), items["runs"]
	}
	return history, written, errors.Join(bad...)
}

// remember does what is due once, or now and then, and that placing does not need:
// it tells the commands the rules, and the line what earlier placers learned and
// counted.
func (p *Placer) remember(ctx context.Context, now time.Time) {
	if p.rulesDue && p.mayTry(publishingRules, now) {
		err := p.publishRules(ctx)
		p.rulesDue = err != nil
		p.trouble(publishingRules, err)
	}
	p.recallUsage(ctx, now)
	if p.past.due && p.mayTry(readingRunTimes, now) {
		p.trouble(readingRunTimes, p.recallPast(ctx))
	}
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
		p.log.Warn("what was learned of some run times cannot be read, it is learned anew", "error", err)
	}
	p.line.Remember(history)
	p.past = pasts{loaded: true, written: written, lessons: p.line.Lessons()}
	return nil
}

// unreadable says whether reading failed by what was read.
func unreadable(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var number *strconv.NumError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.As(err, &number)
}

// savePast writes what the line has learned since, if it is time.
func (p *Placer) savePast(ctx context.Context, now time.Time, atOnce bool) error {
	if !p.past.loaded || p.line.Lessons() == p.past.lessons || !atOnce && now.Sub(p.past.at) < pastEvery {
		return nil
	}
	lessons, failed := p.line.Lessons(), []error(nil)
	for i, shard := range pastShardsOf(p.line.History()) {
		text, err := encodePast(shard)
		if err != nil {
			return err
		}
		if text == p.past.written[i] {
			continue
		}
		if err := p.nomad.WriteVariable(ctx, shardPath(i), map[string]string{"runs": text}); err != nil {
			failed = append(failed, err)
			if errors.Is(err, nomad.ErrNoAnswer) {
				break
			}
			continue // one that is locked, say, does not keep the others from being written
		}
		p.past.written[i] = text
	}
	if len(failed) == 0 {
		p.past.lessons, p.past.at = lessons, now
	}
	return errors.Join(failed...)
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

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// Record is what is kept of the last decision on a job: see [gang.Record].
type Record = gang.Record

const (
	decisionsPath = "nomad-pal/decisions"
	// recordBytes leaves room in the 64 KiB that a variable may hold.
	recordBytes = 56 << 10
)

var plain = regexp.MustCompile(`^[A-Za-z0-9_~-]+$`)

// recordPath is where a job's record is. Paths allow few characters and 128 of
// them; other names are hashed, below the namespace as far as it goes, so that
// a policy can let a namespace's people read the records of their jobs.
func recordPath(k nomad.JobKey) string {
	path := decisionsPath + "/" + k.Namespace + "/" + k.ID
	if plain.MatchString(k.Namespace) && plain.MatchString(k.ID) && len(path) <= 128 {
		return path
	}
	sum := sha256.Sum256([]byte(k.Namespace + "\x00" + k.ID))
	hash := hex.EncodeToString(sum[:16])
	if path = decisionsPath + "/" + k.Namespace + "/~" + hash; plain.MatchString(k.Namespace) && len(path) <= 128 {
		return path
	}
	return decisionsPath + "/~/" + hash
}

// encode is the record as JSON that fits a variable. What is left out goes in
// this order: the members of the packed alternative, those chosen from the end,
// the walk, the ends of long texts.
func encode(r Record) (string, error) {
	for {
		b, err := json.Marshal(r)
		if err != nil {
			return "", fmt.Errorf("encoding the decision on job %q: %w: %w", r.Job, errNotStorable, err)
		}
		if len(b) <= recordBytes {
			return string(b), nil
		}
		if !shrink(&r) {
			return "", fmt.Errorf("encoding the decision on job %q: %w: %d bytes, a variable holds %d", r.Job, errNotStorable, len(b), recordBytes)
		}
	}
}

// errNotStorable is a record that no variable can hold.
var errNotStorable = errors.New("it cannot be stored")

// textBytes is what is kept of a text of a record that is too large.
const textBytes = 1 << 10

// shrink leaves something out, the least important first; false where nothing is
// left that could be.
func shrink(r *Record) bool {
	switch d := &r.Decision; {
	case d.Packed != nil && len(d.Packed.Members) > 0:
		packed := *d.Packed
		packed.Members = nil
		d.Packed = &packed
	case d.Chosen != nil && len(d.Chosen.Members) > 0:
		chosen := *d.Chosen
		keep := len(chosen.Members) / 2
		r.MembersOmitted += len(chosen.Members) - keep
		chosen.Members = chosen.Members[:keep]
		d.Chosen = &chosen
	case len(d.Walk) > 0:
		d.WalkOmitted += len(d.Walk)
		d.Walk = nil
	case len(d.Reason) > textBytes || len(r.Note) > textBytes || len(r.GivenUp) > textBytes:
		d.Reason, r.Note, r.GivenUp = atMost(textBytes, d.Reason), atMost(textBytes, r.Note), atMost(textBytes, r.GivenUp)
	default:
		return false
	}
	return true
}

// ReadRecord reads what was recorded for a job; nil where nothing was.
func ReadRecord(ctx context.Context, c *nomad.Client, k nomad.JobKey) (*Record, error) {
	items, err := c.ReadVariable(ctx, recordPath(k))
	if err != nil || items == nil {
		return nil, err
	}
	var r Record
	if err := json.Unmarshal([]byte(items["decision"]), &r); err != nil {
		return nil, fmt.Errorf("reading variable %q: %w", recordPath(k), err)
	}
	return &r, nil
}

// WriteRecord records a decision.
func WriteRecord(ctx context.Context, c *nomad.Client, r Record) error {
	text, err := encode(r)
	if err != nil {
		return err
	}
	return c.WriteVariable(ctx, recordPath(nomad.JobKey{Namespace: r.Namespace, ID: r.Job}), map[string]string{"decision": text})
}

// save records decisions that are due. What cannot be written waits, and is tried
// again at growing intervals: placing goes on without.
func (p *Placer) save(ctx context.Context, now time.Time) {
	if due := p.recordsDue(now); due > 0 {
		err := p.flush(ctx, due)
		p.trouble(recordingDecisions, err)
		p.again = p.again || err == nil && len(p.unsaved) > 0
	}
	if p.mayTry(recordingRunTimes, now) {
		p.trouble(recordingRunTimes, p.savePast(ctx, now, false))
	}
	if p.mayTry(recordingAfter, now) {
		p.trouble(recordingAfter, p.writeFinished(ctx))
	}
	if p.mayTry(recordingUsage, now) {
		p.trouble(recordingUsage, p.saveUsage(ctx, now, false))
	}
}

// flush records so many decisions at most.
func (p *Placer) flush(ctx context.Context, most int) error {
	calls, done := p.flushing(ctx, most)
	inParallel(calls)
	return done()
}

// saveAll records what is left when the placer ends.
func (p *Placer) saveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.checkLast(ctx); err != nil {
		p.log.Warn("what was registered last is not checked", "error", err)
	}
	for _, t := range p.sorted() {
		if t.Unsaved && t.Record != nil {
			p.unsaved = append(p.unsaved, *t.Record)
		}
	}
	if err := p.flush(ctx, len(p.unsaved)); err != nil {
		p.log.Warn("some decisions are not recorded", "error", err)
	}
	if err := p.savePast(ctx, p.tick(), true); err != nil {
		p.log.Warn("what was learned of run times since the last minute is lost", "error", err)
	}
	if err := p.saveUsage(ctx, p.now, true); err != nil {
		p.log.Warn("what namespaces have used in the last minutes is lost", "error", err)
	}
}

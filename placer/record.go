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

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// Record is what is kept of the last decision on a job, in one Nomad Variable.
type Record struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Submitted is when the author registered the job; it is the job's place in
	// the queue, which our own registering must not change.
	Submitted time.Time `json:"submitted"`
	Decided   time.Time `json:"decided"`
	// Confirmed is when all members were seen on their GPUs; zero before.
	Confirmed time.Time `json:"confirmed,omitzero"`
	// JobModifyIndex is that of the job as it was committed.
	JobModifyIndex uint64       `json:"job_modify_index"`
	Mode           rewrite.Mode `json:"mode"`
	Decision       pal.Decision `json:"decision"`
	// UserFailures counts how often the gang was tried anew after it had failed
	// by its own fault; GivenUp is why it is not tried any more.
	UserFailures int    `json:"user_failures,omitempty"`
	GivenUp      string `json:"given_up,omitempty"`
	// Revived counts how often the gang was lost to the infrastructure.
	Revived int `json:"revived,omitempty"`
	// Attained is how long the gang ran before it was last stopped, Done how much
	// of its work that did, in time at cost 1, and Waited how long it waited in
	// all before it was last started. Stopped is when that was.
	Attained time.Duration `json:"attained,omitempty"`
	Done     time.Duration `json:"done,omitempty"`
	Waited   time.Duration `json:"waited,omitempty"`
	Stopped  time.Time     `json:"stopped,omitzero"`
	// Note is what happened besides: a re-run, a repair.
	Note string `json:"note,omitempty"`
	// MembersOmitted counts members left out of the decision for size.
	MembersOmitted int `json:"members_omitted,omitempty"`
}

// stop takes in that the gang was stopped after it ran so long.
func (r *Record) stop(now time.Time, ran time.Duration) {
	cost := 1.0
	if c := r.Decision.Chosen; c != nil && c.Cost > 0 {
		cost = c.Cost
	}
	r.Attained, r.Done, r.Stopped = r.Attained+ran, r.Done+time.Duration(float64(ran)/cost), now
}

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
func (r Record) encode() (string, error) {
	for {
		b, err := json.Marshal(r)
		if err != nil {
			return "", fmt.Errorf("encoding the decision on job %q: %w: %w", r.Job, errNotStorable, err)
		}
		if len(b) <= recordBytes {
			return string(b), nil
		}
		if !r.shrink() {
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
func (r *Record) shrink() bool {
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
	text, err := r.encode()
	if err != nil {
		return err
	}
	return c.WriteVariable(ctx, recordPath(nomad.JobKey{Namespace: r.Namespace, ID: r.Job}), map[string]string{"decision": text})
}

// saveAfter is how long a decision may go unrecorded while its members come up.
const saveAfter = time.Second

// write records the job's decision as it stands.
func (p *Placer) write(ctx context.Context, t *tracked) error {
	if err := WriteRecord(ctx, p.nomad, *t.record); err != nil {
		return err
	}
	p.forgetUnsaved(t)
	t.unsaved = false
	return nil
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
		if t.unsaved && t.record != nil {
			p.unsaved = append(p.unsaved, *t.record)
		}
	}
	if err := p.flush(ctx, len(p.unsaved)); err != nil {
		p.log.Warn("some decisions are not recorded", "error", err)
	}
	if err := p.savePast(ctx, p.tick(), true); err != nil {
		p.log.Warn("what was learned of run times since the last minute is lost", "error", err)
	}
}

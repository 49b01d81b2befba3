// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job's place in the line is when its author first asked for it. Registering
// it again while it waits does not send it to the end, unless it then asks for
// more GPUs than before. Nomad keeps the versions of a job, so that an agent
// that starts anew finds the same place.

// seniority is the place of a waiting job without pins of its own.
type seniority struct {
	index uint64 // JobModifyIndex of the job for which it was worked out
	since time.Time
	gpus  int
	// record is that of the gang that was taken back before its author edited it.
	record *Record
}

// seek works out the place of a job that its author may have registered before.
func (p *Placer) seek(ctx context.Context, t *tracked) error {
	index := *t.Job.JobModifyIndex
	if t.Phase != Waiting || len(t.Pins.Groups) > 0 || t.place.index == index {
		return nil
	}
	had := t.place
	t.place = seniority{index: index, since: time.Unix(0, *t.Job.SubmitTime), gpus: rewrite.AllGPUs(t.Job)}
	if *t.Job.Version == 0 {
		return nil
	}
	versions, err := p.nomad.Versions(ctx, t.Key)
	if err != nil {
		t.place = had
		return err
	}
	w := firstAsked(t.Job, versions)
	t.place.since = w.since
	if w.taken {
		r, err := ReadRecord(ctx, p.nomad, t.Key)
		if err != nil {
			t.place = had
			return err
		}
		if r != nil {
			t.place.since, t.place.record = r.Submitted, r
		}
	}
	// Nomad keeps some versions only; this placer may remember more.
	if w.cut && had.index != 0 && t.place.gpus <= had.gpus && had.since.Before(t.place.since) {
		t.place.since, t.place.record = had.since, had.record
	}
	return nil
}

// walk is how far back a job's versions have waited.
type walk struct {
	since time.Time // when the author asked for the oldest of them
	taken bool      // it ended at a gang that had been taken back into the line
	cut   bool      // or at a version that Nomad does not keep any more
}

// firstAsked is when the author first asked for what now waits: the oldest of
// the versions before it, without a gap, that waited too and asked for no fewer
// GPUs than the next.
func firstAsked(job *api.Job, versions map[uint64]*api.Job) walk {
	since, gpus := time.Unix(0, *job.SubmitTime), rewrite.AllGPUs(job)
	for v := *job.Version; v > 0; v-- {
		o := versions[v-1]
		if o == nil {
			return walk{since: since, cut: true}
		}
		if (o.Stop != nil && *o.Stop) || !rewrite.Gated(o) || rewrite.AllGPUs(o) < gpus {
			break
		}
		if _, pinned := rewrite.Pinned(o); pinned {
			return walk{since: since, taken: true}
		}
		since, gpus = time.Unix(0, *o.SubmitTime), rewrite.AllGPUs(o)
	}
	return walk{since: since}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

const (
	// failuresKept is the maximum number of stored failures.
	failuresKept = 120
	// failureLogBytes is the maximum size of the stored failures. The stored quarantine has the
	// same maximum size. failureLogBytes is below store.Bytes because the names of a variable's
	// items also need space.
	failureLogBytes = store.Bytes - 1<<10
	// reasonBytes is the maximum length of the reason of a failure. Without a limit, a driver's
	// message could be a page long.
	reasonBytes = 300
	// quarantineReread is the maximum time until the placer notices that an operator has changed
	// the quarantine with a command. The placer cannot wait for a message, because a command cannot
	// always notify the agent.
	quarantineReread = 2 * time.Second
)

// failureLog holds the failures and the quarantine that are stored in Nomad.
type failureLog struct {
	failures []palapi.Failure // oldest first
	// dropped is Nomad's index of the last failure that was dropped from the log. A time cannot
	// replace the index: after a failure on a server whose clock is a year ahead, the placer would
	// record no failures for a year.
	dropped uint64
	// skipped is Nomad's index of the newest failure that does not fit and so is never stored. Once
	// the other new failures have been stored, dropped gets this value.
	skipped    uint64
	quarantine map[string]palapi.Quarantine
	index      uint64    // the quarantine's index at the last read or write
	readAt     time.Time // when the quarantine was read; zero if not read yet
	stale      bool      // a command has changed the quarantine since readAt
}

// ReadQuarantine reads which GPUs are or were in quarantine.
func ReadQuarantine(ctx context.Context, c *nomad.Client) (map[string]palapi.Quarantine, error) {
	h := failureLog{}
	err := h.read(ctx, c, time.Time{})
	return h.quarantine, err
}

// read reads the quarantine from Nomad. If the quarantine cannot be parsed, read sets an empty
// quarantine and returns the error.
func (h *failureLog) read(ctx context.Context, c *nomad.Client, now time.Time) error {
	kept, err := store.In(c).Quarantine().Read(ctx)
	if err == nil || store.Unreadable(err) {
		h.setQuarantine(kept)
		h.readAt, h.stale = now, false
	}
	return err
}

func (h *failureLog) setQuarantine(kept store.Value[map[string]palapi.Quarantine]) {
	h.quarantine, h.index = kept.Of, kept.Index
	if h.quarantine == nil {
		h.quarantine = map[string]palapi.Quarantine{}
	}
}

// load reads the data that earlier placers stored. Later calls read only the quarantine, because an
// operator may have changed it. If data cannot be parsed, load treats the data as missing, and
// returns the error.
func (h *failureLog) load(ctx context.Context, c *nomad.Client, now time.Time) (err error) {
	switch {
	case h.readAt.IsZero():
		failures, odd := store.In(c).Failures().Read(ctx)
		if odd != nil && !store.Unreadable(odd) {
			return odd
		}
		h.failures, h.dropped = failures.Of.Kept, failures.Of.Dropped
		if err := h.read(ctx, c, now); err != nil {
			return err
		}
		return cmp.Or(h.putRight(ctx, c, now), odd)
	case h.stale, now.Sub(h.readAt) >= quarantineReread:
		return h.readAgain(ctx, c, now)
	}
	return nil
}

// readAgain reads the quarantine again. If the stored quarantine is damaged, readAgain stores the
// known quarantine again, and returns an error for which [store.Unreadable] is true.
func (h *failureLog) readAgain(ctx context.Context, c *nomad.Client, now time.Time) error {
	known := h.quarantine
	damaged := h.read(ctx, c, now)
	if !store.Unreadable(damaged) {
		return damaged
	}
	kept, err := store.In(c).Quarantine().Replace(ctx, h.index, known)
	if err != nil {
		kept = store.Value[map[string]palapi.Quarantine]{Of: known, Index: h.index}
	}
	h.setQuarantine(kept)
	return cmp.Or(err, damaged)
}

// putRight corrects the stored quarantine if it was written by a placer whose clock was ahead.
// Without this correction, GPUs would stay in quarantine for too long.
func (h *failureLog) putRight(ctx context.Context, c *nomad.Client, now time.Time) error {
	ahead := func(q palapi.Quarantine) bool { return q.Ahead(now) }
	if !slices.ContainsFunc(slices.Collect(maps.Values(h.quarantine)), ahead) {
		return nil
	}
	kept, err := store.In(c).Quarantine().Change(ctx, store.Value[map[string]palapi.Quarantine]{Of: h.quarantine, Index: h.index},
		func(is store.Value[map[string]palapi.Quarantine]) (map[string]palapi.Quarantine, error) {
			out := maps.Clone(is.Of)
			for id, q := range out {
				out[id] = q.NotAhead(now)
			}
			return out, nil
		})
	h.setQuarantine(kept)
	if err != nil {
		h.readAt = time.Time{} // the next load reads the data again
	}
	return err
}

// knows reports whether an allocation's failure has been recorded.
func (h *failureLog) knows(a *cluster.Alloc) bool {
	return a.ModifyIndex <= h.dropped || slices.ContainsFunc(h.failures, func(f palapi.Failure) bool { return f.Alloc == a.ID })
}

// newestJudgeable returns the found failures without those that trimFailures would drop. The placer
// judges only the returned failures. More failures than fit can exist when the first placer of a
// cluster starts, or after the failure log was lost.
func (h *failureLog) newestJudgeable(found []palapi.Failure) []palapi.Failure {
	latest := failureLog{failures: found}
	latest.trimFailures()
	h.skipped = latest.dropped
	return latest.failures
}

// note records the failures that were found, oldest first, and the strikes against GPUs that they
// cause. It returns the strikes that do not count because the maximum number of GPUs is already in
// quarantine. The argument `known` contains further evidence about the failures. If a write fails,
// the failures do not count as recorded, so the next cycle notes them again. note writes the
// quarantine first and then the failures. If only the first write succeeds, the next cycle repeats
// the strikes, but two strikes for one failure count only once.
func (h *failureLog) note(ctx context.Context, c *nomad.Client, found []palapi.Failure, known failure.Evidence, now time.Time) (spared []failure.Strike, err error) {
	var next *failureLog
	kept, err := store.In(c).Quarantine().Change(ctx, store.Value[map[string]palapi.Quarantine]{Of: h.quarantine, Index: h.index},
		func(is store.Value[map[string]palapi.Quarantine]) (map[string]palapi.Quarantine, error) {
			h.setQuarantine(is)
			next, spared = h.withFailures(found, known, now)
			return next.quarantine, nil
		})
	h.setQuarantine(kept)
	if err != nil {
		return nil, err
	}
	if err := store.In(c).Failures().Write(ctx, store.Failures{Kept: next.failures, Dropped: next.dropped}); err != nil {
		return nil, err
	}
	next.setQuarantine(kept)
	*h = *next
	return spared, nil
}

// withFailures returns a copy of the log with the failures and their strikes. withFailures also
// returns the strikes that were spared.
func (h *failureLog) withFailures(found []palapi.Failure, known failure.Evidence, now time.Time) (next *failureLog, spared []failure.Strike) {
	copied := *h
	next = &copied
	next.failures, next.quarantine = slices.Clone(h.failures), maps.Clone(h.quarantine)
	for _, f := range found {
		f.Reason = store.AtMost(reasonBytes, f.Reason)
		next.failures = append(next.failures, f)
		known.Failures, known.Quarantine = next.failures, next.quarantine
		strikes, none := known.Judge(f, now)
		for _, s := range strikes {
			next.quarantine[s.GPU] = failure.Struck(next.quarantine[s.GPU], s, now)
		}
		spared = append(spared, none...)
	}
	next.dropped, next.skipped = max(next.dropped, next.skipped), 0
	next.trimFailures()
	next.trimQuarantine(now)
	return next, spared
}

// trimFailures drops failures until the remaining failures fit. trimFailures drops the oldest
// failure of the namespace with the most failures, so that one user's many failing jobs do not
// displace the failures of others.
func (h *failureLog) trimFailures() {
	size := make([]int, len(h.failures))
	room := failureLogBytes
	count := map[string]int{}
	for i, f := range h.failures {
		b, err := json.Marshal(f)
		size[i] = len(b) + 1
		if err != nil {
			size[i] = failureLogBytes // it cannot be encoded, so drop it as too large
		}
		room -= size[i]
		count[f.Namespace]++
	}
	over := len(h.failures) - failuresKept
	gone := make([]bool, len(h.failures))
	from := map[string]int{} // where to search a namespace's oldest failure
	for over > 0 || room < 0 {
		most := ""
		for namespace, n := range count {
			if n > count[most] || n == count[most] && namespace < most {
				most = namespace
			}
		}
		i := from[most]
		for gone[i] || h.failures[i].Namespace != most {
			i++
		}
		gone[i], from[most] = true, i+1
		count[most]--
		over, room = over-1, room+size[i]
		h.dropped = max(h.dropped, h.failures[i].Index)
	}
	kept := h.failures[:0:0]
	for i, f := range h.failures {
		if !gone[i] {
			kept = append(kept, f)
		}
	}
	h.failures = kept
}

// trimQuarantine drops entries that no longer have an effect. If the remaining entries do not fit,
// trimQuarantine also drops the entries that end first. If such a GPU is broken, it will fail again
// and get a new entry.
func (h *failureLog) trimQuarantine(now time.Time) {
	maps.DeleteFunc(h.quarantine, func(_ string, q palapi.Quarantine) bool {
		return !now.Before(q.Until) && now.Sub(q.Last) > time.Duration(q.Strikes)*failure.Most && now.Sub(q.Lifted) > failure.CountsFor
	})
	ids := slices.SortedFunc(maps.Keys(h.quarantine), func(a, b string) int {
		return cmp.Or(h.quarantine[b].Until.Compare(h.quarantine[a].Until), h.quarantine[b].Lifted.Compare(h.quarantine[a].Lifted), strings.Compare(a, b))
	})
	room := failureLogBytes
	for _, id := range ids {
		b, err := json.Marshal(map[string]palapi.Quarantine{id: h.quarantine[id]})
		room -= len(b)
		if err != nil || room < 0 {
			delete(h.quarantine, id)
		}
	}
}

// PutInQuarantine puts GPUs in quarantine for a given time, with an operator's reason. For a GPU
// that is already in quarantine, PutInQuarantine replaces the reason and the time. The active agent
// notices the change at its next [Placer.Reread], or after quarantineReread at the latest.
func PutInQuarantine(ctx context.Context, c *nomad.Client, long time.Duration, why string, gpus ...string) error {
	kept := store.In(c).Quarantine()
	is, err := kept.Read(ctx)
	if err != nil && !store.Unreadable(err) {
		return err
	}
	_, err = kept.Change(ctx, is, func(is store.Value[map[string]palapi.Quarantine]) (map[string]palapi.Quarantine, error) {
		out, now := map[string]palapi.Quarantine{}, time.Now().UTC()
		maps.Copy(out, is.Of)
		for _, id := range gpus {
			out[id] = palapi.Quarantine{Until: now.Add(long), Last: now, Reason: why, Operator: true}
		}
		return out, nil
	})
	return err
}

// ErrNotQuarantined is the error of [LiftQuarantine] for a GPU that is not in quarantine.
var ErrNotQuarantined = errors.New("not in quarantine")

// LiftQuarantine ends the quarantine of the given GPUs, and returns their ids. If gpus is empty,
// LiftQuarantine ends the quarantine of all GPUs. If a given GPU is not in quarantine,
// LiftQuarantine returns an error and changes nothing. Active agents notice the change within
// quarantineReread.
func LiftQuarantine(ctx context.Context, c *nomad.Client, gpus ...string) ([]string, error) {
	kept := store.In(c).Quarantine()
	is, err := kept.Read(ctx)
	if store.Unreadable(err) {
		err = nil
	}
	if err != nil || len(gpus) == 0 && len(failure.QuarantinedGPUs(is.Of, time.Now())) == 0 {
		return nil, err
	}
	var lifted []string
	_, err = kept.Change(ctx, is, func(is store.Value[map[string]palapi.Quarantine]) (map[string]palapi.Quarantine, error) {
		var err error
		lifted, err = lift(is.Of, gpus, time.Now())
		return is.Of, err
	})
	return lifted, err
}

// lift ends the quarantine of these GPUs, or of all GPUs if gpus is empty.
func lift(of map[string]palapi.Quarantine, gpus []string, now time.Time) ([]string, error) {
	in := failure.QuarantinedGPUs(of, now)
	if len(gpus) == 0 {
		gpus = slices.Collect(maps.Keys(in))
	}
	gpus = slices.Compact(slices.Sorted(slices.Values(gpus)))
	for _, id := range gpus {
		if !in[id] {
			return nil, fmt.Errorf("GPU %q is %w", id, ErrNotQuarantined)
		}
	}
	for _, id := range gpus {
		of[id] = palapi.Quarantine{Lifted: now.UTC()}
	}
	return gpus, nil
}

// noteFailures records the allocations that have failed since the previous cycle, and puts GPUs in
// quarantine if the failures require it.
func (p *Placer) noteFailures(ctx context.Context, now time.Time) error {
	was := p.failureLog.index
	defer func() {
		p.m.Failures, p.m.Quarantine = p.failureLog.failures, p.failureLog.quarantine
		p.changed = p.changed || p.failureLog.index != was
	}()
	first := p.failureLog.readAt.IsZero()
	switch err := p.failureLog.load(ctx, p.nomad, now); {
	case store.Unreadable(err) && !first:
		p.log.Warn("the stored quarantine was damaged; storing the last known one again", "error", err)
	case store.Unreadable(err):
		p.log.Warn("cannot read the stored failures or quarantine; starting with empty ones", "error", err)
	case err != nil:
		return err
	}
	if first {
		p.emitStoredFailures()
	}
	var found []palapi.Failure
	for _, a := range p.m.State.Failed() {
		if !p.failureLog.knows(a) {
			found = append(found, within(p.m.Diagnose(a), p.noFailureBefore(), now))
		}
	}
	p.lookedAt = now
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b palapi.Failure) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Alloc, b.Alloc))
	})
	found = p.failureLog.newestJudgeable(found)
	for _, f := range found {
		if f.Reason == failure.BeingStopped {
			continue
		}
		p.hooks.Meter.Failures.WithLabelValues(string(f.Cause)).Inc()
		p.log.Warn("allocation failed", "job", f.Job, "namespace", f.Namespace, "node", f.Node, "cause", f.Cause, "reason", f.Reason)
	}
	successes := p.m.State.Successes()
	for i := range successes {
		successes[i].At = earliest(successes[i].At, now)
	}
	before := p.failureLog.quarantine
	spared, err := p.failureLog.note(ctx, p.nomad, found, failure.Evidence{Successes: successes, Models: p.m.State.GPUModels()}, now)
	for _, s := range spared {
		p.log.Warn("jobs fail on a GPU, but the GPU cannot be quarantined: the maximum number of GPUs is already in quarantine because of failed jobs", "gpu", s.GPU, "reason", s.Reason)
	}
	if err == nil {
		p.emitFailures(found, before)
	}
	return err
}

// mostDelay is the longest time by which Nomad's event about a failure can be late.
const mostDelay = time.Minute

// noFailureBefore returns a time before which no unknown failure can have happened, because the
// placer would have seen the failure when it last looked. The time is zero if the placer has not
// looked yet, or has read everything again since it last looked.
func (p *Placer) noFailureBefore() time.Time {
	if p.lookedAt.IsZero() || p.resyncedAt.After(p.lookedAt) {
		return time.Time{}
	}
	return p.lookedAt.Add(-mostDelay)
}

// within shifts the times of a failure so that the failure lies between least and most on the
// placer's clock. If a server's clock were a year ahead, the failure would otherwise count for a
// year longer. If the server's clock were behind, a gang that has just failed would otherwise
// appear to have failed while no placer ran.
func within(f palapi.Failure, least, most time.Time) palapi.Failure {
	by := time.Duration(0)
	switch {
	case f.At.After(most):
		by = most.Sub(f.At)
	case f.At.Before(least):
		by = least.Sub(f.At)
	}
	f.At, f.Placed = f.At.Add(by), f.Placed.Add(by)
	return f
}

// earliest returns the earliest of the times.
func earliest(ts ...time.Time) time.Time { return slices.MinFunc(ts, time.Time.Compare) }

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

	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

const (
	failuresPath   = "nomad-pal/failures"
	quarantinePath = "nomad-pal/quarantine"
	// failuresKept bounds how many failures are kept.
	failuresKept = 120
	// historyBytes bounds each of the two variables: Nomad refuses more than
	// 65,536 bytes.
	historyBytes = 60_000
	// reasonBytes bounds a reason: that of a driver may be a page long.
	reasonBytes = 300
	// quarantineReread is how soon a quarantine that an operator lifts is noticed.
	quarantineReread = 2 * time.Second
	// writeTries bounds how often a change is made anew on what somebody else has
	// written meanwhile.
	writeTries = 5
)

// history is what is remembered of failures.
type history struct {
	failures []Failure // oldest first
	// dropped is when the last happened that is not kept any more.
	dropped    time.Time
	quarantine map[string]Quarantine
	index      uint64    // of the quarantine, where it was read or written last
	readAt     time.Time // when it was; zero where nothing was read yet
}

// ReadFailures reads the failures that are kept, oldest first.
func ReadFailures(ctx context.Context, c *nomad.Client) ([]Failure, error) {
	fs, _, err := readFailures(ctx, c)
	return fs, err
}

func readFailures(ctx context.Context, c *nomad.Client) (fs []Failure, dropped time.Time, err error) {
	items, err := c.ReadVariable(ctx, failuresPath)
	if err != nil || items == nil {
		return nil, time.Time{}, err
	}
	if err := json.Unmarshal([]byte(items["json"]), &fs); err != nil {
		return nil, time.Time{}, fmt.Errorf("reading variable %q: %w", failuresPath, err)
	}
	if text := items["dropped"]; text != "" {
		if dropped, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, time.Time{}, fmt.Errorf("reading variable %q: %w", failuresPath, err)
		}
	}
	return fs, dropped, nil
}

// ReadQuarantine reads which GPUs are kept out, and were.
func ReadQuarantine(ctx context.Context, c *nomad.Client) (map[string]Quarantine, error) {
	h := history{}
	err := h.read(ctx, c, time.Now())
	return h.quarantine, err
}

// read reads the quarantine as it is now.
func (h *history) read(ctx context.Context, c *nomad.Client, now time.Time) error {
	items, index, err := c.ReadChecked(ctx, quarantinePath)
	if err != nil {
		return err
	}
	qs := map[string]Quarantine{}
	if items != nil {
		if err := json.Unmarshal([]byte(items["json"]), &qs); err != nil {
			return fmt.Errorf("reading variable %q: %w", quarantinePath, err)
		}
	}
	h.quarantine, h.index, h.readAt = qs, index, now
	return nil
}

// recall reads what earlier placers remembered, and every now and then whether
// an operator has lifted a quarantine.
func (h *history) recall(ctx context.Context, c *nomad.Client, now time.Time) (err error) {
	switch {
	case h.readAt.IsZero():
		if h.failures, h.dropped, err = readFailures(ctx, c); err != nil {
			return err
		}
		return h.read(ctx, c, now)
	case now.Sub(h.readAt) >= quarantineReread && len(failure.Out(h.quarantine, now)) > 0:
		return h.read(ctx, c, now)
	}
	return nil
}

// knows says whether the failure of an allocation was noted before.
func (h *history) knows(a *nomad.Alloc) bool {
	return !time.Unix(0, a.ModifyTime).After(h.dropped) || slices.ContainsFunc(h.failures, func(f Failure) bool { return f.Alloc == a.ID })
}

// note adds failures, oldest first, and what follows for their GPUs; spared are the
// strikes that there is no room for. known is what else is known. Where it cannot be
// written, nothing has changed, and the failures are new still. The quarantine goes
// first: a GPU that is struck twice for one failure is struck once.
func (h *history) note(ctx context.Context, c *nomad.Client, found []Failure, known failure.Evidence, now time.Time) (spared []failure.Strike, err error) {
	for range writeTries {
		next, spared := h.with(found, known, now)
		err := next.writeQuarantine(ctx, c)
		if errors.Is(err, nomad.ErrChanged) {
			if err := h.read(ctx, c, now); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		h.quarantine, h.index = next.quarantine, next.index
		if err := next.writeFailures(ctx, c); err != nil {
			return nil, err
		}
		*h = *next
		return spared, nil
	}
	return nil, fmt.Errorf("noting failures: %w", nomad.ErrChanged)
}

func (h *history) writeFailures(ctx context.Context, c *nomad.Client) error {
	b, err := json.Marshal(h.failures)
	if err != nil {
		return fmt.Errorf("encoding variable %q: %w", failuresPath, err)
	}
	items := map[string]string{"json": string(b)}
	if !h.dropped.IsZero() {
		items["dropped"] = h.dropped.UTC().Format(time.RFC3339Nano)
	}
	return c.WriteVariable(ctx, failuresPath, items)
}

// with is the history with further failures.
func (h *history) with(found []Failure, known failure.Evidence, now time.Time) (next *history, spared []failure.Strike) {
	copied := *h
	next = &copied
	next.failures, next.quarantine = slices.Clone(h.failures), maps.Clone(h.quarantine)
	if next.quarantine == nil {
		next.quarantine = map[string]Quarantine{}
	}
	for _, f := range found {
		f.Reason = atMost(reasonBytes, f.Reason)
		next.failures = append(next.failures, f)
		known.Failures, known.Quarantine = next.failures, next.quarantine
		strikes, none := known.Judge(f, now)
		for _, s := range strikes {
			next.quarantine[s.GPU] = s.On(next.quarantine[s.GPU], now)
		}
		spared = append(spared, none...)
	}
	next.trimFailures()
	next.trimQuarantine(now)
	return next, spared
}

// trimFailures drops the oldest failures that there is no room for.
func (h *history) trimFailures() {
	room, from := historyBytes, len(h.failures)
	for from > 0 && len(h.failures)-from < failuresKept {
		b, err := json.Marshal(h.failures[from-1])
		if room -= len(b) + 1; err != nil || room < 0 {
			break
		}
		from--
	}
	if from > 0 {
		h.dropped = later(h.dropped, h.failures[from-1].At)
	}
	h.failures = h.failures[from:]
}

// trimQuarantine drops what counts no more, and, where many GPUs fail at a time,
// those that are kept out for the shortest time: they fail again if they must.
func (h *history) trimQuarantine(now time.Time) {
	maps.DeleteFunc(h.quarantine, func(_ string, q Quarantine) bool {
		return !now.Before(q.Until) && now.Sub(q.Last) > time.Duration(q.Strikes)*failure.Most && now.Sub(q.Lifted) > failure.Window
	})
	ids := slices.SortedFunc(maps.Keys(h.quarantine), func(a, b string) int {
		return cmp.Or(h.quarantine[b].Until.Compare(h.quarantine[a].Until), h.quarantine[b].Lifted.Compare(h.quarantine[a].Lifted), strings.Compare(a, b))
	})
	room := historyBytes
	for _, id := range ids {
		b, err := json.Marshal(map[string]Quarantine{id: h.quarantine[id]})
		if room -= len(b); err != nil || room < 0 {
			delete(h.quarantine, id)
		}
	}
}

// writeQuarantine writes the quarantine where nobody else has since it was read.
func (h *history) writeQuarantine(ctx context.Context, c *nomad.Client) error {
	b, err := json.Marshal(h.quarantine)
	if err != nil {
		return fmt.Errorf("encoding variable %q: %w", quarantinePath, err)
	}
	index, err := c.WriteChecked(ctx, quarantinePath, map[string]string{"json": string(b)}, h.index)
	if err == nil {
		h.index = index
	}
	return err
}

// atMost is the beginning of a text that takes so many bytes at most.
func atMost(bytes int, text string) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes-len("…")], "") + "…"
}

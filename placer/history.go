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
	"strconv"
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
	// dropped is Nomad's index of the last that is not kept any more. Times do not
	// tell: a server whose clock was a year ahead would have nothing noted for a year.
	dropped uint64
	// skipped is the same of those that were not even taken in, until the others are
	// noted.
	skipped    uint64
	quarantine map[string]Quarantine
	index      uint64    // of the quarantine, where it was read or written last
	readAt     time.Time // when it was; zero where nothing was read yet
}

// ReadFailures reads the failures that are kept, oldest first.
func ReadFailures(ctx context.Context, c *nomad.Client) ([]Failure, error) {
	fs, _, err := readFailures(ctx, c)
	return fs, err
}

func readFailures(ctx context.Context, c *nomad.Client) (fs []Failure, dropped uint64, err error) {
	items, err := c.ReadVariable(ctx, failuresPath)
	if err != nil || items == nil {
		return nil, 0, err
	}
	if err := json.Unmarshal([]byte(items["json"]), &fs); err != nil {
		return nil, 0, fmt.Errorf("reading variable %q: %w", failuresPath, err)
	}
	if text := items["dropped"]; text != "" {
		if dropped, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, 0, fmt.Errorf("reading variable %q: %w", failuresPath, err)
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

// read reads the quarantine as it is now. One that is unreadable is none, which the
// error says.
func (h *history) read(ctx context.Context, c *nomad.Client, now time.Time) error {
	items, index, err := c.ReadChecked(ctx, quarantinePath)
	if err != nil {
		return err
	}
	qs := map[string]Quarantine{}
	if items != nil {
		if err = json.Unmarshal([]byte(items["json"]), &qs); err != nil {
			qs, err = map[string]Quarantine{}, fmt.Errorf("reading variable %q: %w", quarantinePath, err)
		}
	}
	h.quarantine, h.index, h.readAt = qs, index, now
	return err
}

// recall reads what earlier placers remembered, and every now and then whether
// an operator has lifted a quarantine. What is unreadable is as if it were not
// there, which the error says.
func (h *history) recall(ctx context.Context, c *nomad.Client, now time.Time) (err error) {
	switch {
	case h.readAt.IsZero():
		failures, dropped, odd := readFailures(ctx, c)
		if odd != nil && !unreadable(odd) {
			return odd
		}
		if err := h.read(ctx, c, now); err != nil && !unreadable(err) {
			return err
		} else if odd == nil {
			odd = err
		}
		h.failures, h.dropped = failures, dropped
		return odd
	case now.Sub(h.readAt) >= quarantineReread && len(failure.Out(h.quarantine, now)) > 0:
		return h.read(ctx, c, now)
	}
	return nil
}

// knows says whether the failure of an allocation was noted before.
func (h *history) knows(a *nomad.Alloc) bool {
	return a.ModifyIndex <= h.dropped || slices.ContainsFunc(h.failures, func(f Failure) bool { return f.Alloc == a.ID })
}

// takeIn are those of the failures, oldest first, that are judged: no more than are
// kept. There are more where a placer comes to a cluster that has had none, or where
// what was kept is lost.
func (h *history) takeIn(found []Failure) []Failure {
	latest := history{failures: found}
	latest.trimFailures()
	h.skipped = latest.dropped
	return latest.failures
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
	if h.dropped > 0 {
		items["dropped"] = strconv.FormatUint(h.dropped, 10)
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
	next.dropped, next.skipped = max(next.dropped, next.skipped), 0
	next.trimFailures()
	next.trimQuarantine(now)
	return next, spared
}

// trimFailures drops failures that there is no room for: of the namespace with the
// most the oldest, so that one author's sweep does not push out what is known of
// others.
func (h *history) trimFailures() {
	size, room, count := make([]int, len(h.failures)), historyBytes, map[string]int{}
	for i, f := range h.failures {
		b, err := json.Marshal(f)
		if size[i] = len(b) + 1; err != nil {
			size[i] = historyBytes // nothing that could be kept
		}
		room -= size[i]
		count[f.Namespace]++
	}
	over := len(h.failures) - failuresKept
	gone := make([]bool, len(h.failures))
	from := map[string]int{} // the oldest of a namespace lies there or behind
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

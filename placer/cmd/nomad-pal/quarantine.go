// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/failure"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

var helpQuarantine = help("quarantine [options] | -lift [options] <gpu>... | -lift -all", `
Shows the GPUs that get no new jobs for a while because something failed on
them, until when and why. With -lift, frees GPUs before that: a running
agent notices within seconds, and forgets what failed on them. Unhealthy GPUs get no
jobs even then.

Quarantine Options:

  -lift                    Free the named GPUs.
  -all                     With -lift: all GPUs in quarantine.
`, examples(
	"Which GPUs are quarantined, and why?", "nomad-pal quarantine",
	"After a GPU was replaced or reset:", "nomad-pal quarantine -lift GPU-8d3f1c02",
), outputOptions, generalOptions)

func (b *base) runQuarantine(args []string) int {
	fs := b.flags("quarantine")
	lift := fs.Bool("lift", false, "")
	all := fs.Bool("all", false, "")
	gpus, ok := b.parse(fs, args, anyArgs)
	if !ok {
		return 1
	}
	switch {
	case !*lift && (*all || len(gpus) > 0):
		return b.fail(errors.New("GPUs and -all go with -lift; see nomad-pal quarantine -help"))
	case *lift && *all == (len(gpus) > 0):
		return b.fail(errors.New("say which GPUs, or -all"))
	case *lift:
		return b.lift(gpus)
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	qs, err := b.quarantined(client)
	if err != nil {
		return b.fail(err)
	}
	return b.show(qs, func() {
		if len(qs) == 0 {
			b.printf("No GPU is in quarantine.\n")
			return
		}
		b.printQuarantine(qs)
	})
}

// quarantined are the GPUs that are in quarantine now.
func (b *base) quarantined(client *nomad.Client) (map[string]failure.Quarantine, error) {
	qs, err := placer.ReadQuarantine(b.ctx, client)
	now := time.Now()
	maps.DeleteFunc(qs, func(_ string, q failure.Quarantine) bool { return !now.Before(q.Until) })
	return qs, err
}

func (b *base) lift(gpus []string) int {
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	if gpus, err = b.wholeIDs(client, gpus); err != nil {
		return b.fail(err)
	}
	lifted, err := placer.LiftQuarantine(b.ctx, client, gpus...)
	if err != nil {
		return b.fail(err)
	}
	return b.show(lifted, func() { b.printEach(lifted, "Lifted the quarantine of", "No GPU is in quarantine.") })
}

// wholeIDs are the ids of GPUs in quarantine of which the beginning is given.
func (b *base) wholeIDs(client *nomad.Client, given []string) ([]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	qs, err := b.quarantined(client)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(given)
	for i, prefix := range given {
		var found []string
		for id := range qs {
			if strings.HasPrefix(id, prefix) {
				found = append(found, id)
			}
		}
		if _, whole := qs[prefix]; !whole && len(found) > 1 {
			return nil, fmt.Errorf("%q is the beginning of %d GPUs in quarantine: say more of it", prefix, len(found))
		} else if !whole && len(found) == 1 {
			out[i] = found[0]
		}
	}
	return out, nil
}

// printQuarantine prints GPUs that are quarantined.
func (b *base) printQuarantine(qs map[string]failure.Quarantine) {
	rows, ids := []string{row("GPU", "Until", "Strikes", "Reason")}, slices.Sorted(maps.Keys(qs))
	for _, id := range ids {
		q := qs[id]
		rows = append(rows, row(shortGPU(id, b.idLength(query.IDLength(ids))), clock(q.Until), q.Strikes, oneLine(q.Reason)))
	}
	b.table(rows)
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// The ledger of who holds which GPU is the cycle's view: it follows from Nomad's state
// and from what is under way. The queue and the cluster that it decides on are told of
// it. That they agree is checked before each decision in tests, and each ledgerEvery
// besides.
const ledgerEvery = 10 * time.Second

// balance checks the ledger if it is time to. Where the queue or the cluster disagrees
// with it, which is a bug, both are derived from it anew.
func (p *Placer) balance(now time.Time) error {
	if p.hooks.Ledger == nil && now.Sub(p.balanced) < ledgerEvery {
		return nil
	}
	p.balanced = now
	err := p.checkLedger()
	if p.hooks.Ledger != nil {
		p.hooks.Ledger(err)
	}
	if err == nil {
		return nil
	}
	p.log.Error("the queue disagrees with who holds which GPU; telling it anew", "error", err)
	p.hooks.Meter.LedgerMended()
	var gone []string
	for id := range p.queue.Running() {
		if p.byID(id) == nil {
			gone = append(gone, id)
		}
	}
	for _, id := range gone {
		p.queue.Removed(since(now), id)
	}
	p.view = nil
	return p.look(now)
}

// checkLedger checks what each decision rests on: every GPU that the queue believes a
// gang to run on is held by that gang in the view, taken in its cluster, and believed to
// be no other gang's. Two placers that do not know of each other may break that.
func (p *Placer) checkLedger() error {
	var errs []error
	believed := make([]string, p.view.Cluster.NumGPUs())
	for id, pl := range p.queue.Running() {
		k := keyOf(id)
		if p.onTheWay(k) {
			continue
		}
		held := p.view.Holds(k)
		for _, i := range pl.GPUs() {
			gpu := p.view.Cluster.GPU(i).ID
			if p.givenAway(k, i) {
				continue
			}
			if other := believed[i]; other != "" {
				errs = append(errs, fmt.Errorf("the queue believes %s to run on GPU %s, and %s, too", other, gpu, id))
			}
			believed[i] = id
			if _, has := slices.BinarySearch(held, i); !has && !p.endsInPart(k, i) {
				errs = append(errs, fmt.Errorf("the queue believes %s, which is %s, to run on GPU %s, which the view holds for %s", id, p.stateOf(k), gpu, holder(p.view.Owner(i))))
			}
		}
	}
	for i := range p.view.Cluster.NumGPUs() {
		if k := p.view.Owner(i); k != (nomad.JobKey{}) && p.view.Cluster.Available(i) {
			errs = append(errs, fmt.Errorf("GPU %s is held for %s, and counts as free", p.view.Cluster.GPU(i).ID, k))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// stateOf is the state of a job, in a word.
func (p *Placer) stateOf(k nomad.JobKey) string {
	if t := p.jobs[k]; t != nil {
		return t.State().String()
	}
	return "not tracked"
}

// onTheWay says whether a gang has stopped to be moved, and starts elsewhere with this
// cycle or one of the next: until then the queue believes it where it was.
func (p *Placer) onTheWay(k nomad.JobKey) bool {
	t := p.jobs[k]
	return t != nil && t.Nomad == gang.Waiting && (t.Target != nil || slices.Contains(p.ready, t) || slices.Contains(p.moves, t))
}

// ends says whether a gang is being stopped, or waits for the last of it to end.
func (p *Placer) ends(k nomad.JobKey) bool {
	t := p.jobs[k]
	return t != nil && (t.Nomad == gang.Stopping || t.Nomad == gang.Waiting)
}

// givenAway says whether Nomad itself has given a GPU of a gang that is being stopped to
// somebody else, a lost member of a service, say, before all of the gang has ended.
func (p *Placer) givenAway(k nomad.JobKey, gpu int) bool {
	owner := p.view.Owner(gpu)
	return p.ends(k) && owner != k &&
		slices.ContainsFunc(p.state.AllocsOf(owner), func(a *nomad.Alloc) bool {
			return a.Live() && slices.Contains(a.GPUs, p.view.Cluster.GPU(gpu).ID)
		})
}

// endsInPart says whether a GPU is free of a gang that ends, by a drain, its author or
// another placer, and of which other members still run: the queue hears of it once all
// of it has ended.
func (p *Placer) endsInPart(k nomad.JobKey, gpu int) bool {
	return p.ends(k) && p.view.Owner(gpu) == (nomad.JobKey{}) &&
		slices.ContainsFunc(p.state.AllocsOf(k), (*nomad.Alloc).Live)
}

func holder(k nomad.JobKey) string {
	if k == (nomad.JobKey{}) {
		return "nobody"
	}
	return k.String()
}

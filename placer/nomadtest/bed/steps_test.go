// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/race"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/query"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// stepSeeds is the number of walks in a normal run of the tests.
const stepSeeds = 40

// TestNextSteps walks at random without faults. Again and again, authors query explain about a
// waiting job and do what it offers. Then what explain predicted must happen.
//
//	FOLLOW_SEED=7         one walk, with the placer's log
//	FOLLOW_STEPS=1000000  walks of a million steps together
func TestNextSteps(t *testing.T) {
	seeds, budget := uint64(stepSeeds), 0
	if race.Enabled {
		seeds = 2
	}
	if n, err := strconv.Atoi(os.Getenv("FOLLOW_STEPS")); err == nil {
		seeds, budget = 1<<40, n
	}
	from := uint64(0)
	if n, err := strconv.ParseUint(os.Getenv("FOLLOW_SEED"), 10, 64); err == nil {
		from, seeds = n, n+1
	}
	taken, steps, walks, unsure := map[string]int{}, 0, 0, 0
	for seed := from; seed < seeds && (budget == 0 || steps < budget); seed++ {
		walks++
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			Run(t, Options{Seed: seed, Partial: 90 * time.Second, Placer: vary(seed), Sampled: true}, func(w *World) {
				mix := DefaultMix()
				mix.Requests, mix.Events = 0, nomadtest.EventFaults{}
				mix.Kill, mix.Second, mix.Restart, mix.Clock = 0, 0, 0, 0
				mix.Forget = 0 // after a node is forgotten, the placer offers its GPUs for up to 20 s, because Nomad sends no event
				x := &follower{Walk: NewWalk(w, mix), taken: taken, pick: rand.New(rand.NewPCG(seed, 13))}
				w.rules.limit, w.rules.perUser = limited(seed), perUser(seed)
				count := func(n *int) func(nomadtest.Member) {
					return func(m nomadtest.Member) { *n += map[bool]int{true: 1}[m.Job != x.changed] }
				}
				w.Nomad.Observe(nomadtest.Observer{Placed: count(&x.placed), Ended: count(&x.ended)})
				for range 30 {
					x.RunFor(time.Duration(x.pick.ExpFloat64() * float64(6*time.Second)))
					x.act()
					x.Excuse()
					x.RunFor(2 * time.Second)
					x.follow()
				}
				steps, unsure = steps+w.Nomad.Steps(), unsure+x.unsure
			})
		})
		if t.Failed() && budget > 0 {
			break
		}
	}
	t.Logf("%d walks, %d steps; taken: %v; %d predictions failed because other jobs started or ended", walks, steps, taken, unsure)
	if seeds == stepSeeds {
		for _, what := range []string{"fewer fit", "stop the holders"} {
			if taken[what] == 0 {
				t.Errorf("no author took this kind of offer: %s (%v)", what, taken)
			}
		}
	}
}

// follower is an author who does what explain offers.
type follower struct {
	*Walk
	taken map[string]int
	pick  *rand.Rand
	// placed and ended count members of jobs other than the changed one, because an offer holds
	// only for the moment. unsure counts offers that failed because other jobs started or ended.
	placed, ended, unsure int
	changed               nomadtest.Key
}

// offer is something that explain offers, and a check of whether its prediction has come true.
type offer struct {
	what string
	do   func() error
	ok   func() bool
	says string
	// within is how long that may take. sure: it must come true, whatever other jobs do meanwhile.
	within time.Duration
	sure   bool
}

// follow takes one of the offers made to waiting jobs.
func (x *follower) follow() {
	s := x.snapshot()
	var offers []offer
	for _, j := range s.Jobs() {
		if j.State != palapi.Waiting && j.State != palapi.Unschedulable || strings.Contains(j.Job, "/") {
			continue
		}
		e, err := s.Explain(x.T.Context(), Key(j.Job))
		if err != nil {
			x.T.Fatal(err)
		}
		offers = append(offers, x.offersOf(e)...)
		x.plansAgree(s, e)
	}
	if len(offers) == 0 {
		return
	}
	kinds := map[string][]offer{}
	for _, o := range offers {
		kinds[o.what] = append(kinds[o.what], o)
	}
	names := slices.Sorted(maps.Keys(kinds))
	all := kinds[names[x.pick.IntN(len(names))]]
	o := all[x.pick.IntN(len(all))]
	x.say("taken: %s: %s", o.what, o.says)
	x.placed, x.ended = 0, 0
	if err := o.do(); err != nil {
		x.T.Errorf("%s (%s): %v", o.what, o.says, err)
		return
	}
	switch came := x.Until(o.within, o.ok); {
	case came:
		x.taken[o.what]++
	case !o.sure && x.placed+x.ended > 0:
		x.unsure++
	default:
		x.T.Errorf("%s was done, but the prediction did not come true: %s\n%s", o.what, o.says, x.Describe())
		if testing.Verbose() {
			x.T.Log(x.Log())
		}
	}
}

// offersOf returns explain's offers to a job.
func (x *follower) offersOf(e *palapi.Explanation) (out []offer) {
	k := Key(e.Job)
	add := func(what, try string, ok func() bool) {
		says := fmt.Sprintf("%s, which is %s: %s: %s", e.Job, e.State, e.Reason.String(), try)
		out = append(out, offer{what, func() error { return x.change(k, try) }, ok, says, 5 * time.Second, false})
	}
	starts := func() bool { return len(x.GPUs(k)) > 0 }
	for _, r := range e.Remedies {
		switch r.Kind {
		case reason.FewerFit:
			add("fewer fit", r.Try, starts)
		case reason.WiderFits:
			add("wider fits", r.Try, func() bool { return starts() || x.reason(e.Job).Kind == reason.Locality })
		}
	}
	if h := e.Holders; h != nil && h.Enough && e.Wait != nil && e.Wait.Position == 1 && len(e.Wait.Stopping) == 0 {
		out = append(out, x.stopHolders(e))
	}
	return out
}

// plansAgree checks the changes that explain offers to a waiting job: according to plan, the job
// starts with each of them.
func (x *follower) plansAgree(s *query.Snapshot, e *palapi.Explanation) {
	plan := func(try ...string) *palapi.Explanation {
		changes, err := query.ParseChanges(try...)
		job := rewrite.Author(x.Nomad.Job(Key(e.Job)))
		if err == nil {
			err = changes.Apply(job)
		}
		p, planErr := s.Plan(x.T.Context(), job)
		if err = errors.Join(err, planErr); err != nil {
			x.T.Fatal(err)
		}
		return p
	}
	if e.State != palapi.Waiting {
		return
	}
	if p := plan(); p.State == palapi.Starting || p.Reason.Kind == reason.StillEnding {
		// The cluster has changed since the placer decided, or an edit would wait for old members.
		return
	}
	tries := map[string]bool{}
	for _, r := range e.Remedies {
		tries[r.Try] = r.Kind == reason.FewerFit || r.Kind == reason.WiderFits && r.Until.IsZero()
	}
	for _, try := range slices.Sorted(maps.Keys(tries)) {
		if !tries[try] {
			continue
		}
		if p := plan(try); p.State != palapi.Starting && p.Reason.Kind != reason.NomadRefuses {
			x.T.Errorf("%s (%s) could start with %s according to explain, but plan says %s: %s", e.Job, e.Reason.String(), try, p.State, p.Reason.String())
		}
	}
}

// stopHolders stops the jobs that, according to explain, make enough room together. Then this gang,
// or another waiting one, must start there.
func (x *follower) stopHolders(e *palapi.Explanation) offer {
	var jobs []string
	for _, h := range e.Holders.Jobs {
		if h.Needed {
			jobs = append(jobs, strings.TrimPrefix(h.Job, "default/"))
		}
	}
	return offer{"stop the holders", func() error {
		for _, id := range jobs {
			if err := x.Stop(Key(id)); err != nil {
				return err
			}
		}
		return nil
	}, func() bool { return x.placed > 0 || len(x.GPUs(Key(e.Job))) > 0 }, fmt.Sprintf("%s waits for %v", e.Job, jobs), time.Minute, true}
}

// change makes the author change a job as offered.
func (x *follower) change(k nomadtest.Key, try string) error {
	x.changed = k
	changes, err := query.ParseChanges(try)
	if err != nil {
		return err
	}
	return x.Edit(k, func(j *api.Job) { err = changes.Apply(j) })
}

// reason returns the reason for a job's state, as commands show it.
func (x *follower) reason(name string) reason.Reason {
	for _, j := range x.placers[len(x.placers)-1].Status().Jobs {
		if j.Job == name {
			return j.Reason
		}
	}
	return reason.Reason{}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package bed

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// peopleOf returns the random source for the commands that people type in the walk with this seed.
// In two of three walks, people type no commands. If people type no commands, peopleOf returns nil.
func peopleOf(seed uint64) *rand.Rand {
	if seed%3 != 2 {
		return nil
	}
	return rand.New(rand.NewPCG(seed, 47))
}

// peopleType sometimes runs hold, hold -lift, requeue, priority, cancel or release on a random job.
func (x *Walk) peopleType() {
	if x.people == nil || x.made == 0 || x.people.IntN(3) > 0 {
		return
	}
	k := x.anyJob()
	said := &gang.Said{By: "somebody", At: time.Now().UTC()}
	switch x.people.IntN(9) {
	case 0, 1, 2:
		x.hold(k, said)
	case 3:
		x.Counts["people: lift a hold"]++
		x.lift(k)
	case 4, 5:
		x.tell("people: requeue", k, func(c *gang.Control) { c.Requeue = said })
	case 6:
		n := 20 + 10*x.people.IntN(6)
		x.tell("people: priority", k, func(c *gang.Control) { c.Priority = n })
	case 7:
		x.cancel(k)
	case 8:
		x.released[k] = true
		x.tell("people: release", k, func(c *gang.Control) { c.Release = said })
	}
}

// anyJob returns a random job that authors registered or dispatched. The job is one of the last 12
// jobs in the order of their keys.
func (x *Walk) anyJob() nomadtest.Key {
	keys := x.rules.authoredJobs()
	return keys[len(keys)-1-x.people.IntN(min(len(keys), 12))]
}

// atWork returns the active placer that was started last.
func (x *Walk) atWork() *Placer {
	for _, p := range slices.Backward(x.placers) {
		if x.rules.alive(p.Name) {
			return p
		}
	}
	return nil
}

// tell sends a request about a job to the active placer. tell returns the name of the placer, or ""
// if the request failed.
func (x *Walk) tell(what string, k nomadtest.Key, change func(*gang.Control)) string {
	p := x.atWork()
	if p == nil || x.Nomad.Job(k) == nil {
		return ""
	}
	x.say("%s: %s by %s", what, k, p.Name)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	x.told[k] = true
	if _, err := p.Control(ctx, k, change); err != nil {
		x.Counts["refused to somebody"]++
		return ""
	}
	x.Counts[what]++
	return p.Name
}

// hold holds a job. If the job waits, it must not start before the hold is lifted.
func (x *Walk) hold(k nomadtest.Key, said *gang.Said) {
	by := x.tell("people: hold", k, func(c *gang.Control) { c.Held = said })
	if job := x.Nomad.Job(k); by != "" && job != nil && Carries(job) == "gated" && len(x.Members(k)) == 0 {
		x.Counts["people: hold a job that waits"]++
		x.rules.holds(k, by)
	}
}

// lift lifts the hold of a job.
func (x *Walk) lift(k nomadtest.Key) bool {
	x.rules.lifts(k)
	return x.tell("people: hold -lift", k, func(c *gang.Control) { c.Held = nil }) != "" || x.Nomad.Job(k) == nil
}

// liftAll lifts the holds of all jobs, after the faults have stopped.
func (x *Walk) liftAll() {
	for _, k := range x.rules.authoredJobs() {
		if x.told[k] && !x.lift(k) {
			x.T.Errorf("lifting the hold on %s failed", k)
		}
	}
}

// cancel stops a job, as nomad-pal cancel does. If the job is parameterized or periodic, cancel
// also stops all its runs.
func (x *Walk) cancel(k nomadtest.Key) {
	job := x.Nomad.Job(k)
	if job == nil {
		return
	}
	x.Counts["people: cancel"]++
	x.try(x.Stop(k))
	if !isTemplate(job) {
		return
	}
	for _, child := range x.ChildrenOf(k) {
		if j := x.Nomad.Job(child); j != nil && *j.Status != "dead" && !*j.Stop {
			x.Counts["people: cancel a run"]++
			x.try(x.Stop(child))
		}
	}
}

// holds records that a waiting job is on hold, and which placer got the command.
func (r *rules) holds(k nomadtest.Key, told string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.story(k)
	s.heldAt, s.heldBy = time.Now(), told
}

// lifts records that the hold of a job has been lifted.
func (r *rules) lifts(k nomadtest.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story(k).heldAt = time.Time{}
}

// alive reports whether any placer is active.
func (r *rules) alive(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dead[name].IsZero()
}

// startsHeld reports a violation if a placer starts a job on hold although it must know about the
// hold. The placer must know if it got the command, or if it started after the command. There are
// two exceptions: the placer may still be carrying out a decision from before the hold, especially
// if one of its requests failed; and a new placer that cannot read the holds continues without
// them. The caller holds r.mu.
func (r *rules) startsHeld(s *story, x nomadtest.Write) {
	if x.After == nil {
		s.heldAt = time.Time{} // the hold ends when the job is purged
	}
	if s.heldAt.IsZero() || x.Kind != "register" || x.Before == nil || x.After == nil || Carries(x.Before) != "gated" || Carries(x.After) != "pinned" {
		return
	}
	i := slices.IndexFunc(r.placers, func(p *Placer) bool { return p.Name == x.Client })
	since, late := time.Since(s.heldAt), lateEvent
	if time.Since(r.failedAt[x.Client]) < longCycle {
		late = longCycle
	}
	knows := x.Client == s.heldBy || r.placers[i].began.After(s.heldAt) && time.Since(r.failedAt[x.Client+" controls"]) > longest
	if knows && since > late {
		r.violated("%s starts %s, which is held since %s", x.Client, x.Job, s.heldAt.Format("15:04:05"))
	}
	s.heldAt = time.Time{}
}

// longest is the longest time for which a placer waits before it retries a failed request.
const longest = 5 * time.Minute

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	// killDefault is Nomad's default for kill_timeout, and killMost its clients' for
	// max_kill_timeout, which caps it.
	killDefault = 5 * time.Second
	killMost    = 30 * time.Second
	// killLate is how long a client takes to hear that it is to end tasks.
	killLate = time.Second
)

// purged are GPUs of an allocation that vanished while it was live.
type purged struct {
	since time.Time // zero: nobody has looked since
	kill  time.Duration
	gpus  []string
}

// Purged are the GPUs, by instance id, whose tasks may go on for a while though no
// list has their allocations any more. Nomad forgets the allocations of a purged job
// at once, and counts their GPUs as free; its clients end the tasks within their
// kill_timeout (seen on 1.11.3). When a task has ended before that nobody tells.
func (s *State) Purged(now time.Time) map[string]bool {
	gpus := map[string]bool{}
	for id, p := range s.purged {
		switch {
		case p.since.IsZero():
			p.since = now
		case now.Sub(p.since) >= p.kill+killLate:
			delete(s.purged, id)
			continue
		}
		for _, id := range p.gpus {
			gpus[id] = true
		}
	}
	return gpus
}

// noteVanished notes that an allocation is in no list any more.
func (s *State) noteVanished(a *Alloc) {
	if !a.Live() || len(a.GPUs) == 0 {
		return
	}
	kill, ok := s.kills[a.Job]
	if !ok {
		kill = killDefault
	}
	s.purged[a.ID] = &purged{kill: kill, gpus: s.OwnGPUs(a)}
}

// applyOld takes an event of an allocation that is older than the list, which came
// while everything was read, and says whether it matters: one that was live then, and
// that the list has not, has vanished in between. Its job may have been purged before
// anything else was heard of it.
//
// Nomad's stream begins with what its buffer still has, which may be days old on a
// quiet cluster. When a job was purged nobody can tell, so a placer that begins keeps
// such GPUs once too often; one that only reads anew knows what it heard before.
func (s *State) applyOld(a *Alloc, index uint64) bool {
	if s.Allocs[a.ID] != nil || index <= s.knownTo {
		return false
	}
	known := s.purged[a.ID] != nil
	if delete(s.purged, a.ID); a.Live() { // it may have ended since
		s.noteVanished(a)
	}
	return known != (s.purged[a.ID] != nil)
}

// purgedAfter takes over what vanished before and since a full read.
func (s *State) purgedAfter(old *State) {
	s.knownTo = max(old.allocsAt, old.heardAt)
	for id, p := range old.purged {
		s.purged[id] = p
	}
	for k, kill := range old.kills {
		s.kills[k] = kill
	}
	for k, job := range old.Jobs {
		if s.Jobs[k] == nil {
			s.kills[k] = killTimeout(job)
		}
	}
	for id, a := range old.Allocs {
		if s.Allocs[id] == nil {
			s.noteVanished(a)
		}
	}
	s.forgetKills()
}

// forgetKills forgets how long tasks take to end of jobs of which nothing is left.
func (s *State) forgetKills() {
	for k := range s.kills {
		if len(s.byJob[k]) == 0 {
			delete(s.kills, k)
		}
	}
}

// killTimeout is how long the job's tasks have to end.
func killTimeout(job *api.Job) time.Duration {
	most := time.Duration(0)
	for _, g := range job.TaskGroups {
		for _, t := range g.Tasks {
			d := killDefault
			if t.KillTimeout != nil {
				d = *t.KillTimeout
			}
			most = max(most, d)
		}
	}
	return min(most, killMost)
}

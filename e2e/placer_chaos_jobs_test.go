// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// story is one job from its submission to its end.
type story struct {
	id, kind string
	members  int      // members of the gang
	ends     []string // how such a job may end
	// step moves the story forward. It returns how the job has ended, ""
	// before.
	step  func() string
	at    int // how many steps are done
	since time.Time
	asked time.Time // when the story last ran explain
}

// kinds are the kinds of jobs; the weights sum to 100.
var kinds = []struct {
	kind   string
	weight int
}{
	{"gang", 48}, {"groups", 10}, {"native", 5}, {"service", 6}, {"dispatched", 10}, {"periodic", 2},
	{"fails", 5}, {"partly", 3}, {"impossible", 3}, {"stopped", 4}, {"rerun", 4},
}

// submit submits a job of a random kind.
func (c *chaos) submit(i int) {
	c.t.Helper()
	roll, kind := c.rng.IntN(100), ""
	for _, k := range kinds {
		if kind == "" && roll < k.weight {
			kind = k.kind
		}
		roll -= k.weight
	}
	if kind == "periodic" && c.claimed["periodic"] { // one at a time, because the child's name is not known beforehand
		kind = "gang"
	}
	s := &story{id: fmt.Sprintf("chaos-%04d-%s", i, kind), kind: kind, ends: []string{"finished"}, since: time.Now(), asked: time.Now()}
	c.stories = append(c.stories, s)
	j := c.random(s)
	s.step = func() string { return c.finished(s) }
	switch kind {
	case "service":
		c.service(s)
		return
	case "dispatched":
		c.child(s)
		return
	case "periodic":
		c.periodic(s)
		return
	case "native":
		j.groups[0].count, s.members, s.ends = 1, 0, []string{"finished", "failed"} // Nomad alone places such a job
		s.step = func() string { return c.finishedOf(s, 1) }
		c.register(c.parse(c.text(j)))
		return
	case "fails":
		j.script, s.ends = "exit 7", []string{"failed", "given up"}
		s.step = func() string { return cmp.Or(c.refused(s, "given up"), c.finished(s)) }
	case "partly":
		j.groups = []group{{name: "workers", count: 2 + c.rng.IntN(2), gpus: 1, extra: once}}
		j.script, s.members, s.ends = "if [ $NOMAD_ALLOC_INDEX = 0 ]; then exit 3; fi; exec sleep 3600", j.groups[0].count, []string{"given up"}
		s.step = func() string { return c.refused(s, "given up") }
	case "impossible":
		g := [][2]int{{1, 5}, {17, 1}, {2, 6}}[c.rng.IntN(3)]
		j.groups[0].count, j.groups[0].gpus, s.ends = g[0], g[1], []string{"refused"}
		s.step = func() string { return c.refused(s, "") }
	case "stopped":
		j.script, s.ends = "exec sleep 3600", []string{"stopped"}
		s.step = func() string { return c.stopped(s) }
	case "rerun":
		j.script = fmt.Sprintf("exec sleep %d", 2+c.rng.IntN(6))
		s.step = func() string { return c.rerun(s, j) }
	}
	c.observer.expect(s.id, s.members)
	c.register(c.gated(j))
}

// random is a gang of random size that runs for a random time.
func (c *chaos) random(s *story) job {
	sizes := [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {2, 1}, {2, 1}, {1, 2}, {1, 2}, {4, 1}, {2, 2}, {1, 4}, {6, 1}, {2, 4}}
	size := sizes[c.rng.IntN(len(sizes))]
	j := gang(s.id, size[0], size[1])
	s.members = size[0]
	if s.kind == "groups" {
		j.groups = append(j.groups, group{name: "more", count: 1 + c.rng.IntN(2), gpus: 1 + c.rng.IntN(2)})
		s.members += j.groups[1].count
	}
	j.meta = fmt.Sprintf("pal_class = %q\n    pal_preempt = \"%v\"\n    pal_migrate = \"%v\"", []string{"A", "B", "C", "D"}[c.rng.IntN(4)], c.rng.IntN(3) == 0, c.rng.IntN(3) == 0)
	j.extra = fmt.Sprintf("priority = %d", 20+c.rng.IntN(60))
	for i := range j.groups {
		j.groups[i].extra = "restart {\n attempts = 1\n delay = \"1s\"\n interval = \"1h\"\n mode = \"fail\"\n}\nreschedule {\n attempts = 1\n interval = \"1h\"\n delay = \"5s\"\n delay_function = \"constant\"\n unlimited = false\n}\n"
	}
	j.script = fmt.Sprintf("sleep 0.%d", c.rng.IntN(10))
	if c.rng.IntN(3) == 0 { // members of a gang do not end at the same time
		j.script = fmt.Sprintf("sleep $((%d + 2 * NOMAD_ALLOC_INDEX))", 2+c.rng.IntN(6))
	}
	return j
}

func (c *chaos) gated(j job) *api.Job {
	c.t.Helper()
	job := c.parse(c.text(j))
	job.Constraints = append(job.Constraints, &api.Constraint{LTarget: "${meta.pal_gate}", RTarget: "open", Operand: "="})
	return job
}

// text is a job's jobspec, after c.dress has changed the job.
func (c *chaos) text(j job) string {
	if c.dress != nil {
		j = c.dress(j)
	}
	return j.hcl()
}

func (c *chaos) parse(hcl string) (job *api.Job) {
	c.t.Helper()
	c.try("a jobspec is parsed", func() (err error) {
		job, err = c.API().Jobs().ParseHCL(hcl, true)
		return err
	})
	return job
}

// parents registers the jobs whose children are gangs.
func (c *chaos) parents() {
	c.t.Helper()
	for id, extra := range map[string]string{
		"chaos-dispatch": "parameterized {\n    payload = \"forbidden\"\n    meta_optional = [\"seed\"]\n  }",
		"chaos-cron":     "periodic {\n    crons = [\"0 0 1 1 *\"]\n  }",
	} {
		j := gang(id, 2, 1)
		j.extra, j.script = extra, "sleep $((2 * NOMAD_ALLOC_INDEX))"
		c.register(c.gated(j))
	}
}

// child dispatches a job.
func (c *chaos) child(s *story) {
	c.t.Helper()
	token := s.id // the token stays the same if the dispatch is retried
	c.try("a dispatch", func() error {
		r, _, err := c.API().Jobs().Dispatch("chaos-dispatch", map[string]string{"seed": "1"}, nil, "", &api.WriteOptions{IdempotencyToken: token})
		if err == nil {
			s.id = r.DispatchedJobID
		}
		return err
	})
	s.members = 2
	c.observer.expect(s.id, s.members)
}

// periodic forces a launch. Its child is the one that no other story has claimed.
func (c *chaos) periodic(s *story) {
	c.t.Helper()
	c.claimed["periodic"] = true
	force := func() { _, _, _ = c.API().Jobs().PeriodicForce("chaos-cron", nil) }
	force()
	s.members = 2
	s.step = func() string {
		if s.at > 0 {
			end := c.finished(s)
			c.claimed["periodic"] = end == ""
			return end
		}
		for _, id := range c.observer.jobs() {
			if strings.HasPrefix(id, "chaos-cron/") && !c.claimed[id] {
				s.id, s.at, c.claimed[id] = id, 1, true
				c.observer.expect(id, s.members)
			}
		}
		if s.at == 0 && time.Since(s.since) > 30*time.Second {
			s.since = time.Now()
			force()
		}
		return ""
	}
}

// finished ends the story of a gang that should complete.
func (c *chaos) finished(s *story) string { return c.finishedOf(s, s.members) }

// finishedOf ends a story with "finished", or with "failed". A gang that failed
// through no fault of its own is dead until the placer requeues it: only one
// that stays dead has failed.
func (c *chaos) finishedOf(s *story, members int) string {
	job, done, _ := c.observer.of(s.id)
	switch {
	case job == nil || job.Status != "dead":
		s.since = time.Now()
	case done >= members:
		return "finished"
	case time.Since(s.since) > 30*time.Second:
		return "failed"
	}
	return ""
}

// refused ends the story of a job that waits forever and says why.
func (c *chaos) refused(s *story, why string) string {
	job, _, live := c.observer.of(s.id)
	if job == nil || job.Status != "pending" || live > 0 || time.Since(s.asked) < 10*time.Second {
		return ""
	}
	s.asked = time.Now()
	e := c.explain(s.id)
	if e.State != "unschedulable" && e.State != "rejected" && e.State != "failed" || e.Reason == "" || !strings.Contains(e.Reason, why) {
		return ""
	}
	c.stop(s.id)
	if why != "" {
		return why
	}
	return "refused"
}

// stopped: the author stops the running job.
func (c *chaos) stopped(s *story) string {
	job, _, live := c.observer.of(s.id)
	switch {
	case s.at == 0 && live == s.members:
		c.stop(s.id)
		s.at = 1
	case s.at == 1 && job != nil && job.Status == "dead" && live == 0:
		return "stopped"
	}
	return ""
}

// rerun: the author runs the same file again while the job runs.
func (c *chaos) rerun(s *story, j job) string {
	if _, _, live := c.observer.of(s.id); s.at == 0 && live == s.members {
		c.register(c.gated(j))
		s.at, s.since = 1, time.Now()
	}
	return c.finished(s)
}

// service is scaled, updated and stopped.
func (c *chaos) service(s *story) {
	c.t.Helper()
	j := c.random(s)
	j.kind, j.script = "service", "exec sleep 3600"
	j.groups = []group{{name: "workers", count: 2, gpus: 1, extra: "update {\n max_parallel = 0\n}\n"}}
	s.ends, s.members = []string{"stopped"}, 0
	c.register(c.gated(j))
	version := uint64(0)
	s.step = func() string {
		job, _, live := c.observer.of(s.id)
		switch {
		case s.at == 0 && live == 2:
			c.try("a service is scaled", func() error {
				_, _, err := c.API().Jobs().Scale(s.id, "workers", new(3), "", false, nil, nil)
				return err
			})
			s.at++
		case s.at == 1 && live == 3:
			j.groups[0].count, j.script = 3, "exec sleep 4000"
			c.register(c.gated(j))
			c.try("the version of a service", func() error {
				info, _, err := c.API().Jobs().Info(s.id, nil)
				if err == nil {
					version = *info.Version
				}
				return err
			})
			s.at++
		case s.at == 2 && c.observer.liveSince(s.id, version) == 3:
			c.stop(s.id)
			s.at++
		case s.at == 3 && job != nil && job.Status == "dead" && live == 0:
			return "stopped"
		}
		return ""
	}
}

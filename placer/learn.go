// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/classify"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

const (
	// relistEvery is the number of readings after which the learner reads the stored classes and
	// lists the jobs again.
	relistEvery = 20
	// learnFrom is the number of readings of busy GPUs that the learner needs to learn a class.
	learnFrom = 40
	// learnSkip is the number of a job's first readings that the learner ignores, because jobs load
	// data first.
	learnSkip = 10
	// classesKept is the maximum number of stored classes for names that no job in Nomad has. The
	// limit is necessary because names that contain a date or a number never recur.
	classesKept = 500
	// learnAtOnce is the maximum number of watched jobs. learnAtOnce also limits the number of
	// calls to clients.
	learnAtOnce = 20
)

// Learner watches running jobs without an application class. A Learner learns the class of each job
// from the statistics of the job's GPUs. A Learner stores the class under the job's name, for later
// runs. For dispatched and periodic jobs, the Learner uses the name of the parent.
type Learner struct {
	nomad *nomad.Client
	log   hclog.Logger
	every time.Duration

	mu      sync.Mutex
	classes map[cluster.JobKey]pal.AppClass
}

// NewLearner returns a learner that reads statistics once per period.
func NewLearner(c *nomad.Client, every time.Duration, log hclog.Logger) *Learner {
	return &Learner{nomad: c, log: log, every: every, classes: map[cluster.JobKey]pal.AppClass{}}
}

// Class returns the class that is learned or stored for a job's name.
func (l *Learner) Class(job *api.Job) (pal.AppClass, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.classes[cluster.NameOf(job)]
	return c, ok
}

// Run learns until ctx ends. Run logs errors and retries. If a job causes a panic, Run learns
// nothing from this job.
func (l *Learner) Run(ctx context.Context) {
	watched := map[cluster.JobKey]*study{}
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%relistEvery == 0 {
			var stored []string
			_ = recoverPanic(l.log, "remembered application classes", func() error { stored = l.readClasses(ctx); return nil })
			err := recoverPanic(l.log, "watching jobs", func() error { return l.relist(ctx, watched, stored) })
			if err != nil && ctx.Err() == nil {
				l.log.Warn("cannot watch jobs to learn their application classes", "error", err)
			}
		}
		for _, k := range slices.SortedFunc(maps.Keys(watched), cluster.JobKey.Compare) {
			s := watched[k]
			if recoverPanic(l.log, "learning of job "+k.String(), func() error { l.read(ctx, k, s); return nil }) != nil {
				s.done = true
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// readClasses reads the stored classes, and returns their paths, the newest first. Stored classes
// come from an agent that learned them, or from nomad-pal classify -save.
func (l *Learner) readClasses(ctx context.Context) (newest []string) {
	known, newest, err := store.In(l.nomad).Classes().ReadNewest(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.Warn("cannot read all learned application classes", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil { // otherwise, a class that is missing here may still be stored
		clear(l.classes)
	}
	for _, k := range known {
		l.classes[k.Job] = k.Verdict.Class
	}
	return newest
}

// forget keeps the newest [classesKept] of the stored classes whose names no job in Nomad has, and
// deletes the older ones. newest lists the paths of the stored classes, the newest first.
func (l *Learner) forget(ctx context.Context, s *cluster.State, newest []string) error {
	exist := map[string]bool{}
	for _, job := range s.Jobs {
		exist[store.In(l.nomad).Class(cluster.NameOf(job)).Path] = true
	}
	gone := slices.DeleteFunc(newest, func(path string) bool { return exist[path] })
	for _, path := range gone[min(len(gone), classesKept):] {
		if err := store.In(l.nomad).Classes().Delete(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// study holds the readings of a watched job.
type study struct {
	gpus     map[string][]string // by node
	seen     map[string]time.Time
	rounds   int
	readings []classify.Reading
	done     bool // nothing more can be learned from this run
}

// relist updates the list of watched jobs. The learner watches jobs without a class, if all their
// members run. relist also calls [Learner.forget] with the paths of the stored classes.
func (l *Learner) relist(ctx context.Context, watched map[cluster.JobKey]*study, stored []string) error {
	state, err := l.nomad.Resync(ctx, nil)
	if err != nil {
		return err
	}
	if err := l.forget(ctx, state, stored); err != nil {
		l.log.Warn("cannot delete learned classes of jobs that no longer exist", "error", err)
	}
	running := map[cluster.JobKey]map[string][]string{}
	for _, k := range state.SortedJobs() {
		job := state.Jobs[k]
		h, err := rewrite.ParseHints(job)
		if err != nil || h.Class != "" || h.App != "" || gang.Observe(state, job).Nomad != gang.Running {
			continue
		}
		gpus := running[cluster.NameOf(job)] // includes the GPUs of the parent's other children
		if gpus == nil {
			gpus = map[string][]string{}
			running[cluster.NameOf(job)] = gpus
		}
		for _, a := range state.AllocsOf(k) {
			if a.Client == api.AllocClientStatusRunning {
				gpus[a.Node] = append(gpus[a.Node], whole(a.GPUs)...)
			}
		}
	}
	maps.DeleteFunc(watched, func(k cluster.JobKey, _ *study) bool { return running[k] == nil })
	active := 0
	for _, s := range watched {
		if !s.done {
			active++
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(running), cluster.JobKey.Compare) {
		s := watched[k]
		if s == nil && active >= learnAtOnce {
			continue
		}
		if s == nil {
			s = &study{seen: map[string]time.Time{}}
			watched[k] = s
			active++
		}
		s.gpus = running[k]
	}
	return nil
}

// whole returns the device instances that are whole GPUs. The statistics of a shared GPU are
// useless, because they mix all jobs on the GPU.
func whole(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return attr.GPUOf(id) != id })
}

// read takes one reading of a job. If there are enough readings, read also learns the job's class.
func (l *Learner) read(ctx context.Context, k cluster.JobKey, s *study) {
	if s.done {
		return
	}
	s.rounds++
	for _, node := range slices.Sorted(maps.Keys(s.gpus)) {
		rs, err := l.nomad.GPUReadings(ctx, node, s.gpus[node])
		if err != nil {
			l.log.Debug("cannot read statistics", "node", node, "error", err)
			continue
		}
		for _, r := range rs {
			if r.At.Equal(s.seen[r.GPU]) {
				continue
			}
			s.seen[r.GPU] = r.At
			if s.rounds > learnSkip {
				s.readings = append(s.readings, r.Reading)
			}
		}
	}
	f := classify.Summarize(s.readings)
	if f.Readings < learnFrom {
		return
	}
	s.done, s.readings = true, nil
	l.conclude(ctx, k, f)
}

// conclude determines a job's class from the readings, and stores the class.
func (l *Learner) conclude(ctx context.Context, k cluster.JobKey, f classify.Features) {
	known, err := store.In(l.nomad).Classes().Read(ctx)
	if err != nil {
		l.log.Debug("cannot read all learned classes; using those that could be read", "error", err)
	}
	v, _, ok := classify.Judge(store.FeaturesOf(known), f)
	if !ok {
		l.log.Debug("application class not learned", "job", k.ID, "namespace", k.Namespace, "reason", v.Reason)
		return
	}
	if err := store.In(l.nomad).Class(k).Write(ctx, store.Class{Job: k, Verdict: v, Features: f}); err != nil {
		l.log.Warn("cannot store a learned application class", "job", k.ID, "namespace", k.Namespace, "error", err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.classes[k] != v.Class {
		l.log.Info("application class learned", "job", k.ID, "namespace", k.Namespace, "app_class", v.Class, "reason", v.Reason)
	}
	l.classes[k] = v.Class
}

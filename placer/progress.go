// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// A job with pal_progress writes to a file in its allocation directory how much of its work is
// done. The placer reads the file of the gang's first running member in the background, through
// Nomad's client API. The placer then reports the progress to the queue. The placer reads one batch
// of files at a time. So a slow client delays only the reading of progress.

const (
	// progressFile is the path of the file relative to the allocation's directory. In a task, the
	// path is ${NOMAD_ALLOC_DIR}/pal-progress.
	progressFile = "alloc/pal-progress"
	// mostProgress is the number of bytes that the placer reads from a progress file.
	mostProgress = 64
	// progressBatch is the maximum number of files in a batch. progressAtOnce is the maximum number
	// of files that the placer reads at the same time. progressWithin is the timeout for one file.
	progressBatch, progressAtOnce = 64, 16
	progressWithin                = 3 * time.Second
)

// reporting is a running gang whose progress the placer reads.
type reporting struct {
	alloc  string
	since  time.Time // when the allocation was made
	due    time.Time
	denied error // why the last read failed, if Nomad did not permit it
}

// progressReads contains the gangs whose progress the placer reads.
type progressReads struct {
	of   map[cluster.JobKey]*reporting
	done chan []progressRead // receives the current batch once it is read; nil if no batch is being read
}

// progressRead describes the read of one file.
type progressRead struct {
	key   cluster.JobKey
	alloc string
	text  []byte
	err   error
}

// follow starts or stops reading the progress of a gang, depending on the gang's hints and state.
func (r *progressReads) follow(t *model.Tracked, now time.Time) {
	a := firstMember(t)
	if t.Nomad != gang.Running || t.Refused != nil || !t.Request.Hints.Progress || a == nil {
		delete(r.of, t.Key)
		t.ProgressTrouble = ""
		return
	}
	if was := r.of[t.Key]; was != nil && was.alloc == a.ID {
		return
	}
	t.ProgressTrouble = ""
	r.of[t.Key] = &reporting{alloc: a.ID, since: time.Unix(0, a.CreateTime), due: now}
}

// firstMember returns the member whose file the placer reads. The file is that of the running
// member with the lowest index in the first group with GPUs. firstMember returns nil if no member
// of this group runs.
func firstMember(t *model.Tracked) (first *cluster.Alloc) {
	for _, g := range t.Job.TaskGroups {
		if rewrite.GPUsPerMember(g) == 0 {
			continue
		}
		for _, a := range t.Members {
			if a.Group == *g.Name && a.Client == api.AllocClientStatusRunning && (first == nil || len(a.Name) < len(first.Name) || len(a.Name) == len(first.Name) && a.Name < first.Name) {
				first = a
			}
		}
		return first
	}
	return nil
}

// start begins to read the files that are due, unless a batch is being read. start begins with the
// files that have been due for the longest time.
func (r *progressReads) start(ctx context.Context, c *nomad.Client, log hclog.Logger, now time.Time) {
	if r.done != nil || len(r.of) == 0 {
		return
	}
	var due []progressRead
	for k, of := range r.of {
		if !now.Before(of.due) {
			due = append(due, progressRead{key: k, alloc: of.alloc})
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b progressRead) int {
		return cmp.Or(r.of[a.key].due.Compare(r.of[b.key].due), a.key.Compare(b.key))
	})
	due = due[:min(len(due), progressBatch)]
	done := make(chan []progressRead, 1)
	r.done = done
	go func() {
		_ = recoverPanic(log, "reading progress", func() error { readProgress(ctx, c, due); return nil })
		done <- due
	}()
}

// wait waits until the current batch ends. The caller must have ended the context of the batch.
func (r *progressReads) wait() {
	if r.done != nil {
		<-r.done
		r.done = nil
	}
}

// readProgress reads the files of a batch.
func readProgress(ctx context.Context, c *nomad.Client, batch []progressRead) {
	var reading errgroup.Group
	reading.SetLimit(progressAtOnce)
	for i := range batch {
		reading.Go(func() error {
			r := &batch[i]
			brief, cancel := context.WithTimeout(ctx, progressWithin)
			defer cancel()
			r.text, r.err = c.ReadFile(brief, r.key.Namespace, r.alloc, progressFile, mostProgress)
			return nil
		})
	}
	_ = reading.Wait() // the error of each file is in its progressRead
}

// takeProgress passes the progress that was read in a batch to the queue. takeProgress ignores a
// file if the placer now reads the file of another member of the same gang.
func (p *Placer) takeProgress(batch []progressRead) news {
	p.progress.done = nil
	now := p.tick()
	for _, r := range batch {
		of, t := p.progress.of[r.key], p.m.Jobs[r.key]
		if t == nil {
			delete(p.progress.of, r.key)
		}
		if of == nil || of.alloc != r.alloc || t == nil || errors.Is(r.err, context.Canceled) {
			continue
		}
		of.due, of.denied = now.Add(queue.NextReport(now.Sub(of.since))), nil
		trouble := ""
		switch done, ok, err := parseProgress(r.text); {
		case r.err != nil:
			trouble = r.err.Error()
			if nomad.Refused(r.err) {
				of.denied = r.err
			}
		case err != nil:
			trouble = err.Error()
		case ok:
			p.m.Queue.Reported(gang.QueueTime(now), r.key.String(), done)
			p.changed = true
		}
		p.changed = p.changed || trouble != t.ProgressTrouble
		t.ProgressTrouble = trouble
	}
	p.report(readingProgress, p.progress.denied())
	return progress
}

// denied returns Nomad's error about a file that Nomad refused to return, or nil if Nomad refused
// none.
func (r *progressReads) denied() error {
	for _, k := range slices.SortedFunc(maps.Keys(r.of), cluster.JobKey.Compare) {
		if err := r.of[k].denied; err != nil {
			return err
		}
	}
	return nil
}

// errNoProgress does not quote the file. A user who may read the state of a job may not be allowed
// to read its files.
var errNoProgress = errors.New("the file pal-progress does not contain the finished part of the job's work, such as 0.42, 42% or 420/1000")

// parseProgress parses the fraction of a job's work that is done. ok is false if the file is still
// empty.
func parseProgress(text []byte) (done float64, ok bool, err error) {
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return 0, false, nil
	}
	line, of := strings.TrimSpace(line), 1.0
	if number, all, ok := strings.Cut(line, "/"); ok {
		if of, err = strconv.ParseFloat(strings.TrimSpace(all), 64); err != nil {
			return 0, false, errNoProgress
		}
		line = number
	} else if number, ok := strings.CutSuffix(line, "%"); ok {
		line, of = number, 100
	}
	done, err = strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil || !(done >= 0 && done <= of) || of == 0 || math.IsInf(of, 1) {
		return 0, false, errNoProgress
	}
	return done / of, true, nil
}

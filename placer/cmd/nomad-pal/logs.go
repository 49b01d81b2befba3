// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

var helpLogs = help("logs [options] <job>", `
Prints the logs of all members of a job. Each line starts with its member and node, as
in "workers[3] node-7 | step 100". Without -f it prints one member after the other.
With -f it prints lines as they come, until the job ends or you press Ctrl-C, and
reports starts, restarts and ends of members on standard error.

It shows the log of a member's last allocation. Nomad keeps as much of an allocation's
logs as the task's logs block allows. The token needs read-logs.

Logs Options:

  -f                       Follow the logs.
  -n=<lines>               Start with this many lines from the end of the log of each member.
  -stderr                  Print standard error. Default: standard output.
  -rank=<rank>             Only this member: 3, or workers[3] if several groups have a 3.
  -task=<task>             Only this task. Default: all tasks.
`, examples(
	"What did the members of my job print last?", "nomad-pal logs -n 20 train",
	"Follow rank 3:", "nomad-pal logs -f -rank 3 train",
	"Errors of all ranks:", "nomad-pal logs -stderr -f train",
), generalOptions)

// logOptions are the options of nomad-pal logs that select logs and lines.
type logOptions struct {
	follow     bool
	lines      int // number of last lines of each log; negative means all lines
	kind       string
	rank, task string
}

// logs prints the logs of one job.
type logs struct {
	b       *base
	o       logOptions
	nomad   *nomad.Client
	nodes   *api.Client
	key     cluster.JobKey
	out     *lineWriter
	readers map[string]*logReader // by allocation and task
	earlier map[string]bool       // allocations of earlier tries, which are not printed
	wg      sync.WaitGroup
	stop    context.CancelCauseFunc
}

func runLogs(b *base, args []string) int {
	fs := b.only(b.flags("logs"))
	o := logOptions{kind: api.FSLogNameStdout}
	fs.BoolVar(&o.follow, "f", false, "")
	fs.IntVar(&o.lines, "n", -1, "")
	stderr := fs.Bool("stderr", false, "")
	fs.StringVar(&o.rank, "rank", "", "")
	fs.StringVar(&o.task, "task", "", "")
	rest, ok := b.parse(fs, args, 1)
	if !ok {
		return 1
	}
	if b.given("n") && o.lines < 0 {
		return b.fail(fmt.Errorf("-n %d is negative", o.lines))
	}
	if *stderr {
		o.kind = api.FSLogNameStderr
	}
	client, err := b.client()
	if err != nil {
		return b.fail(err)
	}
	nodes, err := b.nodeAPI()
	if err != nil {
		return b.fail(err)
	}
	l := &logs{b: b, o: o, nomad: client, nodes: nodes, key: keyOf(b, rest[0]), out: &lineWriter{w: b.raw()}, readers: map[string]*logReader{}, earlier: map[string]bool{}}
	print := l.print
	if o.follow {
		print = l.follow
	}
	if err := print(); err != nil {
		return b.fail(err)
	}
	return 0
}

// read returns the job and its allocations. If index is not 0, read waits up to logsLook until the
// allocations change.
func (l *logs) read(ctx context.Context, index uint64) (*api.Job, []*api.AllocationListStub, uint64, error) {
	q := (&api.QueryOptions{Namespace: l.key.Namespace, WaitIndex: index, WaitTime: logsLook}).WithContext(ctx)
	all, meta, err := l.nomad.API().Jobs().Allocations(l.key.ID, false, q)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("listing the allocations of job %q: %w", l.key.ID, nomad.Denied(err, nomad.ReadJob))
	}
	job, err := l.nomad.Job(ctx, l.key)
	if err == nil && job == nil && index == 0 {
		err = l.b.noJob(l.nomad, l.key)
	}
	if err == nil && job != nil && index == 0 {
		err = l.fits(job)
	}
	slices.SortStableFunc(all, func(a, b *api.AllocationListStub) int {
		return cmp.Or(cmp.Compare(a.TaskGroup, b.TaskGroup), cmp.Compare(rankOf(a), rankOf(b)), cmp.Compare(a.CreateIndex, b.CreateIndex))
	})
	return job, all, meta.LastIndex, err
}

// logsLook is how long one request waits for a change.
const logsLook = 10 * time.Second

// rankOf returns the index of a member in its group.
func rankOf(a *api.AllocationListStub) int { return cluster.MemberNumber(a.Name) }

// member returns the name of an allocation within its job, such as workers[3].
func member(a *api.AllocationListStub) string { return fmt.Sprintf("%s[%d]", a.TaskGroup, rankOf(a)) }

// fits returns an error if -rank or -task names a member or task that the job does not have. For a
// parameterized or periodic job, fits also returns an error, because only the job's runs have
// members.
func (l *logs) fits(job *api.Job) error {
	if job.IsParameterized() || job.IsPeriodic() {
		return fmt.Errorf("job %q is parameterized or periodic: give the id of one of its runs (%s)", l.key.ID, cmp.Or(firstOf(l.runs()), "none yet"))
	}
	var members, tasks []string
	for _, g := range job.TaskGroups {
		for i := range *g.Count {
			members = append(members, fmt.Sprintf("%s[%d]", *g.Name, i))
		}
		tasks = append(tasks, each(g.Tasks, func(t *api.Task) string { return t.Name })...)
	}
	if l.o.rank != "" && !slices.ContainsFunc(members, l.picks) {
		return fmt.Errorf("-rank: job %q has no member %s; its members: %s", l.key.ID, l.o.rank, firstOf(members))
	}
	if l.o.task != "" && !slices.Contains(tasks, l.o.task) {
		return fmt.Errorf("-task: job %q has no task %q; its tasks: %s", l.key.ID, l.o.task, firstOf(tasks))
	}
	return nil
}

// runs returns the ids of the runs of a parameterized or periodic job, the newest first.
func (l *logs) runs() []string {
	found, _, err := l.nomad.API().Jobs().List((&api.QueryOptions{Namespace: l.key.Namespace, Prefix: l.key.ID + "/"}).WithContext(l.b.ctx))
	if err != nil {
		return nil // an error counts as no runs
	}
	slices.SortFunc(found, func(a, b *api.JobListStub) int { return cmp.Compare(b.CreateIndex, a.CreateIndex) })
	return each(found, func(j *api.JobListStub) string { return j.ID })
}

func (l *logs) picks(member string) bool {
	return l.o.rank == "" || member == l.o.rank || strings.HasSuffix(member, "["+l.o.rank+"]")
}

// live reports whether an allocation can still write to its log.
func live(a *api.AllocationListStub) bool {
	return a.ClientStatus == api.AllocClientStatusPending || a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusUnknown
}

// last returns the last allocation of each member that the options select, and the members' earlier
// allocations that still run.
func (l *logs) last(all []*api.AllocationListStub) (out []*api.AllocationListStub) {
	for i, a := range all {
		later := i+1 < len(all) && all[i+1].Name == a.Name
		if l.picks(member(a)) && (!later || live(a)) {
			out = append(out, a)
		}
	}
	return out
}

// tasks returns the selected tasks of an allocation that have started.
func (l *logs) tasks(a *api.AllocationListStub) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
		if (l.o.task == "" || l.o.task == name) && !a.TaskStates[name].StartedAt.IsZero() {
			out = append(out, name)
		}
	}
	return out
}

// nothing returns the error for a job of which no member has started.
func (l *logs) nothing() error {
	return fmt.Errorf("no member of job %q has started: see %s", l.key.ID, query.ExplainCommand(l.key))
}

// silent returns the message that the logs are empty, with the command that shows the other logs.
func (l *logs) silent() string {
	if l.o.kind == api.FSLogNameStderr {
		return fmt.Sprintf("The members of job %q have written nothing to standard error. Their standard output: nomad-pal logs %s", l.key.ID, query.InNamespace(l.key.Namespace, query.ShellQuoted(l.key.ID)))
	}
	return fmt.Sprintf("The members of job %q have written nothing to standard output. Their standard error: nomad-pal logs -stderr %s", l.key.ID, query.InNamespace(l.key.Namespace, query.ShellQuoted(l.key.ID)))
}

// print prints what the logs contain now.
func (l *logs) print() error {
	_, all, _, err := l.read(l.b.ctx, 0)
	if err != nil {
		return err
	}
	var failed []error
	n := 0
	for _, a := range l.last(all) {
		for _, task := range l.tasks(a) {
			r := l.reader(a, task)
			n++
			if err := r.copyNow(l.b.ctx); err != nil {
				failed = append(failed, fmt.Errorf("reading the log of %s: %w", r.name, nomad.Denied(err, nomad.ReadLogs)))
			}
		}
	}
	if n == 0 {
		return l.nothing()
	}
	if len(failed) == 0 && !l.out.wrote && l.o.lines != 0 {
		l.b.complain(l.silent())
	}
	return errors.Join(failed...)
}

// follow prints the logs until the job ends.
func (l *logs) follow() error {
	ctx, stop := context.WithCancelCause(l.b.ctx)
	defer stop(nil)
	l.stop = stop
	index, idle := uint64(0), false
	for {
		job, all, next, err := l.read(ctx, index)
		switch {
		case l.b.ctx.Err() != nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (index == 0 || nomad.Refused(err)):
			return err
		case err != nil: // for example, while Nomad elects a leader
			pause(ctx, time.Second)
			continue
		}
		l.take(ctx, all, index == 0)
		index = next
		runs := slices.ContainsFunc(all, live)
		if !runs && (job == nil || cluster.Dead(job)) {
			l.wg.Wait()
			if len(l.readers) == 0 {
				return l.nothing()
			}
			return nil
		}
		if !runs && !idle {
			l.b.complain(fmt.Sprintf("No member of job %q runs now: see %s.", l.key.ID, query.ExplainCommand(l.key)))
		}
		idle = !runs
	}
}

// pause waits for the duration d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// take starts to follow new members, and reports which members have ended. For members that exist
// at the start, take prints the last lines, as -n requests; for later members, all lines.
func (l *logs) take(ctx context.Context, all []*api.AllocationListStub, first bool) {
	if first {
		for _, a := range all {
			l.earlier[a.ID] = true
		}
		for _, a := range l.last(all) {
			delete(l.earlier, a.ID)
		}
	}
	for _, a := range all {
		if l.earlier[a.ID] || !l.picks(member(a)) {
			continue
		}
		for _, task := range l.tasks(a) {
			r := l.readers[a.ID+task]
			if r == nil {
				r = l.reader(a, task)
				l.readers[a.ID+task] = r
				r.live, r.end = context.WithCancel(ctx)
				if !first {
					r.report("starts")
					r.all = true
				}
				l.wg.Go(func() { r.follow(ctx) })
			}
			r.look(a)
		}
	}
}

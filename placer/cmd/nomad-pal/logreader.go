// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/nomad"
)

// logReader prints the log of one task of a member.
type logReader struct {
	l     *logs
	alloc *api.Allocation
	task  string
	name  string // the member, its node and, if the member has several tasks, the task
	style style
	all   bool // print the whole log, even if -n limits the number of lines
	// live is cancelled by end when the task ends.
	live context.Context
	end  context.CancelFunc

	mu       sync.Mutex
	ended    string // how the task ended
	restarts uint64
}

// memberStyles are the styles that tell the lines of different members apart on a terminal.
var memberStyles = []style{cyan, yellow, green, magenta, blue, red}

func (l *logs) reader(a *api.AllocationListStub, task string) *logReader {
	name := member(a)
	if len(a.TaskStates) > 1 {
		name += "/" + task
	}
	return &logReader{
		l: l, alloc: &api.Allocation{ID: a.ID, NodeID: a.NodeID, Namespace: a.Namespace}, task: task,
		name: name + " " + a.NodeName, style: memberStyles[max(0, rankOf(a))%len(memberStyles)], restarts: a.TaskStates[task].Restarts,
	}
}

// report prints to standard error an event of the member, such as its start or end.
func (r *logReader) report(what string) {
	r.l.out.mu.Lock()
	defer r.l.out.mu.Unlock()
	fmt.Fprintf(r.l.b.io.err, "%s: %s\n", r.name, oneLine(what))
}

// prefix returns the text that each printed line of the member starts with.
func (r *logReader) prefix() string {
	text := quoted(r.name+" |", "")
	if r.l.b.colored() {
		text = escapes[r.style] + text + escapes[plain]
	}
	return text + " "
}

// copyNow prints what the task has written so far.
func (r *logReader) copyNow(ctx context.Context) error {
	out := &prefixed{to: r.l.out, prefix: r.prefix()}
	defer out.flush()
	from, err := r.start(ctx)
	if err == nil {
		_, err = r.copy(ctx, false, from, out)
	}
	return err
}

// follow prints what the task writes until it has ended.
func (r *logReader) follow(ctx context.Context) {
	out := &prefixed{to: r.l.out, prefix: r.prefix()}
	from, err := r.start(ctx)
	for lost := false; ctx.Err() == nil; {
		var n int64
		if err == nil {
			n, err = r.copy(r.live, r.live.Err() == nil, from, out)
			from += n
		}
		switch {
		case r.live.Err() != nil && ctx.Err() == nil: // read what the task wrote just before it ended
			_, err = r.copy(ctx, false, from, out)
			out.flush()
			if err != nil && ctx.Err() == nil {
				r.report("cannot read the end of the log: " + err.Error())
			}
			r.report(r.how())
			return
		case nomad.Refused(err):
			r.l.stop(fmt.Errorf("reading the log of %s: %w", r.name, nomad.Denied(err, nomad.ReadLogs)))
		case err != nil && !lost && n == 0:
			r.report("cannot read the log, retrying: " + err.Error())
			lost = true
		}
		if err = nil; n > 0 {
			lost = false
		}
		pause(r.live, time.Second)
	}
	out.flush()
}

func (r *logReader) how() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// look reads the task's state from Nomad's answer a, and reports restarts and the end of the task.
func (r *logReader) look(a *api.AllocationListStub) {
	s := a.TaskStates[r.task]
	r.mu.Lock()
	again := s.Restarts > r.restarts
	r.restarts = max(s.Restarts, r.restarts)
	over := r.ended == "" && (s.State == "dead" || !live(a))
	if over {
		r.ended = howEnded(a, s)
	}
	r.mu.Unlock()
	if again {
		r.report("was restarted: " + lastEvent(s, api.TaskTerminated, api.TaskRestarting))
	}
	if over {
		r.end()
	}
}

func howEnded(a *api.AllocationListStub, s *api.TaskState) string {
	switch {
	case a.ClientStatus == api.AllocClientStatusLost:
		return "was lost: " + cmp.Or(a.DesiredDescription, "Nomad gives no reason") // ClientDescription still says "Tasks are running"
	case a.DesiredStatus != api.AllocDesiredStatusRun && a.DesiredDescription != "":
		return "was stopped: " + a.DesiredDescription
	case s.Failed:
		return "failed: " + lastEvent(s, api.TaskTerminated, api.TaskDriverFailure, api.TaskSetupFailure)
	}
	return "ended: " + lastEvent(s, api.TaskTerminated, api.TaskKilled)
}

// lastEvent looks for events of the given kinds, one kind after the other. For the first kind
// found, lastEvent returns Nomad's message about the last event.
func lastEvent(s *api.TaskState, kinds ...string) string {
	for _, k := range kinds {
		for _, e := range slices.Backward(s.Events) {
			if e.Type == k && e.DisplayMessage != "" {
				return e.DisplayMessage
			}
		}
	}
	return "Nomad gives no reason"
}

// copy copies the log from the given byte offset on, and returns the number of bytes read. If
// follow is set, copy waits for more text at the end of the log until ctx ends or reading fails.
func (r *logReader) copy(ctx context.Context, follow bool, from int64, to io.Writer) (n int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := (&api.QueryOptions{Namespace: r.l.key.Namespace}).WithContext(ctx)
	frames, errs := r.l.nodes.AllocFS().Logs(r.alloc, follow, r.task, r.l.o.kind, api.OriginStart, from, ctx.Done(), q)
	if frames == nil {
		return 0, <-errs
	}
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return n, nil
			}
			written, err := to.Write(f.Data)
			if n += int64(written); err != nil {
				return n, err
			}
		case err := <-errs:
			return n, err
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

// size returns the length of the log in bytes. Only tokens with read-fs may list the log's files,
// so with other tokens, size reads the log and counts the bytes.
func (r *logReader) size(ctx context.Context) (int64, error) {
	q := (&api.QueryOptions{Namespace: r.l.key.Namespace}).WithContext(ctx)
	files, _, err := r.l.nodes.AllocFS().List(r.alloc, "alloc/logs", q)
	if err != nil {
		return r.copy(ctx, false, 0, io.Discard)
	}
	var n int64
	for _, f := range files {
		if strings.HasPrefix(f.Name, r.task+"."+r.l.o.kind+".") {
			n += f.Size
		}
	}
	return n, nil
}

// lineGuess is the assumed length of a line in bytes.
const lineGuess = 256

// start returns the offset in the log from which to print, so that the user gets the last lines
// requested with -n.
func (r *logReader) start(ctx context.Context) (int64, error) {
	if r.l.o.lines < 0 || r.all {
		return 0, nil
	}
	size, err := r.size(ctx)
	if err != nil {
		return 0, err
	}
	if r.l.o.lines == 0 {
		return size, nil
	}
	for back := int64(r.l.o.lines+1) * lineGuess; ; back *= 4 {
		from := max(0, size-back)
		var text bytes.Buffer
		if _, err := r.copy(ctx, false, from, &text); err != nil {
			return 0, err
		}
		at := lastLines(text.Bytes(), r.l.o.lines)
		if at > 0 || from == 0 {
			return from + int64(at), nil
		}
	}
}

// lastLines returns the offset at which the last n lines of text start, or 0 if it has at most n
// lines.
func lastLines(text []byte, n int) int {
	end := len(bytes.TrimSuffix(text, []byte("\n")))
	for ; n > 0 && end >= 0; n-- {
		end = bytes.LastIndexByte(text[:end], '\n')
	}
	return end + 1
}

// lineWriter is the common output of all tasks. The lock keeps the lines of different tasks apart.
type lineWriter struct {
	mu    sync.Mutex
	w     io.Writer
	wrote bool
}

// prefixed is the writer for one task, which prints each line after a prefix.
type prefixed struct {
	to     *lineWriter
	prefix string
	rest   []byte // the start of an unfinished line
}

// longestLine is the number of bytes after which an unfinished line is broken.
const longestLine = 64 << 10

// Write prints complete lines. A carriage return also ends a line, because progress bars write
// carriage returns and no line feeds.
func (m *prefixed) Write(p []byte) (int, error) {
	m.rest = append(m.rest, p...)
	var out bytes.Buffer
	for {
		i := bytes.IndexAny(m.rest, "\r\n")
		if i < 0 || m.rest[i] == '\r' && i+1 == len(m.rest) { // the next write may start with the line feed of a CR LF pair
			break
		}
		line, after := m.rest[:i], m.rest[i+1:]
		if m.rest[i] == '\r' && after[0] == '\n' {
			after = after[1:]
		}
		fmt.Fprintf(&out, "%s%s\n", m.prefix, line)
		m.rest = after
	}
	if len(m.rest) > longestLine {
		fmt.Fprintf(&out, "%s%s\n", m.prefix, m.rest)
		m.rest = nil
	}
	return len(p), m.write(out.Bytes())
}

// flush prints an unfinished last line.
func (m *prefixed) flush() {
	if len(m.rest) > 0 {
		_ = m.write(fmt.Appendf(nil, "%s%s\n", m.prefix, bytes.TrimSuffix(m.rest, []byte("\r"))))
	}
	m.rest = nil
}

func (m *prefixed) write(text []byte) error {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	m.to.wrote = m.to.wrote || len(text) > 0
	_, err := m.to.w.Write(text)
	return err
}

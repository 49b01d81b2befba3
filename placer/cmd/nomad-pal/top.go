// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/gang"
)

type topCommand struct{ base }

func (c *topCommand) Synopsis() string { return "Watch the cluster in the terminal" }

func (c *topCommand) Help() string {
	return help("top [options]", `
Shows the cluster as it is now, and goes on showing it: how many GPUs are free,
the jobs that run and wait, and each node with its GPUs. Of a GPU, # is held,
. is free, ! is unhealthy, and q is in quarantine.

Keys: tab changes between jobs and nodes, the arrows, page up and page down move,
q ends it.

Top Options:

  -every=<duration>        How often to look, 2s by default. A large cluster is
                           looked at less often: no look begins before ten times
                           as long has passed as the last one took.
`, examples("Watch my cluster:", "nomad-pal top", "On a slow line:", "nomad-pal top -every 30s"), generalOptions)
}

func (c *topCommand) Run(args []string) int {
	fs := c.flags("top")
	every := fs.Duration("every", 2*time.Second, "")
	if _, ok := c.parse(fs, args, 0); !ok {
		return 1
	}
	switch {
	case c.json || c.template != "":
		return c.fail(errors.New("-json and -t do not go with top: see nomad-pal status"))
	case *every <= 0:
		return c.fail(fmt.Errorf("-every %v is not a positive duration", *every))
	case !c.io.terminal:
		return c.fail(errors.New("top needs a terminal; nomad-pal status prints the same once"))
	}
	a, err := c.ask()
	if err != nil {
		return c.fail(err)
	}
	out := c.io.out
	if q, ok := out.(*quoting); ok {
		out = q.w // what the screen shows of others is quoted in it
	}
	m := &screen{look: func() (clusterNow, error) { return look(a) }, every: *every, colored: c.colored(), now: time.Now}
	_, err = tea.NewProgram(m, tea.WithContext(c.ctx), tea.WithInput(c.io.in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if err != nil && c.ctx.Err() == nil {
		return c.fail(err)
	}
	return a.close(0)
}

// clusterNow is what one look has found.
type clusterNow struct {
	jobs     []placer.JobStatus
	gpus     []placer.GPU
	activity placer.Activity
	note     string
	took     time.Duration
}

func look(a *answers) (s clusterNow, err error) {
	began := time.Now()
	if err = a.again(); err == nil {
		s.jobs, err = a.Jobs()
	}
	if err == nil {
		s.gpus, err = a.GPUs()
	}
	s.activity, s.note, s.took = a.activity, a.part(), time.Since(began)
	slices.SortStableFunc(s.jobs, func(x, y placer.JobStatus) int {
		const last = 1 << 30
		running := func(j placer.JobStatus) int { return map[bool]int{true: 0, false: 1}[j.Phase == gang.Running] }
		return cmp.Or(cmp.Compare(running(x), running(y)), cmp.Compare(cmp.Or(x.Position, last), cmp.Or(y.Position, last)), cmp.Compare(y.GPUs, x.GPUs), strings.Compare(x.Job, y.Job))
	})
	return s, err
}

// screen is what top shows. It changes by messages only.
type screen struct {
	look          func() (clusterNow, error)
	every         time.Duration
	colored       bool
	now           func() time.Time
	width, height int
	nodes         bool // nodes are shown, not jobs
	first         int  // line shown
	seen          bool
	is            clusterNow
	err           error
	at            time.Time
}

// Messages.
type (
	looked struct {
		clusterNow
		err error
	}
	again struct{}
)

func (m *screen) Init() tea.Cmd { return m.ask }

func (m *screen) ask() tea.Msg {
	s, err := m.look()
	return looked{s, err}
}

func (m *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case looked:
		if m.err = msg.err; msg.err == nil {
			m.is, m.seen, m.at = msg.clusterNow, true, m.now()
		}
		return m, tea.Tick(max(m.every, 10*msg.took), func(time.Time) tea.Msg { return again{} })
	case again:
		return m, m.ask
	case tea.KeyMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "tab":
			m.nodes, m.first = !m.nodes, 0
		case "down", "j":
			m.first++
		case "up", "k":
			m.first--
		case "pgdown", " ":
			m.first += m.room()
		case "pgup":
			m.first -= m.room()
		case "home":
			m.first = 0
		}
	}
	m.first = max(0, min(m.first, len(m.lines())-m.room()))
	return m, nil
}

// headLines are above the list, and one below it.
const headLines = 4

// room is how many lines of the list are shown.
func (m *screen) room() int { return max(1, m.height-headLines-1) }

func (m *screen) View() string {
	if m.width == 0 {
		return ""
	}
	all := m.lines()
	shown := all[min(m.first, len(all)):min(m.first+m.room(), len(all))]
	list := "jobs"
	if m.nodes {
		list = "nodes"
	}
	foot := fmt.Sprintf("%s %d–%d of %d   tab: %s   ↑↓: move   q: end", list, min(m.first+1, len(all)), m.first+len(shown), len(all), map[bool]string{true: "jobs", false: "nodes"}[m.nodes])
	lines := append(m.head(), shown...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, foot)
	for i, l := range lines {
		lines[i] = escaped(cut(l, m.width), m.colored)
	}
	return strings.Join(lines[:min(len(lines), max(1, m.height))], "\n")
}

// cut is as much of a line as has room; styles take none.
func cut(line string, width int) string {
	n := 0
	for i, r := range line {
		if _, ok := escapes[style(r)]; ok {
			continue
		}
		if n++; n > width {
			return line[:i] + string(rune(plain))
		}
	}
	return line
}

func (m *screen) head() []string {
	free, held, sick := 0, 0, 0
	for _, g := range m.is.gpus {
		switch {
		case !g.Healthy || g.Quarantine != nil:
			sick++
		case g.Job != "":
			held++
		case g.Available:
			free++
		}
	}
	waiting := 0
	for _, j := range m.is.jobs {
		if j.Position > 0 {
			waiting++
		}
	}
	state := ""
	switch {
	case m.err != nil:
		state = paint(red, oneLine(m.err.Error()))
	case !m.seen:
		state = "looking …"
	case m.is.activity.Idle():
		state = paint(red, oneLine(idleSentence(m.is.activity, m.now())))
	case m.is.note != "":
		state = paint(yellow, oneLine(m.is.note))
	default:
		state = "placer " + quoted(workSentence(m.is.activity, m.now()), "")
	}
	seen := ""
	if m.seen {
		seen = ", at " + m.at.Local().Format("15:04:05")
	}
	return []string{
		paint(bold, fmt.Sprintf("%s: %d held, %d free, %d unhealthy or in quarantine; %d jobs wait%s", gpus(len(m.is.gpus)), held, free, sick, waiting, seen)),
		state, "", paint(bold, m.title()),
	}
}

func (m *screen) title() string {
	if m.nodes {
		return fmt.Sprintf("%-24s %s", "Node", "GPUs (# held, . free, ! unhealthy, q in quarantine)")
	}
	if m.width < wide {
		return m.jobLine("Job", "", "Phase", "GPUs", "", "", "Start, and why not now")
	}
	return m.jobLine("Job", "Namespace", "Phase", "GPUs", "Class", "Starts", "Why")
}

// wide is from which width on namespace, class and start have columns of their own.
const wide = 120

func (m *screen) jobLine(job, namespace, phase, gpus, class, starts, why string) string {
	line := fmt.Sprintf("%-20s %-13s %5s ", cut(job, 20), phase, gpus)
	if m.width >= wide {
		return line + fmt.Sprintf("%-5s %-12s %-20s %s", class, cut(namespace, 12), cut(starts, 20), why)
	}
	if starts != "" && why != "" {
		starts += ": "
	}
	return line + starts + why
}

// lines are all of the list.
func (m *screen) lines() (out []string) {
	if m.nodes {
		return m.nodeLines()
	}
	for _, j := range m.is.jobs {
		starts, p := "", phase(j.Phase)
		if !j.StartTo.IsZero() {
			starts = soon(j.StartFrom, j.StartTo, m.now())
		}
		state := fmt.Sprintf("%-13s", p.text)
		if p.style != plain {
			state = paint(p.style, state)
		}
		out = append(out, m.jobLine(quoted(j.Job, ""), quoted(j.Namespace, ""), state, fmt.Sprint(j.GPUs), j.Class, starts, quoted(trimReason(strings.TrimPrefix(oneLine(j.Reason), "waits: ")), "")))
	}
	return out
}

// nodeLines draws each node's GPUs: they stand together in the list.
func (m *screen) nodeLines() (out []string) {
	var line strings.Builder
	node := ""
	flush := func() {
		if line.Len() > 0 {
			out = append(out, line.String())
		}
		line.Reset()
	}
	for _, g := range m.is.gpus {
		if g.Node != node || line.Len() == 0 {
			flush()
			node = g.Node
			fmt.Fprintf(&line, "%-24s ", cut(quoted(node, ""), 24))
		}
		switch {
		case !g.Healthy:
			line.WriteString(paint(red, "!"))
		case g.Quarantine != nil:
			line.WriteString(paint(red, "q"))
		case g.Job != "":
			line.WriteString(paint(green, "#"))
		default:
			line.WriteString(".")
		}
	}
	flush()
	return out
}

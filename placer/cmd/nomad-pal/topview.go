// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/model"
)

// topView is the screen of top. Only the application's own goroutine may call its methods; other
// goroutines call only [topView.on].
type topView struct {
	app             *tview.Application
	pages           *tview.Pages
	head, why, foot *tview.TextView
	whole           *tview.TextView // shows a job's whole explanation, or the help
	helping         bool
	filter          *tview.InputField
	hardware, jobs  *topList
	colored         bool
	// wants holds the latest request for an explanation, for the goroutine that reads the cluster.
	wants chan topWant
	// useOf lists the nodes for which top shows the current load of the GPUs; nil means no node.
	// Sending to again requests an immediate refresh.
	useOf atomic.Pointer[[]string]
	again chan struct{}

	state topState
	level topLevel
	// rack and node restrict the nodes or GPUs that the lower levels list; "" means no restriction.
	rack, node string
	class      pal.AppClass
	order      topOrder
	match      string
	// saidOf is the job whose headline is on the screen.
	saidOf cluster.JobKey
}

// topLevel is what the upper list contains: racks, nodes, GPUs, or the load of GPUs.
type topLevel int

const (
	topRacks topLevel = iota
	topNodes
	topGPUs
	topUse // the current load of GPUs
)

// topOrder is the order in which jobs are sorted.
type topOrder int

const (
	topByPosition topOrder = iota
	topByGPUs
	topByAge
	topByName
	topOrders // the number of orders
)

const topKeys = "? help  q quit  Tab list  Enter open  Esc back  / filter  s sort  v view  u use"

// topHelp is the part of the command's help that the key "?" shows.
const topHelp = `After a GPU's class, * means allocated to a job, ! unhealthy, q quarantined, and
~ unavailable (see the view of GPUs). A GPU that is not measured has . for its class. The GPUs of the
selected job are shown in reverse video. ↓ marks the column by which jobs are sorted.
The current load of GPUs is read from at most 64 nodes: on a larger cluster, open a
rack or a node first. The busiest GPUs come first.

Keys:

  ?, h           this help
  q, Ctrl-C      quit
  Tab            switch between the two lists
  arrows, j, k   move; also PgUp, PgDn, g and G
  Enter          open: the rack, the node, or the whole explanation of a job
  Esc            back; removes the filter
  /              show only what has this text in its name, state, job or reason
  s              sort jobs by position, GPUs, time of submission or name
  v              show racks, nodes or GPUs
  u              the current load of the selected rack or node, or of all GPUs
  c              show the variability classes of the next application class
`

func newTopView(colored bool, screen tcell.Screen) *topView {
	tview.Styles = tview.Theme{} // the terminal's own colours
	v := &topView{
		app: tview.NewApplication().SetScreen(screen), pages: tview.NewPages(), colored: colored,
		head: tview.NewTextView(), why: tview.NewTextView(), foot: tview.NewTextView().SetText(topKeys), whole: tview.NewTextView(),
		filter: tview.NewInputField().SetLabel("Filter: "), wants: make(chan topWant, 1), again: make(chan struct{}, 1), class: pal.ClassA, level: topNodes,
	}
	v.head.SetText("Asking …")
	v.head.SetWrap(false)
	v.why.SetWordWrap(true)
	v.hardware, v.jobs = newTopList(colored), newTopList(colored)
	v.jobs.SetSelectionChangedFunc(func(int, int) { v.ask(false) })
	v.hardware.SetSelectedFunc(func(int, int) { v.open() })
	v.jobs.SetSelectedFunc(func(int, int) { v.ask(true) })
	v.filter.SetChangedFunc(func(text string) { v.match = strings.ToLower(text); v.arrange() })
	v.filter.SetDoneFunc(func(key tcell.Key) {
		if key == tcell.KeyEscape {
			v.filter.SetText("")
		}
		v.pages.HidePage("filter")
		v.focus(v.jobs)
	})
	v.filter.SetFieldStyle(tcell.StyleDefault.Underline(true))
	lists := tview.NewFlex().SetDirection(tview.FlexRow).
		AddItem(v.head, 3, 0, false).AddItem(v.hardware, 0, 1, false).AddItem(v.jobs, 0, 1, true).
		AddItem(v.why, 4, 0, false).AddItem(v.foot, 1, 0, false)
	bottom := tview.NewFlex().SetDirection(tview.FlexRow).AddItem(nil, 0, 1, false).AddItem(v.filter, 1, 0, true)
	v.pages.AddPage("lists", lists, true, true).AddPage("filter", bottom, true, false).AddPage("whole", v.whole, true, false)
	v.app.SetRoot(v.pages, true).SetInputCapture(v.key)
	v.focus(v.jobs)
	v.arrange()
	return v
}

// on runs f on the application's goroutine, and then redraws the screen.
func (v *topView) on(ctx context.Context, f func()) {
	done := make(chan struct{})
	go func() { // QueueUpdateDraw never returns after the application has ended
		v.app.QueueUpdateDraw(f)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (v *topView) focus(to *topList) {
	for _, l := range []*topList{v.hardware, v.jobs} {
		l.focused(l == to)
	}
	v.app.SetFocus(to)
}

// key handles a key press. If key returns an event, the focused part of the screen handles the
// event.
func (v *topView) key(e *tcell.EventKey) *tcell.EventKey {
	front, _ := v.pages.GetFrontPage()
	if e.Key() == tcell.KeyCtrlC || e.Rune() == 'q' && front != "filter" {
		v.app.Stop()
		return nil
	}
	switch {
	case front == "filter":
		return e
	case front == "whole":
		if e.Key() == tcell.KeyEscape || e.Key() == tcell.KeyEnter {
			v.helping = false
			v.pages.HidePage("whole")
			v.focus(v.jobs)
			return nil
		}
		return e
	case e.Key() == tcell.KeyTab, e.Key() == tcell.KeyBacktab:
		if v.app.GetFocus() == v.hardware {
			v.focus(v.jobs)
		} else {
			v.focus(v.hardware)
		}
	case e.Key() == tcell.KeyEscape:
		v.back()
	case e.Rune() == '?', e.Rune() == 'h':
		v.whole.SetText(topHelp + "\nEsc: back").ScrollToBeginning()
		v.helping = true
		v.pages.ShowPage("whole")
		v.app.SetFocus(v.whole)
	case e.Rune() == '/':
		v.filter.SetText(v.match)
		v.pages.ShowPage("filter")
		v.app.SetFocus(v.filter)
	case e.Rune() == 's':
		v.order = (v.order + 1) % topOrders
	case e.Rune() == 'v':
		v.show((v.level+1)%topUse, "", "")
	case e.Rune() == 'u':
		v.show(topUse, v.rack, v.node)
	case e.Rune() == 'c':
		all := pal.AppClasses()
		v.class = all[(slices.Index(all[:], v.class)+1)%len(all)]
	default:
		return e
	}
	v.arrange()
	return nil
}

// open shows the contents of the selected rack or node.
func (v *topView) open() {
	key := v.hardware.selected()
	switch {
	case key == "":
		return
	case v.level == topRacks:
		v.show(topNodes, key, "")
	case v.level == topNodes:
		v.show(topGPUs, v.rack, key)
	}
	v.arrange()
}

// show switches the upper list to another level, and selects its first line.
func (v *topView) show(level topLevel, rack, node string) {
	v.level, v.rack, v.node = level, rack, node
	v.useOf.Store(nil)
	v.hardware.Select(1, 0)
}

// back removes the filter or, without a filter, goes up one level.
func (v *topView) back() {
	switch {
	case v.match != "":
		v.match = ""
	case v.node != "":
		v.show(topNodes, v.rack, "")
	case v.rack != "":
		v.show(topRacks, "", "")
	}
}

// update shows a new state of the cluster. If reading the state failed, the previous state stays
// visible.
func (v *topView) update(s topState) {
	if s.err != nil {
		v.state.err = s.err
	} else {
		v.state = s
	}
	v.arrange()
	v.ask(false)
}

// ask requests the selected job's whole explanation if whole is set, otherwise the headline.
func (v *topView) ask(whole bool) {
	key, ok := v.job()
	if !ok {
		v.why.SetText("")
		return
	}
	if key != v.saidOf {
		v.why.SetText("…")
	}
	if front, _ := v.pages.GetFrontPage(); front == "whole" && !v.helping {
		whole = true
	} else if whole {
		v.whole.SetText("Asking …").ScrollToBeginning()
		v.pages.ShowPage("whole")
		v.app.SetFocus(v.whole)
	}
	select { // drop an outdated request from the channel
	case <-v.wants:
	default:
	}
	v.wants <- topWant{key, whole}
	v.hardware.mark = key.String()
}

func (v *topView) job() (cluster.JobKey, bool) {
	namespace, id, ok := strings.Cut(v.jobs.selected(), "/")
	return cluster.JobKey{Namespace: namespace, ID: id}, ok
}

// explained shows the explanation that w requested.
func (v *topView) explained(w topWant, text string) {
	if w.whole && !v.helping {
		v.whole.SetText(text + "\n\nEsc: back")
		return
	}
	if key, ok := v.job(); ok && key == w.job {
		v.saidOf = key
		v.why.SetText(text)
	}
}

// arrange fills the header and both lists from the current state.
func (v *topView) arrange() {
	v.head.SetText(v.title())
	style := tcell.StyleDefault.Bold(v.state.err != nil || v.state.activity.Idle())
	if v.colored && (v.state.err != nil || v.state.activity.Idle()) {
		style = style.Foreground(tcell.ColorRed)
	}
	v.head.SetTextStyle(style)
	v.arrangeHardware()
	v.arrangeJobs()
}

// title returns the three lines at the top.
func (v *topView) title() string {
	s := v.state
	if s.at.IsZero() {
		if s.err != nil {
			return "No answer: " + quoted(oneLine(s.err.Error()), "")
		}
		return "Asking …"
	}
	first := s.at.Format(time.TimeOnly) + "  " + s.from
	switch {
	case s.err != nil:
		first = fmt.Sprintf("NO ANSWER, as of %s: %s", s.at.Format(time.TimeOnly), oneLine(s.err.Error()))
	case s.activity.Idle():
		first = s.at.Format(time.TimeOnly) + "  " + oneLine(idleSentence(s.activity, time.Now()))
	}
	second := fmt.Sprintf("%s: %s.", pal.CountGPUs(s.counts.GPUs), s.counts)
	third := reason.Counted(v.running(), "job has", "jobs have") + " GPUs. " + queueSummary(v.withoutGPUs())
	if v.match != "" {
		third = "Filter: " + v.match + ". " + third
	}
	return quoted(first, "") + "\n" + second + "\n" + quoted(third, "")
}

func (v *topView) running() (n int) {
	for _, j := range v.state.jobs {
		if topRank(j) == 1 {
			n++
		}
	}
	return n
}

func (v *topView) withoutGPUs() []model.JobStatus {
	have := func(j model.JobStatus) bool { return !slices.Contains(queueStates, j.State) }
	return slices.DeleteFunc(slices.Clone(v.state.jobs), have)
}

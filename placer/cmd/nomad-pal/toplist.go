// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/query"
)

// topList is a list on the screen of top: of jobs, or of racks, nodes or GPUs.
type topList struct {
	*tview.Table
	lines *topLines
	// mark is the job whose GPUs are shown in reverse video.
	mark string
}

// topLines holds the lines of a list, and renders only visible lines.
type topLines struct {
	tview.TableContentReadOnly
	colored, focused bool
	heads            []string
	keys             []string
	line             func(i int) []topCell
}

type topCell struct {
	text  string
	style style // see text.go
	right bool
	// tagged reports whether the text contains tview's colour tags. The rest of a tagged text is
	// already escaped.
	tagged bool
}

func newTopList(colored bool) *topList {
	l := &topList{Table: tview.NewTable(), lines: &topLines{colored: colored}}
	l.SetContent(l.lines).SetFixed(1, 0).SetSelectable(true, false)
	return l
}

func (l *topLines) GetRowCount() int    { return len(l.keys) + 1 }
func (l *topLines) GetColumnCount() int { return len(l.heads) }

func (l *topLines) GetCell(row, column int) *tview.TableCell {
	if row == 0 {
		return tview.NewTableCell(tview.Escape(l.heads[column])).SetSelectable(false).SetStyle(tcell.StyleDefault.Bold(l.focused).Underline(true))
	}
	c := l.line(row - 1)[column]
	if !c.tagged {
		c.text = tview.Escape(quoted(c.text, ""))
	}
	cell := tview.NewTableCell(c.text).SetStyle(l.styled(c.style))
	if c.right {
		cell.SetAlign(tview.AlignRight)
	}
	if column == len(l.heads)-1 {
		cell.SetExpansion(1)
	} else {
		cell.SetMaxWidth(28)
	}
	return cell
}

func (l *topLines) styled(s style) tcell.Style {
	colors := map[style]tcell.Color{red: tcell.ColorRed, green: tcell.ColorGreen, yellow: tcell.ColorYellow}
	out := tcell.StyleDefault.Bold(s == bold || s == red)
	if color, ok := colors[s]; ok && l.colored {
		out = out.Foreground(color)
	}
	return out
}

func (l *topList) focused(is bool) {
	l.lines.focused = is
	l.SetSelectedStyle(tcell.StyleDefault.Reverse(is).Bold(true))
}

// selected returns the key of the selected line, or "" if none is selected.
func (l *topList) selected() string {
	if row, _ := l.GetSelection(); row > 0 && row <= len(l.lines.keys) {
		return l.lines.keys[row-1]
	}
	return ""
}

// fill replaces the lines. The selected line stays selected if it still exists.
func (l *topList) fill(heads, keys []string, line func(i int) []topCell) {
	was := l.selected()
	row, _ := l.GetSelection()
	l.lines.heads, l.lines.keys, l.lines.line = heads, keys, line
	if at := slices.Index(keys, was); at >= 0 && was != "" {
		row = at + 1
	}
	if to := min(max(row, 1), len(keys)); to > 0 {
		l.Select(to, 0)
	}
}

// matches reports whether one of the texts contains the filter.
func (v *topView) matches(texts ...string) bool {
	return v.match == "" || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), v.match) })
}

// topRank returns the rank of a job in the list: 0 for waiting jobs, 1 for running and starting
// jobs, and 2 for jobs that cannot start unless somebody changes or resubmits them.
func topRank(j model.JobStatus) int {
	switch {
	case j.State == gang.Rejected || j.State == gang.Unschedulable || j.State == gang.Failed:
		return 2
	case slices.Contains(queueStates, j.State):
		return 0
	}
	return 1
}

func (v *topView) arrangeJobs() {
	var jobs []model.JobStatus
	several := false
	for _, j := range v.state.jobs {
		if v.matches(j.Job, j.Namespace, string(j.State), j.Reason.String(), j.Class) {
			jobs = append(jobs, j)
			several = several || j.Namespace != jobs[0].Namespace
		}
	}
	byRank := func(a, b model.JobStatus) int {
		return cmp.Or(cmp.Compare(topRank(a), topRank(b)), byPosition(a, b), strings.Compare(a.Job, b.Job))
	}
	slices.SortStableFunc(jobs, func(a, b model.JobStatus) int {
		switch v.order {
		case topByGPUs:
			return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), byRank(a, b))
		case topByAge:
			return cmp.Or(a.Submitted.Compare(b.Submitted), byRank(a, b))
		case topByName:
			return cmp.Or(strings.Compare(a.Job, b.Job), strings.Compare(a.Namespace, b.Namespace))
		}
		return byRank(a, b)
	})
	keys := each(jobs, func(j model.JobStatus) string { return j.Namespace + "/" + j.Job })
	heads := []string{"#", "Job", "State", "GPUs", "Class", "Submitted", "Expected start", "Reason"}
	heads[[...]int{0, 3, 5, 1}[v.order]] += "↓"
	if several {
		heads = slices.Insert(heads, 2, "Namespace")
	}
	now := v.state.at
	v.jobs.fill(heads, keys, func(i int) []topCell {
		j := jobs[i]
		start := ""
		if topRank(j) == 0 {
			start = query.Soon(j.StartFrom, j.StartTo, now)
		}
		style := map[int]style{0: yellow, 1: green, 2: red}[topRank(j)]
		cells := []topCell{
			{text: unlessZero(j.Position), right: true}, {text: j.Job, style: bold}, {text: string(j.State), style: style}, {text: j.Size(), right: true},
			{text: j.Class}, {text: query.Ago(j.Submitted, now), right: true}, {text: start, right: true}, {text: j.Reason.String()},
		}
		if several {
			cells = slices.Insert(cells, 2, topCell{text: j.Namespace})
		}
		return cells
	})
}

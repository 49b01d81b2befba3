// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// writeTable prints a report as a table.
func writeTable(w io.Writer, r Report) error {
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\tModel\tClass\tTime\t± 95 %\tRate\tOf peak\tLimited by\tWindows")
	for _, res := range r.Results {
		for _, a := range res.Apps {
			rate, share := a.RateText()
			note := ""
			if a.Slow {
				note = "  SLOW"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%.3f ms\t%.2f %%\t%s\t%s\t%s\t%d of %d%s\n", res.GPU, res.Model, a.App, a.Ms, 100*a.CI,
				rate, share, a.LimitedBy, len(kept(a.Windows)), len(a.Windows), note)
		}
		if len(res.Apps) == 0 {
			fmt.Fprintf(tw, "%s\t%s\t-\tnot measured\n", res.GPU, res.Model)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		for _, text := range res.Warnings {
			fmt.Fprintf(w, "%s: %s\n", res.GPU, text)
		}
		if res.Partial {
			fmt.Fprintf(w, "%s: partial: %s\n", res.GPU, res.Problem)
		}
	}
	return nil
}

// RateText returns a class's rate, and its share of the hardware's peak, for display.
func (a App) RateText() (rate, share string) {
	rate, share = "-", "-"
	if a.Rate > 0 {
		rate = fmt.Sprintf("%.4g %s", a.Rate, a.Unit)
	}
	if a.Share > 0 {
		share = fmt.Sprintf("%.0f %%", 100*a.Share)
	}
	return rate, share
}

// board shows the progress of sessions: on a terminal as one changing line, otherwise as one line
// for each new step.
type board struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	doing map[string]Progress
	order []string
	width int // width of the line shown
}

func newBoard(w io.Writer, terminal bool) *board {
	return &board{w: w, terminal: terminal, doing: map[string]Progress{}}
}

// show displays a session's progress.
func (b *board) show(p Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.doing[p.GPU]
	if !known {
		b.order = append(b.order, p.GPU)
	}
	b.doing[p.GPU] = p
	if !b.terminal {
		if last.Doing != p.Doing {
			fmt.Fprintf(b.w, "%s: %s (%s of at most %s)\n", p.GPU, p.Doing, p.Done.Round(time.Second), p.Limit)
		}
		return
	}
	line := b.line()
	fmt.Fprintf(b.w, "\r%-*s", b.width, line)
	b.width = len([]rune(line))
}

// line returns the progress bar of the session with the most time left, and the current step of
// each GPU.
func (b *board) line() string {
	var done, limit time.Duration
	var texts []string
	for _, id := range b.order {
		p := b.doing[id]
		if limit == 0 || p.Limit-p.Done > limit-done {
			done, limit = p.Done, p.Limit
		}
		short := id
		if len(short) > 12 {
			short = short[:12]
		}
		texts = append(texts, short+" "+p.Doing)
	}
	const width = 24
	full := 0
	if limit > 0 {
		full = int(min(width, width*done/limit))
	}
	line := fmt.Sprintf("[%s%s] %s  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), done.Round(time.Second), strings.Join(texts, ", "))
	if r := []rune(line); len(r) > 118 {
		line = string(r[:117]) + "…"
	}
	return line
}

// end ends the line.
func (b *board) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terminal && b.width > 0 {
		fmt.Fprintln(b.w)
	}
}

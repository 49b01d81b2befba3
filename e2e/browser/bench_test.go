// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
)

// TestPageFigures is make page-bench: it measures the page with 10,000 nodes of 8
// GPUs and writes the figures into the page that PAGE_REPORT names. No figure makes it fail, because
// times depend on the machine.
func TestPageFigures(t *testing.T) {
	report := os.Getenv("PAGE_REPORT")
	if report == "" {
		t.Skip("skipped: takes minutes (make page-bench)")
	}
	const nodes, tabs, runs = 10_000, 10, 5
	browser := chromium(t)
	w := start(t, nodes, nil)
	busy(t, w, 40)
	time.Sleep(30 * time.Second)
	idle := w.memory(t, "VmRSS")
	first := open(t, browser, w.url, "")
	first.drawn()
	cold := is[float64](first, `performance.getEntriesByName("map drawn")[0].startTime`)
	var draws, blocks, tasks []float64
	bytes, elements := 0, 0
	for range runs {
		p := open(t, browser, w.url, "#/nothing")
		p.run(chromedp.Navigate("about:blank"))
		p.received()
		tasks = append(tasks, p.longestTask(func() { p.load(""); p.drawn() }))
		draws = append(draws, is[float64](p, `performance.getEntriesByName("map drawn")[0].startTime`))
		blocks = append(blocks, is[float64](p, `Math.max(0, ...long)`))
		bytes, elements = p.received(), is[int](p, `document.querySelectorAll("*").length`)
		p.run(chromedp.Navigate("about:blank"))
	}
	for range tabs - 1 {
		open(t, browser, w.url, "").drawn()
	}
	first.received()
	time.Sleep(time.Minute)
	rest := first.received()
	rack := first
	rack.goTo("#/rack/dc1/rack-007")
	rack.shows("gpu-00230")
	blocks = append(blocks, is[float64](first, `Math.max(0, ...long)`))
	slices.Sort(draws)
	var b strings.Builder
	row := func(what, wanted, format string, is ...any) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", what, wanted, fmt.Sprintf(format, is...))
	}
	row("first draw, median of 5 (slowest)", "2 s", "%.1f s (%.1f s)", draws[runs/2]/1000, draws[runs-1]/1000)
	row("first draw after the agent's start", "", "%.1f s", cold/1000)
	slices.Sort(blocks)
	row("longest block of the page's main thread, median of 6 loads (worst)", "100 ms", "%.0f ms (%.0f ms)", blocks[len(blocks)/2], slices.Max(blocks))
	row("longest task of the main thread, in processor time", "100 ms", "%.0f ms", slices.Max(tasks))
	row("received for the first draw", "", "%d kB", bytes/1000)
	row("received in a minute without changes", "200 kB", "%.1f kB", float64(rest)/1000)
	row("elements of the page with the map", "", "%d", elements)
	row("agent's memory half a minute after a burst of jobs, without an open page", "", "%d MB", idle)
	row(fmt.Sprintf("agent's memory with %d pages open, at most", tabs), "600 MB", "%d MB", w.memory(t, "VmHWM"))
	old, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)(\|---\|---\|---\|\n).*?(\n\n|$)`)
	said := table.ReplaceAllString(string(old), "${1}"+strings.TrimSpace(b.String())+"${2}")
	said = regexp.MustCompile(`Measured on [0-9-]+`).ReplaceAllString(said, "Measured on "+time.Now().Format(time.DateOnly))
	if err := os.WriteFile(report, []byte(said), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}

// longestTask is the processor time, in ms, of the longest task of the page's main thread while do
// runs. Unlike the page's own "longtask" entries, it excludes other work on the machine.
func (p *tab) longestTask(do func()) float64 {
	p.t.Helper()
	type event struct {
		Name, Cat string
		Pid, Tid  int
		Ts, Dur   float64 // µs of wall clock time
		Tdur      float64 // µs of processor time
		Args      struct {
			Name string
			Data struct{ FunctionName, URL string }
		}
	}
	var events []event
	var task event
	done := make(chan struct{})
	chromedp.ListenTarget(p.ctx, func(e any) {
		switch e := e.(type) {
		case *tracing.EventDataCollected:
			for _, text := range e.Value {
				var one event
				if err := json.Unmarshal(text, &one); err == nil {
					events = append(events, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	})
	p.run(tracing.Start().WithTransferMode(tracing.TransferModeReportEvents).WithTraceConfig(&tracing.TraceConfig{IncludedCategories: []string{"toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"}}))
	do()
	p.run(tracing.End())
	<-done
	longest, tasks, main := 0.0, 0, map[[2]int]bool{}
	for _, e := range events {
		if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			main[[2]int{e.Pid, e.Tid}] = true
		}
	}
	for _, e := range events {
		if main[[2]int{e.Pid, e.Tid}] && strings.HasSuffix(e.Name, "RunTask") {
			if tasks++; e.Tdur/1000 > longest {
				longest, task = e.Tdur/1000, e
			}
		}
	}
	for _, e := range events { // what the task does, for those who look for the cause
		if e.Pid == task.Pid && e.Tid == task.Tid && e.Ts > task.Ts && e.Ts < task.Ts+task.Dur && e.Tdur/1000 > longest/8 {
			p.t.Logf("task of %.0f ms: %s %s %.0f ms", longest, e.Name, e.Args.Data.FunctionName+" "+path.Base(e.Args.Data.URL), e.Tdur/1000)
		}
	}
	if tasks == 0 {
		p.t.Fatalf("no task among %d events", len(events))
	}
	return longest
}

// memory is a field of the agent's /proc/<pid>/status, in MB.
func (w *world) memory(t *testing.T, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	var kB int
	if _, err := fmt.Sscanf(regexp.MustCompile(field+`:.*`).FindString(string(text)), field+": %d", &kB); err != nil {
		t.Fatal(err)
	}
	return kB / 1000
}

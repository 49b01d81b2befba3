// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The last run's outcome stands between these lines of the page.
const partitionsFrom, partitionsTo = "<!-- written by make partitions -->\n", "<!-- end of what make partitions writes -->\n"

// report writes the outcome of the run into the page that PARTITIONS_REPORT names, even if the run
// failed.
func (p *partitions) report() {
	p.t.Helper()
	text := p.summary(time.Now())
	p.note("%s", text)
	path := os.Getenv("PARTITIONS_REPORT")
	if path == "" {
		return
	}
	page, err := os.ReadFile(path)
	if err == nil {
		var out string
		if out, err = replaceBetween(string(page), partitionsFrom, partitionsTo, text); err == nil {
			err = os.WriteFile(path, []byte(out), 0o644)
		}
		err = cmp.Or(err, os.WriteFile(filepath.Join(filepath.Dir(path), "partitions.csv"), []byte(p.counts()), 0o644))
	}
	if err != nil {
		p.t.Errorf("write the report: %v", err)
	}
}

func replaceBetween(page, from, to, text string) (string, error) {
	before, rest, found := strings.Cut(page, from)
	_, after, foundTo := strings.Cut(rest, to)
	if !found || !foundTo {
		return "", fmt.Errorf("the page lacks the lines %q and %q", strings.TrimSpace(from), strings.TrimSpace(to))
	}
	return before + from + text + to + after, nil
}

// summary is the part of the page that a run writes.
func (p *partitions) summary(now time.Time) string {
	var b strings.Builder
	begun := p.planned - p.faultsToCome - p.left
	jobs, settled := p.jobs-p.jobsToCome, slices.Sorted(slices.Values(p.settles))
	version, _ := p.pal("version")
	fmt.Fprintf(&b, "\n| the last run | |\n|---|---|\n| date | %s UTC, %.0f minutes |\n| seed | %d |\n| version | %s |\n| machine | %s |\n",
		p.began.UTC().Format("2006-01-02 15:04"), now.Sub(p.began).Minutes(), p.seed, strings.TrimSpace(strings.SplitN(version, "\n", 2)[0]), machineOfRun())
	fmt.Fprintf(&b, "| jobs | %d |\n| faults | %d in %d rounds |\n", jobs, begun, len(settled))
	if n := len(settled); n > 0 {
		fmt.Fprintf(&b, "| settled after a round | median %.0f s, longest %.0f s |\n", settled[n/2].Seconds(), settled[n-1].Seconds())
	}
	fmt.Fprintf(&b, "| longest time for which a gang was incomplete | %.0f s |\n", p.observer.longest.Seconds())
	wrongs := p.observer.wrongs()
	result := "passed"
	if len(wrongs) > 0 || p.t.Failed() {
		result = "**failed**"
	}
	fmt.Fprintf(&b, "| result | %s |\n\n", result)
	if len(wrongs) > 0 {
		b.WriteString("Violations:\n\n")
		for _, w := range wrongs {
			fmt.Fprintf(&b, "* %s\n", cmp.Or(strings.ReplaceAll(w, "\n", " "), "?"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// counts has a line of CSV for each kind of fault, and for each kind of job and how it ended.
func (p *partitions) counts() string {
	var b strings.Builder
	b.WriteString("what,kind,times\n")
	for _, k := range partitionKinds {
		fmt.Fprintf(&b, "fault,%q,%d\n", k.kind, p.faults[k.kind])
	}
	for _, k := range slices.Sorted(maps.Keys(p.ended)) {
		fmt.Fprintf(&b, "job,%q,%d\n", k, p.ended[k])
	}
	return b.String()
}

// machineOfRun is the processors and their load at the end.
func machineOfRun() string {
	model := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	if _, after, found := strings.Cut(string(info), "model name\t: "); found {
		model, _, _ = strings.Cut(after, "\n")
	}
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d × %s, load %s at the end", runtime.NumCPU(), model, first)
}

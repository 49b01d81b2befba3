// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Page formats a record for people, in Markdown. Disagreements come first.
func Page(r Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: nomad-device-pal on hardware\n\n", cmp.Or(r.Node, "-"))
	fmt.Fprintf(&b, "Version %s, %s, %.0f s of a budget of %.0f s. Driver %s, %d CPUs.\n", r.Version, r.Started.Format("2006-01-02 15:04 UTC"), r.Seconds,
		r.BudgetSeconds, cmp.Or(r.Driver, "-"), r.System.CPUs)
	if r.Interrupted {
		b.WriteString("Somebody ended the run early. The results so far are complete.\n")
	}
	if r.Quick {
		b.WriteString("A quick run: it shows that everything runs; its figures are not reliable.\n")
	}
	byModel := map[string]int{}
	var models []string
	for _, d := range r.GPUs {
		if byModel[d.Model] == 0 {
			models = append(models, d.Model)
		}
		byModel[d.Model]++
	}
	for _, m := range models {
		fmt.Fprintf(&b, "%d × %s.\n", byModel[m], cmp.Or(m, "-"))
	}
	for _, d := range r.GPUs {
		if why := r.InUse[d.ID]; why != "" {
			fmt.Fprintf(&b, "%s: %s (%s).\n", map[bool]string{true: "In use, but measured anyway if possible", false: "Left alone"}[r.Forced], d.ID, why)
		}
	}
	r.claims(&b)
	r.kernels(&b)
	r.sessions(&b)
	r.soak(&b)
	r.rest(&b)
	return b.String()
}

// claims writes the table of what the docs claim.
func (r Record) claims(b *strings.Builder) {
	count := map[Verdict]int{}
	for _, c := range r.Claims {
		count[c.Verdict]++
	}
	fmt.Fprintf(b, "\n## What the docs claim\n\n%d agree, %d disagree, %d were not seen.\n\n", count[Agrees], count[Disagrees], count[Unseen])
	head(b, "claim", "here", "found")
	for _, want := range []Verdict{Disagrees, Agrees, Unseen} {
		for _, c := range r.Claims {
			if c.Verdict == want {
				row(b, c.Text, string(c.Verdict), cmp.Or(c.Found, "-"))
			}
		}
	}
}

func (r Record) kernels(b *strings.Builder) {
	if len(r.Kernels) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Kernels\n\nThe last good run of each kernel; spread is the standard deviation of the good runs.\n\n")
	head(b, "GPU", "kernel", "good runs", "rate", "of peak", "power", "SM clock", "limited by", "compiled", "spread", "results", "last problem")
	for _, k := range r.Kernels {
		k.row(b)
	}
}

func (k KernelRuns) row(b *strings.Builder) {
	good, sums, problem := 0, map[string]bool{}, "-"
	var last KernelRun
	for _, run := range k.Runs {
		if run.Problem != "" {
			problem = run.Problem
			continue
		}
		good++
		sums[run.Sum] = true
		last = run
	}
	count := fmt.Sprintf("%d of %d", good, len(k.Runs))
	if good == 0 {
		row(b, short(k.GPU), k.Kernel, count, "-", "-", "-", "-", "-", "-", "-", "-", problem)
		return
	}
	spread := "-"
	if s, ok := k.spread(); ok {
		spread = fmt.Sprintf("%.2f %%", 100*s)
	}
	row(b, short(k.GPU), k.Kernel, count, fmt.Sprintf("%.4g %s", last.Rate, last.Unit), fmt.Sprintf("%.0f %%", 100*last.Share), unit(last.PowerW, "W"),
		unit(last.ClockMHz, "MHz"), string(last.LimitedBy), fmt.Sprintf("%.2f s", last.CompileSeconds), spread, fmt.Sprint(len(sums)), problem)
}

func (r Record) sessions(b *strings.Builder) {
	if len(r.Session) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## One measurement, all GPUs at once\n\n")
	head(b, "GPU", "class", "kernel", "time", "± 95 %", "rate", "of peak", "limited by", "windows")
	for _, s := range r.Session {
		for _, a := range s.Apps {
			rate, share := a.RateText()
			row(b, short(s.GPU), string(a.App), a.Kernel, fmt.Sprintf("%.2f ms", a.Ms), fmt.Sprintf("%.2f %%", 100*a.CI), rate, share, string(a.LimitedBy), fmt.Sprint(len(a.Windows)))
		}
	}
	for _, s := range r.Session {
		for _, w := range s.Warnings {
			fmt.Fprintf(b, "\n%s: %s\n", short(s.GPU), w)
		}
		if s.Partial {
			fmt.Fprintf(b, "\n%s: partial: %s\n", short(s.GPU), s.Problem)
		}
	}
}

// soakRows is the approximate number of points of a curve that the page shows.
const soakRows = 12

func (r Record) soak(b *strings.Builder) {
	if len(r.Soak) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## The first minutes at full power (class A)\n\n")
	head(b, "GPU", "kernel", "until", "time", "SM clock", "power", "temperature")
	for _, s := range r.Soak {
		each := max(1, len(s.Points)/soakRows)
		for i, p := range s.Points {
			if i == 0 || i == len(s.Points)-1 || (i+1)%each == 0 {
				row(b, short(s.GPU), s.Kernel, fmt.Sprintf("%.0f s", p.Seconds), fmt.Sprintf("%.2f ms", p.Ms), unit(p.ClockMHz, "MHz"), unit(p.PowerW, "W"), unit(p.TempC, "°C"))
			}
		}
	}
	for _, s := range r.Soak {
		if s.Problem != "" {
			fmt.Fprintf(b, "\n%s: %s\n", short(s.GPU), s.Problem)
		}
	}
}

// rest writes the sections about the job, the faults, doctor and the steps.
func (r Record) rest(b *strings.Builder) {
	if x := r.Beside; x != nil {
		fmt.Fprintf(b, "\n## Measuring beside a job\n\nThe job on %s took %.2f ms a unit alone", short(x.GPU), x.AloneMs)
		if x.NeighboursMs > 0 {
			fmt.Fprintf(b, ", %.2f ms (%+.1f %%) while all other GPUs were measured", x.NeighboursMs, 100*(x.NeighboursMs/x.AloneMs-1))
		}
		if x.ForcedMs > 0 {
			fmt.Fprintf(b, ", %.2f ms (%+.1f %%) while its own GPU was measured, too", x.ForcedMs, 100*(x.ForcedMs/x.AloneMs-1))
		}
		fmt.Fprintf(b, ".\nWhile the job ran, the idle check found on its GPU: %s. A killed measurement ended after %.2f s.\n", cmp.Or(x.Seen, "-"), x.AbortSeconds)
	}
	if len(r.Faults) > 0 {
		fmt.Fprintf(b, "\n## Faults on purpose\n\n")
		head(b, "fault", "error", "event")
		for _, f := range r.Faults {
			event := "-"
			if f.EventSeconds != nil {
				event = fmt.Sprintf("Xid %d after %.3f s", f.Xid, *f.EventSeconds)
			} else if f.WaitedFor {
				event = "none"
			}
			row(b, f.Name, cmp.Or(f.Said, "-"), event)
		}
	}
	var findings []struct{ Check, Status, Message string }
	if json.Unmarshal(r.Doctor, &findings) == nil && len(findings) > 0 {
		fmt.Fprintf(b, "\n## doctor\n\n")
		for _, f := range findings {
			fmt.Fprintf(b, "- %s, %s: %s\n", f.Status, f.Check, cell(f.Message))
		}
	}
	fmt.Fprintf(b, "\n## Steps\n\n")
	for _, s := range r.Steps {
		if s.LeftOut != "" {
			fmt.Fprintf(b, "- %s: left out: %s.\n", s.Name, cell(s.LeftOut))
			continue
		}
		fmt.Fprintf(b, "- %s: %.1f s. %s\n", s.Name, s.Seconds, cell(s.Problem))
	}
}

// head starts a table with these column headings.
func head(b *strings.Builder, cells ...string) {
	row(b, cells...)
	row(b, slices.Repeat([]string{"---"}, len(cells))...)
}

func row(b *strings.Builder, cells ...string) {
	for i := range cells {
		cells[i] = cell(cells[i])
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// cell escapes text for a table cell.
func cell(s string) string { return strings.NewReplacer("|", "/", "\n", " ").Replace(s) }

func unit(v *float64, name string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f %s", *v, name)
}

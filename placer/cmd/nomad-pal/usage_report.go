// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/wholefile"
	"github.com/nomad-pal/nomad-pal/placer/accounting"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/sim/plot"
)

// usageReport is the data of a report: the usage in a period, in total and by day, user and so on.
type usageReport struct {
	since, until string // as dates
	filter       string // the user's filters, as text; "" means all usage that the token may see
	all          accounting.Usage
	by           map[string][]accounting.Usage // the usage by day, namespace and so on
}

// reportColumns are the columns by which a report groups usage, each with its name in the report.
var reportColumns = [][2]string{{"namespace", "namespace"}, {"user", "user"}, {"class", "application class"}, {"model", "GPU model"}}

// readUsageReport reads the usage from the agent. If q has no since, the period begins with the
// first day of the current month.
func readUsageReport(s *answers, q url.Values, now time.Time) (r usageReport, err error) {
	if !q.Has("since") {
		q.Set("since", time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339))
	}
	since, _ := time.Parse(time.RFC3339, q.Get("since")) // historyOptions.query has validated the time
	until := now
	if text := q.Get("until"); text != "" {
		until, _ = time.Parse(time.RFC3339, text)
		until = until.Add(-time.Second)
	}
	const day = "2 January 2006"
	r = usageReport{since: since.UTC().Format(day), until: until.UTC().Format(day), by: map[string][]accounting.Usage{}}
	for _, name := range []string{"namespace", "user", "class", "model"} {
		if of := q.Get(name); of != "" && of != "*" {
			r.filter += ", " + name + " " + of
		}
	}
	for _, column := range []string{"", "day", "namespace", "user", "class", "model"} {
		q.Set("by", column)
		usage := []accounting.Usage{}
		if err := s.get("/v1/usage", q, &usage); err != nil {
			return r, err
		}
		if column == "" && len(usage) > 0 {
			r.all = usage[0]
		}
		r.by[column] = usage
	}
	return r, nil
}

// writeUsageReport writes the report to a file, as one self-contained HTML page.
func writeUsageReport(b *base, file string, r usageReport) int {
	var page bytes.Buffer
	if err := r.page().Write(&page); err != nil {
		return b.fail(fmt.Errorf("writing the report: %w", err))
	}
	if err := wholefile.Write(file, page.Bytes()); err != nil {
		return b.fail(fmt.Errorf("writing the report: %w", err))
	}
	b.printf("Wrote %s: GPU usage from %s to %s.\n", file, r.since, r.until)
	return 0
}

func (r usageReport) page() plot.Page {
	u := r.all
	p := plot.Page{Title: "GPU usage, " + r.since + " to " + r.until, Lead: []string{"Whole days of UTC" + r.filter +
		". GPU hours are the time from placement to end of each allocation, for each of its GPUs."}}
	if u.GPUHours == 0 && u.Runs == 0 {
		p.Lead = append(p.Lead, "No run that the token may see was active in this period.")
		return p
	}
	p.Facts = []plot.Fact{
		{Value: hoursOf(u.GPUHours), Name: "GPU hours"}, {Value: grouped(u.Runs), Name: "runs ended"},
		{Value: shareOf(float64(u.Complete), float64(u.Runs)), Name: "of them complete"},
		{Value: meanWait(u), Name: "mean wait"},
		{Value: shareOf(waste(u), u.GPUHours), Name: "of GPU hours wasted"},
		{Value: shareOf(u.SavedGPUHours, u.GPUHours), Name: "more with packing (predicted)"},
	}
	p.Sections = append(p.Sections, r.days())
	for _, c := range reportColumns {
		if s, ok := r.share(c[0], c[1]); ok {
			p.Sections = append(p.Sections, s)
		}
	}
	p.Sections = append(p.Sections, r.waits(), r.wasted(), r.saved(), r.predicted())
	return p
}

// waste returns the wasted GPU hours, but at most all GPU hours. The sum of the parts can be
// higher, because the hours of a failed run can also count as idle or as held in vain.
func waste(u accounting.Usage) float64 {
	return min(u.GPUHours, u.FailedGPUHours+u.HeldInVainGPUHours+u.IdleGPUHours)
}

func (r usageReport) days() plot.Section {
	a := plot.Areas{Name: "days", Title: "GPU hours of each day", X: plot.Axis{Label: "day, counted from " + r.since}, Y: plot.Axis{Label: "GPU hours"},
		Bands: []plot.Band{{Name: "used", Colour: plot.Ours + 1}, {Name: "failed", Colour: 3}, {Name: "held in vain", Colour: 2}, {Name: "idle", Colour: 4}}}
	var p plot.Panel
	first, _ := time.Parse("2 January 2006", r.since)
	for _, u := range r.by["day"] {
		day, err := time.Parse(time.DateOnly, u.Of[0])
		if err != nil {
			continue
		}
		at := day.Sub(first).Hours() / 24
		if at > p.End { // no job ran between the previous day and this one
			p.At, p.Values = append(p.At, p.End), append(p.Values, make([]float64, 4))
		}
		p.At, p.End = append(p.At, at), at+1
		p.Values = append(p.Values, []float64{max(0, u.GPUHours-waste(u)), u.FailedGPUHours, u.HeldInVainGPUHours, u.IdleGPUHours})
	}
	a.Panels = []plot.Panel{p}
	return plot.Section{Title: "By day", Figures: []plot.Figure{a.Figure()}}
}

// mostShown is the maximum number of bars in a figure.
const mostShown = 12

// share draws how usage is distributed over the values of a column. ok is false if there is nothing
// to compare: no value, or only a value without a name.
func (r usageReport) share(column, called string) (s plot.Section, ok bool) {
	usage := slices.Clone(r.by[column])
	if len(usage) < 2 && (len(usage) == 0 || usage[0].Of[0] == "") {
		return s, false
	}
	slices.SortStableFunc(usage, func(a, b accounting.Usage) int { return cmp.Compare(b.GPUHours, a.GPUHours) })
	bars := plot.Bars{Name: "by-" + column, Title: "GPU hours by " + called, Label: "GPU hours"}
	t := &plot.Table{Head: []string{called, "GPU hours", "share", "failed", "in vain", "idle", "saved", "runs", "complete", "failed", "mean wait"}}
	for i, u := range usage {
		name := cmp.Or(u.Of[0], "not given")
		if i < mostShown {
			bars.Bars = append(bars.Bars, plot.Bar{Name: cut(name, 32), Colour: plot.Ours + 1, Value: u.GPUHours, Note: "(" + shareOf(u.GPUHours, r.all.GPUHours) + ")"})
		}
		t.Rows = append(t.Rows, []string{name, hoursOf(u.GPUHours), shareOf(u.GPUHours, r.all.GPUHours), hoursOf(u.FailedGPUHours),
			hoursOf(u.HeldInVainGPUHours), hoursOf(u.IdleGPUHours), hoursOf(u.SavedGPUHours), grouped(u.Runs), grouped(u.Complete), grouped(u.Failed), meanWait(u)})
	}
	s = plot.Section{Title: "By " + called, Figures: []plot.Figure{bars.Figure()}, Table: t}
	if len(usage) > mostShown {
		s.Notes = []string{fmt.Sprintf("The figure shows only the first %d of the table's %d rows.", mostShown, len(usage))}
	}
	return s, true
}

func (r usageReport) waits() plot.Section {
	names := []string{"under 1 minute", "1 to 10 minutes", "10 minutes to 1 hour", "1 to 6 hours", "6 hours to 1 day", "longer"}
	started := int64(0)
	for _, n := range r.all.Waits {
		started += n
	}
	bars := plot.Bars{Name: "waits", Title: "Runs by how long they waited in all", Label: "runs"}
	for i, n := range r.all.Waits {
		bars.Bars = append(bars.Bars, plot.Bar{Name: names[i], Colour: plot.Ours + 1, Value: float64(n), Note: "(" + shareOf(float64(n), float64(started)) + ")"})
	}
	return plot.Section{Title: "Waits", Figures: []plot.Figure{bars.Figure()},
		Notes: []string{fmt.Sprintf("Of %s runs that ended, %s had started. On average, the runs waited %s.", grouped(r.all.Runs), grouped(started), meanWait(r.all))}}
}

func (r usageReport) wasted() plot.Section {
	u := r.all
	t := &plot.Table{Head: []string{"kind", "GPU hours", "of all"}}
	for _, row := range []struct {
		kind string
		h    float64
	}{{"failed: allocations that failed or were lost", u.FailedGPUHours}, {"incomplete gangs: GPUs held while other members were missing", u.HeldInVainGPUHours},
		{"idle: GPUs that their running jobs did not use", u.IdleGPUHours},
		{"stopped for others: restarts, and work since the last checkpoint", u.StopsLostGPUHours}} {
		t.Rows = append(t.Rows, []string{row.kind, hoursOf(row.h), shareOf(row.h, u.GPUHours)})
	}
	most := slices.Clone(r.by["user"])
	slices.SortStableFunc(most, func(a, b accounting.Usage) int { return cmp.Compare(waste(b), waste(a)) })
	for _, m := range most[:min(5, len(most))] {
		if w := waste(m); w > 0 && m.Of[0] != "" {
			t.Rows = append(t.Rows, []string{"all kinds, user " + cut(m.Of[0], 32), hoursOf(w), shareOf(w, u.GPUHours)})
		}
	}
	notes := []string{fmt.Sprintf("%s of %s runs failed, and %s were stopped. A GPU hour can be counted in several rows. "+
		"A GPU is idle if each reading of its utilization was 0 %% for 15 minutes or longer; GPUs without readings do not count.", grouped(u.Failed), grouped(u.Runs), grouped(u.Stopped))}
	if u.Stops > 0 {
		notes = append(notes, fmt.Sprintf("Runs were stopped %s times to make room for other runs. In total, the other runs got their GPUs %s hours sooner, assuming that the stopped runs would have run as long as expected.",
			grouped(u.Stops), hoursOf(u.StopsSavedHours)))
	}
	return plot.Section{Title: "Failures and waste", Table: t, Notes: notes}
}

func (r usageReport) saved() plot.Section {
	u, seen := r.all, r.all.Seen
	t := &plot.Table{Head: []string{"other placement", "additional GPU hours", "of the GPU hours used", "based on"}}
	t.Rows = append(t.Rows,
		[]string{"with packed placement, predicted", hoursOf(u.SavedGPUHours), shareOf(u.SavedGPUHours, u.GPUHours), "all GPU hours"},
		[]string{"on any GPUs of the model, predicted", hoursOf(u.SavedAnyGPUHours), shareOf(u.SavedAnyGPUHours, u.GPUHours), "all GPU hours"})
	s := plot.Section{Title: "What placement saved", Table: t, Notes: []string{"\"On any GPUs\" is the mean over all choices of the same number of usable GPUs of the same model. Each choice gets the locality penalty of the run's own GPUs."}}
	if seen.Runs == 0 {
		s.Notes = append(s.Notes, "No savings were measured, because no run had three earlier complete runs of the same job on the same number and model of GPUs.")
		return s
	}
	on := grouped(seen.Runs) + " runs"
	t.Rows = append(t.Rows,
		[]string{"with packed placement, measured", hoursOf(seen.SavedGPUHours), shareOf(seen.SavedGPUHours, seen.GPUHours), on},
		[]string{"on any GPUs of the model, measured", hoursOf(seen.SavedAnyGPUHours), shareOf(seen.SavedAnyGPUHours, seen.GPUHours), on})
	s.Notes = append(s.Notes, "Measured: each run is compared with up to 16 earlier runs of the same job on the same number and model of GPUs. This comparison cannot show an error that all predictions of a job share.")
	bars := plot.Bars{Name: "slowdowns", Title: "Slowdown of the " + on + " that can be compared", Label: "mean over GPU hours", Bars: []plot.Bar{
		{Name: "measured", Colour: plot.Ours + 2, Value: seen.Slowdown}, {Name: "predicted", Colour: plot.Ours + 1, Value: seen.PredictedSlowdown},
		{Name: "any GPUs, predicted", Colour: 4, Value: seen.AnySlowdown}, {Name: "packed, predicted", Colour: 1, Value: seen.PackedSlowdown},
	}}
	s.Figures = []plot.Figure{bars.Figure()}
	return s
}

func (r usageReport) predicted() plot.Section {
	t := &plot.Table{Head: []string{"prediction", "predictions", "in range", "sooner", "later"}}
	for _, row := range []struct {
		name string
		of   accounting.PredictedRanges
	}{{"start of the job, predicted at submission", r.all.Starts}, {"run time of the job, predicted at its start", r.all.RunTimes}} {
		f := row.of
		all := float64(f.Told)
		t.Rows = append(t.Rows, []string{row.name, grouped(f.Told), shareOf(float64(f.Held), all), shareOf(float64(f.Early), all), shareOf(float64(f.Told-f.Held-f.Early), all)})
	}
	return plot.Section{Title: "Accuracy of predictions", Table: t, Notes: []string{"Each prediction is a range. Eight in ten starts should be in their range. The range of a run time comes from estimates and earlier runs. The queue widens it: it divides the lower end by 1.4, and multiplies the upper end by 1.4."}}
}

func hoursOf(h float64) string {
	if h > -10 && h < 10 {
		return strconv.FormatFloat(h, 'f', 2, 64)
	}
	return thousands(strconv.FormatFloat(h, 'f', 0, 64))
}

func grouped(n int64) string { return thousands(strconv.FormatInt(n, 10)) }

// thousands separates groups of three digits by commas.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func shareOf(part, all float64) string {
	if all == 0 {
		return "–"
	}
	return strconv.FormatFloat(100*part/all, 'f', 1, 64) + " %"
}

func meanWait(u accounting.Usage) string {
	if u.Runs == 0 {
		return "–"
	}
	return model.ShortDuration(time.Duration(u.WaitedHours / float64(u.Runs) * float64(time.Hour)).Round(time.Second))
}

func cut(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

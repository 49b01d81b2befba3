// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// sums prints what `history -by` asks for: the usage, grouped by columns.
func (b *base) sums(q url.Values, by string, asCSV bool) int {
	for _, other := range []string{"state", "job", "limit", "columns"} {
		if b.given(other) {
			return b.fail(fmt.Errorf("-by cannot be combined with -%s", other))
		}
	}
	columns := splitList(by)
	for _, c := range columns {
		if !slices.Contains(palapi.UsageColumns(), c) {
			return b.fail(fmt.Errorf("-by: %q is none of %s", c, strings.Join(palapi.UsageColumns(), ", ")))
		}
	}
	q.Set("by", strings.Join(columns, ","))
	s, err := b.ask()
	if err != nil {
		return b.fail(err)
	}
	usage := []palapi.Usage{}
	if err := s.get("/v1/usage", q, &usage); err != nil {
		return b.fail(err)
	}
	if asCSV {
		printUsageCSV(b, usage, columns)
		return s.close(0)
	}
	return s.close(b.show(usage, func() { printUsage(b, usage, columns) }))
}

func usageCells(u palapi.Usage) []string {
	hours := func(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }
	return []string{hours(u.GPUHours), hours(u.FailedGPUHours), hours(u.HeldInVainGPUHours), hours(u.IdleGPUHours), hours(u.SavedGPUHours),
		strconv.FormatInt(u.Runs, 10), strconv.FormatInt(u.Failed, 10), hours(u.WaitedHours),
		strconv.FormatInt(u.Stops, 10), hours(u.StopsLostGPUHours), hours(u.StopsSavedHours)}
}

func printUsage(b *base, usage []palapi.Usage, columns []string) {
	if len(usage) == 0 {
		b.io.printf("No runs.\n")
		return
	}
	titles := each(columns, func(c string) any { return strings.ToUpper(c[:1]) + c[1:] })
	rows := []string{row(append(titles, "GPU hours", "Failed", "In vain", "Idle", "Saved", "Runs", "Failed runs", "Waited (h)", "Stops", "Lost", "Sooner (h)")...)}
	for _, u := range usage {
		cells := slices.Concat(u.Of, usageCells(u))
		rows = append(rows, row(each(cells, func(c string) any { return c })...))
	}
	b.io.table(rows)
}

// printUsageCSV prints usage as CSV, and ignores errors of the writer, because [quoting] keeps
// them.
func printUsageCSV(b *base, usage []palapi.Usage, columns []string) {
	w := csv.NewWriter(b.io.out)
	defer w.Flush()
	_ = w.Write(append(slices.Clone(columns), "gpu_hours", "failed_gpu_hours", "held_in_vain_gpu_hours", "idle_gpu_hours", "saved_gpu_hours", "runs", "failed", "waited_hours",
		"stops", "stops_lost_gpu_hours", "stops_saved_wait_hours"))
	for _, u := range usage {
		of := each(u.Of, func(text string) string { return csvCell(text) })
		_ = w.Write(append(of, usageCells(u)...))
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"strings"
	"time"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// dayKey identifies a UTC day, as the number of days since 1970, and the values by which sums are
// grouped.
type dayKey struct {
	day                           int64
	namespace, user, class, model string
}

const dayLong = 24 * time.Hour

func dayOf(t time.Time) int64 { return t.Unix() / int64(dayLong/time.Second) }

func startOf(day int64) time.Time { return time.Unix(day*int64(dayLong/time.Second), 0).UTC() }

// monthOf returns the first day of a day's month.
func monthOf(day int64) int64 {
	t := startOf(day)
	return dayOf(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC))
}

// sum names a quantity that the database adds up for each day and each month. Times are
// milliseconds.
type sum int

const (
	gpuTime    sum = iota // all GPU time
	failedTime            // GPU time of allocations that failed or were lost
	vainTime              // GPU time held while other members were missing
	idleTime              // GPU time in which GPUs are known to have computed nothing
	savedTime             // additional GPU time that packing would have taken, as predicted
	// The number of runs that ended on the day, and their total wait time.
	runsEnded
	runsComplete
	runsFailed
	waitedTime
	// How often ended runs were stopped for other jobs, the GPU time that these stops cost, and how
	// much earlier ended runs got GPUs because other jobs were stopped for them.
	stops
	stopsLost
	stopsWon
	numSums
)

// sumColumns lists the database columns that hold the sums.
var sumColumns = [numSums]string{
	"gpu_ms", "failed_ms", "vain_ms", "idle_ms", "saved_ms",
	"runs", "complete", "failed", "waited_ms",
	"stops", "stops_lost_ms", "stops_won_ms",
}

// sumTypes has the names and SQL types of the columns.
var sumTypes = "\n\t" + strings.Join(sumColumns[:], " BIGINT NOT NULL,\n\t") + " BIGINT NOT NULL"

type sums [numSums]int64

func (s sums) plus(o sums) sums {
	for i := range s {
		s[i] += o[i]
	}
	return s
}

// hours converts a sum of GPU time to hours. hours does not use [time.Duration], which cannot hold
// the GPU time of a large cluster.
func (s sums) hours(i sum) float64 { return float64(s[i]) / float64(time.Hour.Milliseconds()) }

// sumsOf returns the amounts that an ended run adds to the sums of its day.
func sumsOf(r palapi.Run) (s sums) {
	s[runsEnded], s[waitedTime] = 1, time.Duration(r.Waited).Milliseconds()
	s[stops] = int64(r.Stops.Stops)
	s[stopsLost] = int64(r.LostGPUSeconds * 1e3)
	s[stopsWon] = int64(r.SavedSeconds * 1e3)
	switch r.State {
	case palapi.RunComplete:
		s[runsComplete] = 1
	case palapi.RunFailed:
		s[runsFailed] = 1
	}
	return s
}

// addTo adds the allocation's GPU time in the given period to the sums of the days.
func (a Alloc) addTo(days map[dayKey]sums, since, until time.Time) {
	byDay(later(a.From, since), until, func(day int64, from, to time.Time) {
		var s sums
		s[gpuTime] = a.gpuTime(from, to)
		if a.Status == "failed" || a.Status == "lost" {
			s[failedTime] = s[gpuTime]
		}
		if a.Vain.After(from) {
			s[vainTime] = a.gpuTime(from, earlier(a.Vain, to))
		}
		if a.Predicted > 0 && a.Packed > 0 {
			s[savedTime] = int64(float64(s[gpuTime]) * (a.Packed/a.Predicted - 1))
		}
		k := a.dayKey(day)
		days[k] = days[k].plus(s)
	})
}

func (a Alloc) dayKey(day int64) dayKey {
	return dayKey{day, a.Namespace, a.User, a.Class, a.Model}
}

func (a Alloc) gpuTime(from, to time.Time) int64 {
	return int64(float64(to.Sub(from).Milliseconds()) * a.Held)
}

// byDay calls a function once for each day of the period, with the part of the period that lies in
// the day.
func byDay(from, until time.Time, each func(day int64, from, to time.Time)) {
	for from.Before(until) {
		day := dayOf(from)
		to := earlier(startOf(day+1), until)
		each(day, from, to)
		from = to
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

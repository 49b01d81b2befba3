// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"math"

	"github.com/nomad-pal/nomad-pal/pal"
)

// finish computes the result of a class from its windows.
func (s *session) finish(r *childReady, ws []Repetition, rs []reading) {
	a := App{App: r.Class, Kernel: r.Kernel, Work: s.work[r.Class], Windows: ws, LimitedBy: limitedBy(rs), Sum: s.sums[r.Class]}
	times := s.usable(r.Class, ws, &a)
	if len(times) == 0 {
		s.warn("class %s: no measurement window is usable", r.Class)
		return
	}
	sum := summarize(times)
	a.Ms = sum.Median
	a.Sigma = sum.Sigma
	a.CI = math.Min(1, sum.CI)
	a.Converged = len(times) >= s.plan.MinWindows && a.CI <= s.plan.CI
	if !a.Converged {
		s.warn("class %s: the 95 %% confidence interval of the median is at least ±%.2f %%, from %d windows", r.Class, 100*a.CI, len(times))
	}
	if r.Work > 0 {
		a.Rate, a.Unit = r.Work/(a.Ms/1e3), r.Unit
		clock := 0.0 // unknown
		mean := Mean(ws, func(w Repetition) *float64 { return w.ClockMHz })
		if mean != nil {
			clock = *mean
		}
		problem := a.judge(r, clock, slowBelow(r, a.LimitedBy))
		if problem != "" {
			s.warn("class %s: %s", r.Class, problem)
			if !a.Slow {
				return // implausible, so not published
			}
		}
	}
	if r.Class == pal.ClassA && a.LimitedBy == LimitNone {
		s.warn("class A: %s did not reach the power cap, so the measured time says little about a workload that reaches the cap", r.Kernel)
	}
	s.result.Apps = append(s.result.Apps, a)
	s.tell("class " + string(r.Class))
}

func (s *session) warn(format string, args ...any) {
	s.result.Warnings = append(s.result.Warnings, fmt.Sprintf(format, args...))
}

// usable returns the times of the windows that are not dropped. If most windows were dropped
// because of heat or power, hot windows are normal for this GPU and count as well.
func (s *session) usable(c pal.AppClass, ws []Repetition, a *App) []float64 {
	wrong, hot := 0, 0
	for _, w := range ws {
		switch w.Dropped {
		case "":
		case sdcDropped:
			wrong++
		default:
			hot++
		}
	}
	if wrong > 0 {
		s.result.Corrupt = true
		s.warn("class %s: %d of %d windows gave a wrong result: the GPU computes wrongly (silent data corruption)", c, wrong, len(ws))
	}
	if 2*hot > len(ws) {
		a.LimitedBy = LimitThermal
		for i := range a.Windows {
			if a.Windows[i].Dropped != sdcDropped {
				a.Windows[i].Dropped = ""
			}
		}
		s.warn("class %s: heat or the power supply held the clocks down in %d of %d windows", c, hot, len(ws))
	}
	return kept(a.Windows)
}

// slowBelow returns the rate of a class below which the GPU is certainly an outlier; 0 if unknown. A
// power cap below the GPU's usual one explains a low rate in class A. Scattered loads depend on too much.
func slowBelow(r *childReady, by Limit) float64 {
	capped := by != LimitNone && by != LimitThermal
	if r.Class == pal.ClassD || r.Class == pal.ClassA && capped {
		return 0
	}
	return r.Peak * r.Expected * slowShare
}

// judge sets the rate's share of the hardware's peak, and returns any problem of the rate. A rate
// above the peak is not plausible. A rate far below that of any healthy GPU makes the GPU an
// outlier.
func (a *App) judge(r *childReady, clockMHz, slow float64) (problem string) {
	if r.Peak == 0 {
		return ""
	}
	peak := r.Peak
	if r.ClockBound && clockMHz > 0 {
		peak *= clockMHz / float64(r.ClockMHz)
	}
	a.Share = a.Rate / peak
	switch {
	case a.Rate > peak*overClock && peak != r.Peak:
		return fmt.Sprintf("%.4g %s is not plausible: at %.0f MHz the hardware cannot exceed %.4g", a.Rate, a.Unit, clockMHz, peak)
	case a.Rate > r.Peak*overPeak && peak <= r.Peak: // some cards run above CUDA's largest clock
		return fmt.Sprintf("%.4g %s is not plausible: the hardware cannot exceed %.4g", a.Rate, a.Unit, r.Peak)
	case a.Rate < slow:
		a.Slow = true
		return fmt.Sprintf("%.4g %s is far below the %.4g that a healthy GPU of this model reaches, so this GPU is an outlier",
			a.Rate, a.Unit, slow/slowShare)
	}
	return ""
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// reading is one sample of a GPU's telemetry.
type reading struct {
	at                    time.Time
	clock, power, tempC   *float64
	throttle              string // comma-separated reasons; "" if unknown
	powerPart, thermoPart *float64
}

// telemetry samples a GPU five times a second while a session runs.
type telemetry struct {
	mu       sync.Mutex
	readings []reading

	stop context.CancelFunc
	done chan struct{}
}

// telemetryPeriod is the time between samples.
const telemetryPeriod = 200 * time.Millisecond

// watchTelemetry starts sampling; close ends it. If sample is nil, there are no readings.
func watchTelemetry(ctx context.Context, id string, sample func([]string) map[string]gpu.Sample) *telemetry {
	ctx, cancel := context.WithCancel(ctx)
	t := &telemetry{stop: cancel, done: make(chan struct{})}
	if sample == nil {
		close(t.done)
		return t
	}
	go func() {
		defer close(t.done)
		tick := time.NewTicker(telemetryPeriod)
		defer tick.Stop()
		for {
			s, ok := sample([]string{id})[id]
			if ok && s.NoSampleReason == "" {
				t.add(newReading(time.Now(), s))
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return t
}

func (t *telemetry) close() {
	t.stop()
	<-t.done
}

func (t *telemetry) add(r reading) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readings = append(t.readings, r)
}

func newReading(now time.Time, s gpu.Sample) reading {
	r := reading{at: now, power: s.PowerW, clock: float(s.SMClockMHz), tempC: float(s.TemperatureC),
		powerPart: s.PowerCapPercent, thermoPart: s.ThermalCapPercent}
	if s.Throttle != nil {
		r.throttle = *s.Throttle
	}
	return r
}

func float(p *int64) *float64 {
	if p == nil {
		return nil
	}
	return new(float64(*p))
}

// between returns a copy of the readings taken between two times.
func (t *telemetry) between(from, to time.Time) []reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []reading
	for _, r := range t.readings {
		if !r.at.Before(from) && !r.at.After(to) {
			out = append(out, r)
		}
	}
	return out
}

// annotate stores the means of the readings in a window. annotate drops the window if the hardware,
// not the workload, held the clocks down.
func (w *Repetition) annotate(rs []reading) {
	w.ClockMHz = Mean(rs, func(r reading) *float64 { return r.clock })
	w.PowerW = Mean(rs, func(r reading) *float64 { return r.power })
	w.TempC = Mean(rs, func(r reading) *float64 { return r.tempC })
	seen := map[string]bool{}
	var reasons []string
	for _, r := range rs {
		for reason := range strings.SplitSeq(r.throttle, ",") {
			if reason != "" && reason != "none" && !seen[reason] {
				seen[reason] = true
				reasons = append(reasons, reason)
			}
		}
	}
	w.Throttle = strings.Join(reasons, ",")
	for _, reason := range []string{gpu.ThrottleHWThermal, gpu.ThrottleBrake, gpu.ThrottleHWSlowdown} {
		if seen[reason] {
			w.Dropped = reason
			return
		}
	}
}

// Mean returns the mean of the known values; nil if none is known.
func Mean[T any](all []T, of func(T) *float64) *float64 {
	sum, n := 0.0, 0.0
	for _, x := range all {
		v := of(x)
		if v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return nil
	}
	return new(sum / n)
}

// limitShare is the minimum share of readings that must show a limit. A reading shows a limit if
// the limit held the clocks down for at least this share of the time.
const limitShare = 0.2

// limitedBy returns the limit that held the clocks down during the readings. A reading shows a
// limit in its clocks event reasons, or in the time that the driver has counted.
func limitedBy(rs []reading) Limit {
	known := 0
	power := 0
	thermal := 0
	other := 0
	for _, r := range rs {
		if r.throttle == "" && r.powerPart == nil && r.thermoPart == nil {
			continue
		}
		known++
		if strings.Contains(r.throttle, gpu.ThrottlePower) || r.powerPart != nil && *r.powerPart >= 100*limitShare {
			power++
		}
		if strings.Contains(r.throttle, gpu.ThrottleSWThermal) || strings.Contains(r.throttle, gpu.ThrottleHWThermal) || r.thermoPart != nil && *r.thermoPart >= 100*limitShare {
			thermal++
		}
		if strings.Contains(r.throttle, gpu.ThrottleOther) {
			other++
		}
	}
	bound := limitShare * float64(known)
	switch {
	case known == 0:
		return LimitUnknown
	case float64(thermal) >= bound && thermal > 0:
		return LimitThermal
	case float64(power) >= bound && power > 0:
		return LimitPower
	case float64(other) >= bound && other > 0:
		return LimitUnknown
	}
	return LimitNone
}

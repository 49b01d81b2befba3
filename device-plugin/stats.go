// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// sampleWait is the time that Stats waits for a reading before it sends the previous reading.
const sampleWait = 2 * time.Second

// Stats sends statistics at every interval until ctx ends. GPUs are not read more often than the
// interval.
func (p *Plugin) Stats(ctx context.Context, interval time.Duration) (<-chan *device.StatsResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cfg.Enabled {
		return nil, device.ErrPluginDisabled
	}
	p.ready()
	if interval <= 0 {
		interval = time.Second
	}
	out := make(chan *device.StatsResponse)
	go p.sendStats(ctx, interval, out)
	return out, nil
}

func (p *Plugin) sendStats(ctx context.Context, interval time.Duration, out chan<- *device.StatsResponse) {
	defer close(out)
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(nextStats(time.Now(), interval))
		}
		groups := p.stats(interval)
		if groups == nil {
			continue // nothing is known yet: send no message instead of an empty one
		}
		select {
		case out <- &device.StatsResponse{Groups: groups}:
		case <-ctx.Done():
			return
		}
	}
}

// nextStats returns the time until the next statistics: the first whole multiple of interval that
// is at least nine tenths of interval from now. If statistics were sent sooner, they could repeat
// an old reading, and their shares would cover too short a time.
func nextStats(now time.Time, interval time.Duration) time.Duration {
	wait := gpu.UntilTick(now, interval)
	if wait < interval-interval/10 {
		wait += interval
	}
	return wait
}

// stats returns the statistics of a reading that is younger than interval; nil if there are no devices,
// or the driver is released.
func (p *Plugin) stats(interval time.Duration) []*device.DeviceGroupStats {
	p.mu.Lock()
	v := p.view
	samples := p.driver.samples
	away := p.release.away()
	xids := map[string][2]int64{}
	for id, r := range p.health.records {
		xids[id] = [2]int64{int64(r.xidLast), int64(r.xidCount)}
	}
	p.mu.Unlock()
	if len(v.inv.Devices) == 0 || away {
		return nil
	}
	readings, taken := samples.sample(ids(v.inv.Devices), interval-interval/10, sampleWait)
	byName := map[string]*device.DeviceGroupStats{}
	var out []*device.DeviceGroupStats
	for _, d := range v.inv.Devices {
		kind, name := v.forms[d.ID].group(modelOf(d))
		g := byName[kind+"/"+name]
		if g == nil {
			g = &device.DeviceGroupStats{Vendor: attr.Vendor, Type: kind, Name: name, InstanceStats: map[string]*device.DeviceStats{}}
			byName[kind+"/"+name] = g
			out = append(out, g)
		}
		s, at := readings[d.ID], taken[d.ID]
		if at.IsZero() {
			at = time.Now() // the device was just asked and has not answered
		}
		x := xids[d.ID]
		if x[1] > 0 {
			s.XidLast, s.XidCount = new(x[0]), new(x[1])
		}
		for n, in := range v.instances(d) {
			if n == 0 {
				g.InstanceStats[in.id] = v.instance(d.ID, s, at)
			} else {
				g.InstanceStats[in.id] = v.part(d.ID, attr.PartID(d.ID, 0), at)
			}
		}
	}
	return out
}

// part builds the statistics of a second or later part of a shared GPU. It leaves out the GPU's
// activity, because sums over the parts must not count the activity twice.
func (v *view) part(id, first string, taken time.Time) *device.DeviceStats {
	set := statistics{}
	set.text("Statistics of", &first, "The part of the GPU that reports the GPU's statistics")
	v.health(set, id)
	return &device.DeviceStats{Summary: set["Statistics of"], Stats: &structs.StatObject{Attributes: set}, Timestamp: taken}
}

// instance builds one device's statistics.
func (v *view) instance(id string, s gpu.Sample, taken time.Time) *device.DeviceStats {
	set := statistics{}
	set.incumbent(s)
	set.clocks(s)
	set.errors(s)
	set.number("Tensor active", s.TensorActivePercent, "%", "Share of time that tensor cores were busy")
	set.number("DRAM active", s.DRAMActivePercent, "%", "Memory bandwidth used relative to the maximum")
	v.health(set, id)
	return &device.DeviceStats{
		Summary:   set[attr.StatMemory],
		Stats:     &structs.StatObject{Attributes: set},
		Timestamp: taken,
	}
}

// statistics collects one device's values.
type statistics map[string]*structs.StatValue

// incumbent sets the eleven statistics of nomad-device-nvidia, with the same names, units and
// shapes, because dashboards use them. Unknown values are "N/A", as in nomad-device-nvidia.
func (st statistics) incumbent(s gpu.Sample) {
	var watts *int64
	if s.PowerW != nil {
		watts = new(int64(*s.PowerW + 0.5))
	}
	st.legacyRatio(attr.StatPower, watts, s.PowerLimitW, "W", "Power drawn now and the enforced limit")
	st.legacy(attr.StatUtilization, s.GPUPercent, "%", "Share of time that a kernel was running")
	st.legacy("Memory utilization", s.MemoryPercent, "%", "Share of time that memory was being read or written")
	st.legacy("Encoder utilization", s.EncoderPercent, "%", "Share of time that the video encoder was busy")
	st.legacy("Decoder utilization", s.DecoderPercent, "%", "Share of time that the video decoder was busy")
	st.legacy(attr.StatTemperature, s.TemperatureC, "C", "Temperature of the GPU")
	st.legacyRatio(attr.StatMemory, s.MemoryUsedMiB, s.MemoryTotalMiB, "MiB", "Memory used and total memory")
	st.legacyRatio("BAR1 buffer state", s.BAR1UsedMiB, s.BAR1TotalMiB, "MiB", "BAR1 address space used and in total")
	st.legacy("ECC L1 errors", s.ECC.L1, "#", "Corrected L1 cache errors since the driver was loaded")
	st.legacy("ECC L2 errors", s.ECC.L2, "#", "Corrected L2 cache errors since the driver was loaded")
	st.legacy("ECC memory errors", s.ECC.Memory, "#", "Corrected memory errors since the driver was loaded")
}

func (st statistics) legacy(name string, v *int64, unit, desc string) {
	st[name] = &structs.StatValue{Unit: unit, Desc: desc, IntNumeratorVal: v}
	if v == nil {
		st[name] = missing(unit, desc)
	}
}

func (st statistics) legacyRatio(name string, v, of *int64, unit, desc string) {
	st[name] = &structs.StatValue{Unit: unit, Desc: desc, IntNumeratorVal: v, IntDenominatorVal: of}
	if v == nil {
		st[name] = missing(unit, desc)
	}
}

func missing(unit, desc string) *structs.StatValue {
	return &structs.StatValue{Unit: unit, Desc: desc, StringVal: new(notAvailable)}
}

func (st statistics) integer(name string, v *int64, unit, desc string) {
	if v != nil {
		st[name] = &structs.StatValue{IntNumeratorVal: v, Unit: unit, Desc: desc}
	}
}

func (st statistics) number(name string, v *float64, unit, desc string) {
	if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) { // JSON has neither NaN nor infinity
		st[name] = &structs.StatValue{FloatNumeratorVal: v, Unit: unit, Desc: desc}
	}
}

func (st statistics) text(name string, v *string, desc string) {
	if v != nil {
		st[name] = &structs.StatValue{StringVal: v, Desc: desc}
	}
}

func (st statistics) clocks(s gpu.Sample) {
	st.integer("SM clock", s.SMClockMHz, "MHz", "Current clock of the streaming multiprocessors")
	st.text("Throttle reasons", s.Throttle, "What holds the clocks down at this moment")
	st.number("Power cap time", s.PowerCapPercent, "%", "Share of time since the previous reading that the power limit held clocks down")
	st.number("Thermal cap time", s.ThermalCapPercent, "%", "Share of time since the previous reading that heat held clocks down")
	if s.ParentPowerAndTemperature {
		st.text("Power and temperature of", new("parent GPU"), "A MIG instance has no power or temperature of its own")
	}
	if s.NoSampleReason != "" {
		st.text("Not readable", &s.NoSampleReason, "Why statistics of this GPU are missing")
	}
}

func (st statistics) errors(s gpu.Sample) {
	st.integer("Xid last", s.XidLast, "", "Number of the last error that the driver reported")
	st.integer("Xid count", s.XidCount, "#", "Errors that the driver reported since the plugin started")
}

// health adds the GPU's health.
func (v *view) health(st statistics, id string) {
	health := cmp.Or(v.verdicts[id].description(), "healthy")
	st.text("Health", &health, "Why the GPU is unhealthy or degraded")
}

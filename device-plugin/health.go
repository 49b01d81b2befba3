// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// Reasons in Nomad's health description. The codes never change, because Nomad registers the node
// again when a description changes.
const (
	reasonLost       = "gpu-lost"
	reasonUnanswered = "driver-not-answering"
	reasonReset      = "reset-required"
	reasonRecovery   = "recovery-action" // followed by ":" and the action
	reasonRemap      = "row-remap-failure"
	reasonRetired    = "page-retirement"
	reasonSRAM       = "sram-ecc-threshold"
	reasonNVML       = "nvml"             // followed by ":" and the question that failed; also a degradation
	reasonFabric     = "fabric-not-ready" // CUDA does not start
	reasonNVLink     = "nvlink-down"
	reasonDegraded   = "degraded" // followed by ":" and the first degradation
	reasonXid        = "xid"      // followed by ":" and the number
	reasonReleased   = "released" // the operator released the driver
	reasonMPS        = "mps-daemon"

	degradedThermal = "thermal-slowdown"
	degradedBrake   = "power-brake"
	degradedPCIe    = "pcie"
	degradedFabric  = "fabric" // followed by ":" and a code of FabricLimits
	degradedNVLink  = "nvlink-errors"
	degradedRetired = "pages-retired"
	degradedPending = "retirement-pending"
	degradedSlow    = "slow"
	degradedWrong   = "wrong-results"
)

// faults are the reasons why a GPU is unhealthy, and degradations those why it is degraded, as far as
// the operator can change their effect.
var (
	faults = []string{reasonLost, reasonUnanswered, reasonReset, reasonRecovery, reasonRemap, reasonRetired, reasonSRAM, reasonFabric}

	degradations = []string{reasonNVML, reasonNVLink, degradedThermal, degradedBrake, degradedPCIe, degradedFabric, degradedNVLink,
		degradedRetired, degradedPending, degradedSlow, degradedWrong}
)

// checkReasons checks a list of reasons. known has the reasons that the list may contain beside Xids.
func checkReasons(key string, reasons, known []string) error {
	for _, r := range reasons {
		number, isXid := strings.CutPrefix(r, reasonXid+":")
		if _, err := strconv.ParseUint(number, 10, 16); isXid && err == nil {
			continue
		}
		if !slices.Contains(known, r) {
			return fmt.Errorf("config key %q: %q is not one of %s, %s:NUMBER", key, r, strings.Join(known, ", "), reasonXid)
		}
	}
	return nil
}

// xidReason returns the health reason of an Xid.
func xidReason(xid int) string { return fmt.Sprintf("%s:%d", reasonXid, xid) }

const (
	// retiredLimit and retiredWatch are DCGM's limits on retired pages.
	retiredLimit, retiredWatch = 63, 15
	// Slowdowns are judged by a moving average over slowWindow scan periods. A GPU becomes degraded if
	// more than slowShare of the readings show a slowdown, and there are at least slowLeast readings.
	slowWindow, slowLeast = 10, 6
	slowShare             = 0.6
	// slowEnd is the share below which a degraded GPU recovers. slowEnd is lower than slowShare, so
	// that a GPU near the limit does not flap.
	slowEnd = 0.3
	// silentFor is the grace period of a GPU that does not answer. A healthy GPU can be silent
	// while the driver starts or resets another GPU, or lists many processes.
	silentFor = 10 * time.Second
	// recoverAfter is how many good readings in a row make a GPU healthy again.
	recoverAfter = 2
	// clearAfter is how many readings in a row must request no recovery action to end a latch.
	clearAfter = 2
	// containedWithin is the maximum time between Xid 48 and Xid 94 of one error.
	containedWithin = 10 * time.Second
)

// verdict is the plugin's judgement of one device's health.
type verdict struct {
	healthy bool
	reason  string // "" when healthy
	// degraded lists problems that do not make the device unhealthy, sorted.
	degraded []string
	// unsettled means that the next readings decide the verdict, and should come soon.
	unsettled bool
}

// description is the text that Nomad shows for the device: a stable code, or "".
func (v verdict) description() string {
	if v.healthy && len(v.degraded) > 0 {
		return attr.DegradedPrefix + strings.Join(v.degraded, ",")
	}
	return v.reason
}

// latch is a fatal Xid that makes the GPU unhealthy until the latch is cleared.
type latch struct {
	Xid  int    `json:"xid"`
	Boot string `json:"boot,omitempty"` // identifies the machine's boot
	Load string `json:"load,omitempty"` // identifies the driver load during which it was seen
	// Chosen means that the operator made the Xid fatal. The driver requests no recovery for it, so
	// the driver cannot clear the latch.
	Chosen bool `json:"chosen,omitempty"`
	good   int  // readings in a row without a recovery action
}

// record is the plugin's knowledge about one device.
type record struct {
	latches   []latch // sorted by Xid
	reason    string  // why it is unhealthy; "" if healthy
	good      int     // good readings in a row since it became unhealthy
	questions questions
	fresh     bool        // the last reading has not been counted yet
	answered  bool        // it has answered at least once
	silent    time.Time   // start of its silence; zero while it answers
	late      bool        // silent, but not yet for long enough to count
	last      gpu.Signals // signals of its last answer
	lost      bool
	nvlinkXid bool
	doubleBit time.Time // time of the last Xid 48
	contained time.Time // time of the last Xid 94
	slowAt    time.Time // time of the last reading that counted for slowdowns
	thermal   slowdown  // by heat
	brake     slowdown  // by a power brake
	xidLast   int
	xidCount  int
}

// slowdown is the share of a GPU's readings that show a slowdown.
type slowdown struct {
	share    float64
	readings int
	degraded bool
}

// add counts a reading.
func (s *slowdown) add(slow bool) {
	now := 0.0
	if slow {
		now = 1
	}
	s.readings = min(s.readings+1, slowWindow)
	s.share += (now - s.share) / float64(s.readings)
	if s.degraded {
		s.degraded = s.share >= slowEnd
	} else {
		s.degraded = s.readings >= slowLeast && s.share > slowShare
	}
}

// health turns readings and events into verdicts. health does no I/O; its owner stores the latches.
type health struct {
	records    map[string]*record
	boot, load string // from the latest scan that reported them
	changed    bool   // latches differ from what was stored
}

func newHealth() *health { return &health{records: map[string]*record{}} }

func (h *health) record(id string) *record {
	r := h.records[id]
	if r == nil {
		r = &record{}
		h.records[id] = r
	}
	return r
}

// event handles an Xid of one device.
func (h *health) event(now time.Time, id string, xid int, cfg HealthConfig) {
	r := h.record(id)
	r.xidLast, r.xidCount = xid, r.xidCount+1
	switch judgeXid(xid, cfg) {
	case xidFatal:
		h.latch(r, xid, slices.Contains(cfg.Unhealthy, xidReason(xid)))
	case xidDoubleBit:
		r.doubleBit = now
		if now.Sub(r.contained) > containedWithin {
			h.latch(r, xid, false)
		}
	case xidContained:
		h.contain(now, id)
	case xidNVLink:
		r.nvlinkXid = true
	}
}

// contain handles an Xid 94, which excuses an Xid 48 of the same error. With MIG, the two can name
// different devices of a GPU: every device counts.
func (h *health) contain(now time.Time, id string) {
	r := h.record(id)
	r.contained = now
	if now.Sub(r.doubleBit) <= containedWithin {
		h.unlatch(r, func(l latch) bool { return l.Xid == 48 })
	}
}

func (h *health) latch(r *record, xid int, chosen bool) {
	h.changed = true
	l := latch{Xid: xid, Boot: h.boot, Load: h.load, Chosen: chosen}
	i := slices.IndexFunc(r.latches, func(o latch) bool { return o.Xid == xid })
	if i >= 0 {
		r.latches[i] = l
		return
	}
	r.latches = append(r.latches, l)
	slices.SortFunc(r.latches, func(a, b latch) int { return cmp.Compare(a.Xid, b.Xid) })
}

func (h *health) unlatch(r *record, drop func(latch) bool) {
	before := len(r.latches)
	r.latches = slices.DeleteFunc(r.latches, drop)
	h.changed = h.changed || len(r.latches) != before
}

// clear removes the latches of one device, for the operator's command. clear reports whether the
// device is known.
func (h *health) clear(id string) bool {
	r := h.records[id]
	if r == nil {
		return false
	}
	h.unlatch(r, func(latch) bool { return true })
	r.nvlinkXid = false
	return true
}

// observe handles one scan's readings. spacing is the usual time between scans. For slowdowns, a
// reading counts only if at least half of spacing has passed since the last reading that counted.
func (h *health) observe(now time.Time, inv gpu.Inventory, spacing time.Duration) {
	h.boot, h.load = cmp.Or(inv.Boot, h.boot), cmp.Or(inv.DriverLoad, h.load) // a failed scan has neither: keep the last
	for i := range inv.Devices {
		d := &inv.Devices[i]
		r := h.record(d.ID)
		h.expire(r, d)
		r.sampleSlow(now, d.Signals, spacing)
		r.fresh = true
		r.hear(now, d.Signals)
		r.questions.take(d.Signals)
	}
}

// hear records whether a device answers.
func (r *record) hear(now time.Time, s gpu.Signals) {
	if !s.Unanswered {
		r.answered = true
		r.silent = time.Time{}
		r.late = false
		return
	}
	if r.silent.IsZero() {
		r.silent = now
	}
	r.late = r.answered && now.Sub(r.silent) < silentFor
}

// hung ends the grace period of all devices that do not answer.
func (h *health) hung() {
	for _, r := range h.records {
		r.late = false
	}
}

// verdicts judges every device by its last readings and its record.
func (h *health) verdicts(inv gpu.Inventory, cfg HealthConfig) map[string]verdict {
	out := make(map[string]verdict, len(inv.Devices))
	physical := inv.Physical()
	for i := range inv.Devices {
		d := &inv.Devices[i]
		out[d.ID] = h.record(d.ID).judge(concerning(d, physical), cfg)
		if d.Unusable != "" { // not even health.ignore changes this
			out[d.ID] = verdict{reason: d.Unusable}
		}
	}
	return out
}

// concerning returns the signals that apply to a device. NVLink and its fabric connect several
// GPUs, so their signals do not apply to a MIG instance. The fabric's signals do not apply to the
// only GPU of a machine, unless the fabric joins several machines.
func concerning(d *gpu.Device, physical int) gpu.Signals {
	s := d.Signals
	if d.Parent != "" {
		s.FabricLimits = nil
		s.NVLinkErrors = false
		s.NVLinkDown = false
	}
	if physical == 1 && d.NVLink.Clique == "" {
		s.FabricLimits = nil
	}
	return s
}

// expire drops the latches that a reset of any kind has cleared.
func (h *health) expire(r *record, d *gpu.Device) {
	back := r.lost && !d.Signals.Lost && !d.Signals.Unanswered
	r.lost = d.Signals.Lost || r.lost && !back
	if back {
		r.nvlinkXid = false
	}
	for i := range r.latches {
		l := &r.latches[i]
		if l.Boot == "" && h.boot != "" || l.Load == "" && h.load != "" { // the Xid arrived before the first scan
			l.Boot, l.Load, h.changed = cmp.Or(l.Boot, h.boot), cmp.Or(l.Load, h.load), true
		}
		if d.Signals.Recovery != nil && *d.Signals.Recovery == 0 && !l.Chosen {
			l.good++
		} else {
			l.good = 0
		}
	}
	h.unlatch(r, func(l latch) bool {
		return back || l.good >= clearAfter || h.void(l)
	})
}

// void reports whether the machine was rebooted, or the driver loaded again, since a latch was set.
func (h *health) void(l latch) bool { return differs(l.Boot, h.boot) || differs(l.Load, h.load) }

func differs(then, now string) bool { return then != "" && now != "" && then != now }

// sampleSlow counts a reading for slowdowns.
func (r *record) sampleSlow(now time.Time, s gpu.Signals, spacing time.Duration) {
	if now.Sub(r.slowAt) < spacing/2 {
		return
	}
	r.slowAt = now
	r.thermal.add(s.ThermalSlowdown)
	r.brake.add(s.PowerBrake)
}

// judge returns the verdict that follows from the current readings and the record.
func (r *record) judge(s gpu.Signals, cfg HealthConfig) verdict {
	late := s.Unanswered && r.late
	if late { // judge the previous answer again, and count no reading
		s, r.fresh = r.last, false
	} else if !s.Unanswered {
		r.last = s
	}
	v := verdict{degraded: r.degradations(s, cfg)}
	reason := r.fault(s, cfg)
	for _, what := range v.degraded {
		kind, _, _ := strings.Cut(what, ":")
		if reason == "" && slices.Contains(cfg.Unhealthy, kind) {
			reason = reasonDegraded + ":" + what
		}
	}
	switch {
	case reason != "":
		r.reason, r.good = reason, 0
	case r.reason != "" && r.fresh:
		r.good++
		if r.good >= recoverAfter {
			r.reason = ""
		}
	}
	r.fresh = false
	v.reason, v.healthy = r.reason, r.reason == ""
	v.unsettled = late || reason == "" && !v.healthy || r.questions.unsettled()
	if !r.answered { // a good first answer makes the device healthy at once, without recoverAfter
		r.reason = ""
	}
	return v
}

// fault returns the first reason why the device is unhealthy; "" if there is none.
func (r *record) fault(s gpu.Signals, cfg HealthConfig) string {
	bad := func(holds bool, reason string) bool { return holds && !slices.Contains(cfg.Ignore, reason) }
	if s.Reported != "" {
		return s.Reported
	}
	switch {
	case bad(s.Lost, reasonLost):
		return reasonLost
	case bad(s.Unanswered && len(s.Failed) > 0, reasonNVML):
		return reasonNVML + ":" + s.Failed[0].String()
	case bad(s.Unanswered && len(s.Failed) == 0, reasonUnanswered):
		return reasonUnanswered
	case bad(s.ResetRequired, reasonReset):
		return reasonReset
	}
	reason := r.latched(cfg)
	if reason != "" {
		return reason
	}
	failed := r.questions.counted(gpu.Basic)
	switch {
	case bad(len(failed) >= basicLimit || len(failed) > 0 && gpu.WeightOf(failed[0].Function) == gpu.Identity, reasonNVML):
		return r.first(failed)
	case bad(s.Recovery != nil && *s.Recovery != 0, reasonRecovery):
		return reasonRecovery + ":" + recoveryAction(*s.Recovery)
	case bad(s.RemapFailed, reasonRemap):
		return reasonRemap
	case bad(s.RetiredPages != nil && *s.RetiredPages >= retiredLimit, reasonRetired):
		return reasonRetired
	case bad(s.SRAMFault, reasonSRAM):
		return reasonSRAM
	case bad(s.CUDARefused, reasonFabric):
		return reasonFabric
	case bad(s.NVLinkDown && r.nvlinkXid, reasonNVLink):
		return reasonNVLink
	}
	return ""
}

// first returns the health reason for unanswered questions. While the failure in the previous
// reason lasts, the reason stays; otherwise it names the most important failure.
func (r *record) first(failed []gpu.Failure) string {
	for _, f := range failed {
		reason := reasonNVML + ":" + f.String()
		if reason == r.reason {
			return reason
		}
	}
	return reasonNVML + ":" + failed[0].String()
}

// latched returns the reason of the first latch that counts; "" if there is none.
func (r *record) latched(cfg HealthConfig) string {
	for _, l := range r.latches {
		reason := xidReason(l.Xid)
		if !slices.Contains(cfg.Ignore, reason) {
			return reason
		}
	}
	return ""
}

// recoveryAction returns the name of the driver's recovery action.
func recoveryAction(n int) string {
	names := [...]string{"none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset", "recover-imex"}
	if n < 0 || n >= len(names) {
		return fmt.Sprint(n)
	}
	return names[n]
}

// degradations lists problems that do not make the device unhealthy.
func (r *record) degradations(s gpu.Signals, cfg HealthConfig) []string {
	var out []string
	add := func(holds bool, what string) {
		kind, _, _ := strings.Cut(what, ":")
		if holds && !slices.Contains(cfg.Ignore, kind) {
			out = append(out, what)
		}
	}
	for _, limit := range s.FabricLimits {
		add(true, degradedFabric+":"+limit)
	}
	for _, f := range r.questions.counted(gpu.Detail) {
		add(true, reasonNVML+":"+f.String())
	}
	add(s.NVLinkErrors, degradedNVLink)
	add(s.NVLinkDown, reasonNVLink)
	add(s.RetiredPages != nil && *s.RetiredPages > retiredWatch, degradedRetired)
	add(s.RetirementPending, degradedPending)
	add(s.PCIeDegraded, degradedPCIe)
	add(s.Slow, degradedSlow)
	add(s.Wrong, degradedWrong)
	add(r.brake.degraded, degradedBrake)
	add(r.thermal.degraded, degradedThermal)
	slices.Sort(out)
	return out
}

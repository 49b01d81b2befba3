// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// JobKey names a job.
type JobKey struct{ Namespace, ID string }

func (k JobKey) String() string { return k.Namespace + "/" + k.ID }

// Compare orders keys by namespace, then id.
func (k JobKey) Compare(o JobKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.ID, o.ID))
}

// Alloc has the fields of an allocation that the placer needs.
type Alloc struct {
	ID      string
	Job     JobKey
	Group   string
	Name    string // job.group[index]
	Node    string // id
	Desired string // run, stop, evict
	Client  string // pending, running, complete, failed, lost, unknown
	// Reported is set if Nomad counted the allocation as lost with its node, and the client later
	// reported how the allocation ended.
	Reported bool
	GPUs     []string
	Used     pal.Resources
	Ports    []int // host ports, static and dynamic
	Tasks    map[string]*api.TaskState
	Next     string // id of the allocation that replaces this one, if any
	// Version is the job version that the allocation runs or ran. Version is nil if the allocation
	// came in an event, because events have no version. See StaleVersions.
	Version *uint64
	// CreateTime and ModifyTime are Unix nanoseconds.
	CreateTime, ModifyTime   int64
	CreateIndex, ModifyIndex uint64
}

// Live reports whether the allocation holds its resources. Whatever its desired status, an
// allocation holds its resources until its client reports that its tasks have ended.
func (a *Alloc) Live() bool {
	switch a.Client {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return false
	}
	return true
}

// Member reports whether the allocation runs or will soon run. Allocations that Nomad is stopping
// do not count.
func (a *Alloc) Member() bool { return a.Live() && a.Desired == api.AllocDesiredStatusRun }

// MemberNumber returns the number at the end of an allocation's name, or -1 if there is none.
func MemberNumber(alloc string) int {
	_, number, _ := strings.Cut(alloc[strings.LastIndexByte(alloc, '.')+1:], "[")
	n, err := strconv.Atoi(strings.TrimSuffix(number, "]"))
	if err != nil {
		return -1
	}
	return n
}

// PreemptedByNomad reports whether Nomad has stopped the allocation in favour of a job with a
// higher priority. The stop must have come after the job's last registration. Operators can enable
// preemption in Nomad. Preemption by the placer does not count.
func (a *Alloc) PreemptedByNomad(job *api.Job) bool {
	return a.Desired == api.AllocDesiredStatusEvict && a.ModifyIndex > *job.JobModifyIndex
}

// LeftBehind reports whether the allocation is on a disconnected node, and its gang has since been
// stopped or started on other GPUs. The job's disconnect block lets the allocation run on for a
// while. Nomad can neither see nor stop the allocation until the node is back, and then stops it
// (seen on 1.11.3). While the node is disconnected, no job waits for the allocation to end, and no
// job gets the allocation's GPUs.
func (a *Alloc) LeftBehind(job *api.Job) bool {
	if a.Client != api.AllocClientStatusUnknown {
		return false
	}
	if a.Desired != api.AllocDesiredStatusRun {
		return true
	}
	pins, pinned := rewrite.Pinned(job)
	gp, _ := pins.Of(a.Group)
	elsewhere := !slices.Contains(gp.Nodes, a.Node) || pins.Mode == rewrite.ModeGPU && slices.ContainsFunc(a.GPUs, func(id string) bool { return !slices.Contains(gp.GPUs, id) })
	return pinned && (rewrite.Gated(job) || elsewhere && pins.Mode != rewrite.ModePrefer)
}

// LeftBehind is [Alloc.LeftBehind] with the job from the state.
func (s *State) LeftBehind(a *Alloc) bool {
	job := s.Jobs[a.Job]
	return job != nil && a.LeftBehind(job)
}

// FinishedIn reports whether the allocation succeeded for the job's current version. Nomad reruns
// members of a batch job that succeeded in an older version. This includes members whose client
// reported the end only after the newer version was registered. If the version of an allocation is
// unknown, the allocation counts as finished only if it was created after the last registration.
func (a *Alloc) FinishedIn(job *api.Job) bool {
	if a.Version != nil {
		return a.endedSince(job) && *a.Version == *job.Version
	}
	return a.endedSince(job) && a.PlacedFor(job)
}

// endedSince reports whether Nomad learned of the allocation's success after the job's last
// registration. The allocation may be of any version.
func (a *Alloc) endedSince(job *api.Job) bool {
	return a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun &&
		*job.Type == api.JobTypeBatch && a.ModifyIndex > *job.JobModifyIndex
}

// FinishedUnheard reports whether the allocation has succeeded since the job's last registration,
// but its version is not known yet. See StaleVersions.
func (a *Alloc) FinishedUnheard(job *api.Job) bool { return a.Version == nil && a.endedSince(job) }

// PlacedFor reports whether Nomad created the allocation after the job's last registration.
func (a *Alloc) PlacedFor(job *api.Job) bool { return a.CreateIndex > *job.JobModifyIndex }

// State is the placer's copy of the nodes, the allocations and the jobs with GPUs. A State is not
// safe for concurrent use. The objects in a State are never changed, only replaced.
type State struct {
	Nodes  Nodes // with GPUs
	Allocs map[string]*Alloc
	Jobs   map[JobKey]*api.Job
	// Unread holds the jobs that Nomad lists but does not return, and the malformed jobs. The
	// values are the errors. Jobs may have an older version of a job that Nomad does not return.
	Unread map[JobKey]error

	ByJob map[JobKey]map[string]*Alloc
	mine  map[JobKey]bool // jobs whose map in ByJob no clone shares
	noted
	// back maps nodes that have come back to the time when they became ready. The time is zero
	// until [State.Elapse] sets it. See [State.Reconnecting].
	back map[string]time.Time
	// purged holds allocations that vanished while they were live. kills holds the kill_timeout of
	// each purged job that still has allocations. See [State.Purged].
	purged map[string]*purged
	kills  map[JobKey]time.Duration
	// stops holds, by job, the index at which the job was last stopped. See [State.StoppedAt].
	stops map[JobKey]uint64
	// assumed holds jobs that the placer has registered and that Nomad has not returned since. For
	// these jobs, the state has the job that the placer sent. A full read reads assumed jobs again,
	// even if their index has not changed.
	assumed map[JobKey]bool
	// earlier holds allocations that were live before the lists were read but are not in the lists.
	earlier map[string]*Alloc
	// ending holds gangs with members that have just ended.
	ending map[JobKey]*ending
	at     indexes
	changes
	// sorted is the result of GPUNodes, or nil after a change. trimmed holds the nodes from which
	// GPUs of other nodes were removed.
	sorted  []*api.Node
	trimmed map[string]trimmed
	// own maps each job to the sorted GPUs that the placer pinned the job to. If onlyOwn is set,
	// jobs with pins to other GPUs hold no GPUs through pins.
	own     map[JobKey][]string
	onlyOwn bool
	owners  owners
	// odd maps node ids to warnings about the data of the node that the placer ignores. warnings
	// holds all warnings about nodes.
	odd map[string][]string
	// purgeLikely is the result of PurgeLikely.
	purgeLikely bool
	warnings    []string
	touched
}

// indexes are indexes of Nomad's state.
type indexes struct {
	// The lists of nodes, allocations and jobs include all events up to these indexes.
	nodes, allocs, jobs uint64
	// heard is the index of the newest allocation event. The previous State had all allocations up
	// to the index known.
	heard, known uint64
	// begun is the index of the last change to jobs before the placer subscribed to events.
	begun uint64
}

// noted holds allocations that are looked up often.
type noted struct {
	bad map[string]*Alloc // allocations with GPUs that failed or were lost
	// away holds allocations with GPUs on disconnected nodes.
	away map[string]*Alloc
	// orphans holds live allocations with GPUs whose job is gone, and all live allocations whose
	// job was purged and replaced by a new job of the same name.
	orphans map[string]*Alloc
	// staleVersions holds allocations that have succeeded since their job's last registration but
	// may belong to an earlier version.
	staleVersions map[string]*Alloc
}

// changes has counters of different changes of nodes.
type changes struct {
	// nodeChanges grows with each change of a node. A changed node without GPUs counts only if
	// notePlain sees a difference. plain maps nodes without GPUs to hashes of their states.
	nodeChanges uint64
	plain       map[string]string
	// nodeGeneration grows with each change of GPUs or their measurements.
	nodeGeneration uint64
}

// touched records which jobs changed, in order.
type touched struct {
	// jobs holds the changed jobs, in the order in which they or their allocations changed. before
	// counts the entries that were dropped from the beginning of jobs.
	jobs    []JobKey
	before  int
	touches uint64 // number of changes, repeated ones included
}

// Mark is a position in the sequence of changes of one State. The zero Mark belongs to no State.
type Mark struct {
	of      *touched
	at      int
	touches uint64
}

// touchesKept is the maximum number of entries in jobs.
const touchesKept = 1 << 15

func (s *touched) touch(k JobKey) {
	s.touches++
	n := len(s.jobs)
	if n > 0 && s.jobs[n-1] == k {
		return
	}
	if len(s.jobs) == touchesKept {
		s.before += touchesKept / 2
		s.jobs = slices.Delete(s.jobs, 0, touchesKept/2)
	}
	s.jobs = append(s.jobs, k)
}

// Touched returns the jobs that have changed, or whose allocations have changed, since the mark.
// Touched also returns the mark for the next call. known is false if the mark comes from another
// State or is too old.
func (s *touched) Touched(since Mark) (keys []JobKey, now Mark, known bool) {
	now = Mark{s, s.before + len(s.jobs), s.touches}
	if since.of != s || since.at < s.before {
		return nil, now, false
	}
	if since.touches == s.touches {
		return nil, now, true
	}
	// The job just before the mark may have changed again since the mark, because touch adds no
	// second entry if the same job changes twice in a row. So include this job.
	keys = slices.Clone(s.jobs[max(0, since.at-s.before-1):])
	slices.SortFunc(keys, JobKey.Compare)
	return slices.Compact(keys), now, true
}

// NewState returns an empty state.
func NewState() *State {
	return &State{
		Nodes: Nodes{}, Unread: map[JobKey]error{}, Allocs: map[string]*Alloc{}, Jobs: map[JobKey]*api.Job{},
		ByJob: map[JobKey]map[string]*Alloc{}, ending: map[JobKey]*ending{},
		noted: noted{bad: map[string]*Alloc{}, away: map[string]*Alloc{}, orphans: map[string]*Alloc{}, staleVersions: map[string]*Alloc{}},
		back:  map[string]time.Time{}, purged: map[string]*purged{}, assumed: map[JobKey]bool{}, earlier: map[string]*Alloc{}, kills: map[JobKey]time.Duration{}, stops: map[JobKey]uint64{}, trimmed: map[string]trimmed{}, odd: map[string][]string{}, own: map[JobKey][]string{},
	}
}

// AllocsOf returns the job's allocations, oldest first.
func (s *State) AllocsOf(k JobKey) []*Alloc {
	as := slices.Collect(maps.Values(s.ByJob[k]))
	slices.SortFunc(as, func(a, b *Alloc) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), cmp.Compare(a.ID, b.ID))
	})
	return as
}

// StoppedAt returns the index at which the job was last stopped, even if it runs again now, or 0 if
// no stop is known.
func (s *State) StoppedAt(k JobKey) uint64 { return s.stops[k] }

// SortedJobs returns the keys of the jobs, sorted.
func (s *State) SortedJobs() []JobKey {
	return slices.SortedFunc(maps.Keys(s.Jobs), JobKey.Compare)
}

// PutJob stores a job unless the stored job is newer. PutJob does not keep a job without GPUs,
// unless the job has a gate and requests devices. If such a job misspells the names of its devices,
// the placer must explain why the job waits.
func (s *State) PutJob(job *api.Job) {
	k := KeyOf(job)
	if old, ok := s.Jobs[k]; ok && *old.ModifyIndex > *job.ModifyIndex {
		return
	}
	delete(s.assumed, k)
	if !rewrite.AsksGPUs(job) && !(rewrite.Gated(job) && len(rewrite.OtherDevices(job)) > 0) {
		s.DropJob(k)
		return
	}
	if rewrite.Stopped(job) {
		s.stops[k] = *job.JobModifyIndex
	}
	s.Jobs[k] = evaluated(job)
	s.touch(k)
	s.noteStale(k)
}

// evaluated returns the job with the status that it will have once Nomad has written the job's
// evaluation. Nomad writes a job before its evaluation. Until Nomad has written the evaluation, it
// reports the job as dead if all earlier evaluations under the job's name are complete, even
// evaluations of a purged job (seen on 1.11.3).
func evaluated(job *api.Job) *api.Job {
	if rewrite.Stopped(job) || !Dead(job) || *job.ModifyIndex != *job.JobModifyIndex {
		return job
	}
	out := *job
	out.Status = new("pending")
	return &out
}

// Assume stores a job that the placer has registered, until Nomad returns the job.
func (s *State) Assume(job *api.Job) {
	s.PutJob(job)
	s.assumed[KeyOf(job)] = true
}

// DropJob forgets a job that is gone.
func (s *State) DropJob(k JobKey) {
	delete(s.assumed, k)
	job := s.Jobs[k]
	if job != nil {
		s.kills[k] = killTimeout(job)
		delete(s.Jobs, k)
		delete(s.own, k)
		delete(s.stops, k)
		s.touch(k)
		s.noteStale(k)
	}
}

// NodeChanges returns a number that grows with each change of a node that could run a task group of
// any job.
func (c *changes) NodeChanges() uint64 { return c.nodeChanges }

// notePlain counts a change of a node without GPUs, because nodes without GPUs can run groups that
// request no GPUs.
func (c *changes) notePlain(n *api.Node) {
	what := fmt.Sprint(n.Status, n.SchedulingEligibility, n.Drain, n.Datacenter, n.NodePool, n.NodeClass, n.Attributes, n.Meta)
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		d := n.Drivers[name]
		if d != nil {
			what += fmt.Sprint(name, d.Detected, d.Healthy)
		}
	}
	what += fmt.Sprint(slices.Sorted(maps.Keys(n.HostVolumes)), slices.Sorted(maps.Keys(n.CSINodePlugins)))
	if c.plain == nil {
		c.plain = map[string]string{}
	}
	sum := sha256.Sum256([]byte(what))
	was := c.plain[n.ID]
	if was != string(sum[:]) {
		c.plain[n.ID] = string(sum[:])
		c.nodeChanges++
	}
}

// NodeGeneration returns a number that grows with each change of GPUs or their measurements.
func (c *changes) NodeGeneration() uint64 { return c.nodeGeneration }

// KeyOf returns the key of a job that Nomad returned.
func KeyOf(job *api.Job) JobKey { return JobKey{*job.Namespace, *job.ID} }

// PutAlloc stores an allocation unless the stored allocation is newer.
func (s *State) PutAlloc(a *Alloc) {
	old := s.Allocs[a.ID]
	if old != nil && old.ModifyIndex > a.ModifyIndex {
		return
	}
	s.Allocs[a.ID] = a
	s.touch(a.Job)
	s.allocsToChange(a.Job)[a.ID] = a
	s.noteStaleAlloc(a)
	keep(s.bad, a, a.Failed() && len(a.GPUs) > 0)
	keep(s.away, a, a.Client == api.AllocClientStatusUnknown && len(a.GPUs) > 0)
	if old != nil && old.Live() {
		s.noteEnd(a)
		s.noteLost(a)
	}
}

// PutNode stores a node unless the stored node is newer, and reports whether anything relevant has
// changed. Nomad sends a node again whenever an allocation on the node changes. If nothing relevant
// has changed, PutNode keeps the stored node.
func (s *State) PutNode(n *api.Node) bool {
	id, index := n.ID, n.ModifyIndex
	old := s.Nodes[id]
	if old == nil && (n.NodeResources == nil || !slices.ContainsFunc(n.NodeResources.Devices, isGPU)) {
		s.notePlain(n)
		return false
	}
	if old != nil && old.ModifyIndex > index {
		return false
	}
	n, problems := sanitize(n)
	if !slices.Equal(problems, s.odd[id]) {
		s.report(id, problems)
		s.sorted = nil
	}
	if n == nil || old != nil && sameNode(old, n) {
		return false
	}
	s.noteBack(old, n)
	if !sameMeasurements(old, n) {
		s.nodeGeneration++
		shared := len(s.owners.shared)
		s.owners.look(n, old)
		s.purgeLikely = s.purgeLikely || len(s.owners.shared) > shared
	}
	if old != nil && old.Status != n.Status && len(s.owners.shared) > 0 {
		s.nodeGeneration++ // the node may now own other GPUs
	}
	s.Nodes[id], s.sorted = n, nil
	s.nodeChanges++
	return true
}

// report stores the warnings about ignored data of a node.
func (s *State) report(node string, problems []string) {
	if len(problems) == 0 {
		delete(s.odd, node)
	} else {
		s.odd[node] = problems
	}
}

// sameNode reports whether two versions of a node are equal in everything that placement uses.
func sameNode(a, b *api.Node) bool {
	same := a.Status == b.Status && a.SchedulingEligibility == b.SchedulingEligibility && a.Drain == b.Drain && sameDrain(a.DrainStrategy, b.DrainStrategy) &&
		a.Name == b.Name && a.Datacenter == b.Datacenter && a.NodePool == b.NodePool && a.NodeClass == b.NodeClass &&
		maps.Equal(a.Attributes, b.Attributes) && maps.Equal(a.Meta, b.Meta) && sameMeasurements(a, b)
	alike := func(x, y *api.DriverInfo) bool { return x.Detected == y.Detected && x.Healthy == y.Healthy }
	mounts := func(x, y *api.HostVolumeInfo) bool { return x != nil && y != nil && x.ReadOnly == y.ReadOnly }
	same = same && maps.EqualFunc(a.HostVolumes, b.HostVolumes, mounts) && (len(a.CSINodePlugins) == 0) == (len(b.CSINodePlugins) == 0)
	if !same || !maps.EqualFunc(a.Drivers, b.Drivers, alike) || (a.NodeResources == nil) != (b.NodeResources == nil) {
		return false
	}
	if a.NodeResources == nil {
		return true
	}
	return Capacity(a) == Capacity(b) && len(a.NodeResources.Cpu.ReservableCpuCores) == len(b.NodeResources.Cpu.ReservableCpuCores) &&
		KeptPorts(a) == KeptPorts(b) && slices.EqualFunc(GPUDevices(a), GPUDevices(b), sameDevice) &&
		reflect.DeepEqual(otherDevices(a), otherDevices(b))
}

// otherDevices returns the node's devices that the placer does not count as GPUs.
func otherDevices(n *api.Node) []*api.NodeDeviceResource {
	return slices.DeleteFunc(slices.Clone(DevicesOf(n)), isGPU)
}

// KeptPorts lists the ports that the node's configuration reserves, in Nomad's notation.
func KeptPorts(n *api.Node) string {
	if n.ReservedResources == nil {
		return ""
	}
	return n.ReservedResources.Networks.ReservedHostPorts
}

// sameDrain reports whether two drains have the same deadlines. A nil drain means that the node is
// not drained.
func sameDrain(a, b *api.DrainStrategy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Deadline == b.Deadline && a.ForceDeadline.Equal(b.ForceDeadline)
}

func sameDevice(a, b *api.NodeDeviceResource) bool {
	return slices.EqualFunc(a.Instances, b.Instances, func(x, y *api.NodeDevice) bool {
		return x.ID == y.ID && x.Healthy == y.Healthy && x.HealthDescription == y.HealthDescription && busID(x) == busID(y)
	}) && maps.EqualFunc(a.Attributes, b.Attributes, func(x, y *api.Attribute) bool { return reflect.DeepEqual(x, y) })
}

// sameMeasurements reports whether two versions of a node have the same GPUs with the same raw
// measurements. a is nil if the node is new.
func sameMeasurements(a, b *api.Node) bool {
	if a == nil {
		return len(GPUDevices(b)) == 0
	}
	return slices.EqualFunc(GPUDevices(a), GPUDevices(b), func(x, y *api.NodeDeviceResource) bool {
		return x.Name == y.Name && TextOf(x, attr.Raw) == TextOf(y, attr.Raw) && slices.Equal(InstanceIDs(x), InstanceIDs(y))
	})
}

// InstanceIDs returns the sorted ids of the instances in a device group.
func InstanceIDs(d *api.NodeDeviceResource) []string {
	ids := make([]string, len(d.Instances))
	for i, in := range d.Instances {
		ids[i] = in.ID
	}
	slices.Sort(ids)
	return ids
}

// Orphans returns live allocations whose job is gone, if they have GPUs or if a new job uses the
// same name. Otherwise these allocations would count as members of the new job. Nomad sends no
// events for the allocations of a purged job (seen on 1.11.3), so Client.ReadStale of placer/nomad
// reads the orphans one by one.
func (n *noted) Orphans() []*Alloc { return byID(n.orphans) }

// StaleVersions returns the allocations whose job version must be read from Nomad. Each allocation
// has succeeded since its job's last registration, and either was created before this registration
// or belongs to a gated job. Nomad may have updated these allocations in place. Events do not show
// the version of an allocation, and only the version shows whether the allocation succeeded for the
// current version of the job.
func (n *noted) StaleVersions() []*Alloc { return byID(n.staleVersions) }

// noteStale updates orphans and staleVersions for the allocations of a job that has changed.
func (s *State) noteStale(k JobKey) {
	for _, a := range s.ByJob[k] {
		s.noteStaleAlloc(a)
	}
}

func (s *State) noteStaleAlloc(a *Alloc) {
	job := s.Jobs[a.Job]
	gone := job == nil || a.OfPurged(job)
	keep(s.orphans, a, gone && a.Live() && (len(a.GPUs) > 0 || job != nil))
	keep(s.staleVersions, a, job != nil && a.Version == nil && a.endedSince(job) && (!a.PlacedFor(job) || rewrite.Gated(job)))
}

func byID(m map[string]*Alloc) []*Alloc {
	as := slices.Collect(maps.Values(m))
	slices.SortFunc(as, func(a, b *Alloc) int { return cmp.Compare(a.ID, b.ID) })
	return as
}

// Failed returns the allocations with GPUs that failed or were lost, sorted by id.
func (n *noted) Failed() []*Alloc { return byID(n.bad) }

// Success describes an allocation that succeeded.
type Success struct {
	Job  JobKey
	At   time.Time
	GPUs []string
}

// Successes returns the allocations with GPUs that succeeded, in no particular order.
func (s *State) Successes() []Success {
	var out []Success
	for _, a := range s.Allocs {
		if a.Client == api.AllocClientStatusComplete && a.Desired == api.AllocDesiredStatusRun && len(a.GPUs) > 0 {
			out = append(out, Success{a.Job, time.Unix(0, a.ModifyTime), attr.GPUsOf(s.OwnGPUs(a))})
		}
	}
	return out
}

// GPUModels maps the ids of the GPUs to their models.
func (s *State) GPUModels() map[string]string {
	models := map[string]string{}
	for _, n := range s.GPUNodes() {
		for _, d := range GPUDevices(n) {
			for _, in := range d.Instances {
				models[attr.GPUOf(in.ID)] = attr.ModelOf(d.Type, d.Name)
			}
		}
	}
	return models
}

// Unhealthy returns those of the given GPUs that are unhealthy. The map's keys are instance ids,
// and its values are the plugin's descriptions of the faults.
func (s *State) Unhealthy(gpus []string) map[string]string {
	unhealthy := map[string]string{}
	for _, id := range gpus {
		if len(s.owners.naming[id]) > 0 {
			owner, _ := s.owners.owner(id, s.Nodes)
			noteUnhealthy(unhealthy, owner, id)
		}
	}
	return unhealthy
}

// noteUnhealthy adds the GPU to the map if the node reports it as unhealthy.
func noteUnhealthy(unhealthy map[string]string, n *api.Node, gpu string) {
	for _, d := range GPUDevices(n) {
		for _, in := range d.Instances {
			if in.ID == gpu && !in.Healthy {
				unhealthy[gpu] = in.HealthDescription
			}
		}
	}
}

func (s *State) dropAlloc(a *Alloc) {
	s.touch(a.Job)
	delete(s.Allocs, a.ID)
	delete(s.allocsToChange(a.Job), a.ID)
	if len(s.ByJob[a.Job]) == 0 {
		delete(s.ByJob, a.Job)
		delete(s.mine, a.Job)
		delete(s.kills, a.Job)
	}
	delete(s.bad, a.ID)
	delete(s.away, a.ID)
	delete(s.orphans, a.ID)
	delete(s.staleVersions, a.ID)
}

// keep adds the allocation to m if in is true, and otherwise removes the allocation from m.
func keep(m map[string]*Alloc, a *Alloc, in bool) {
	if in {
		m[a.ID] = a
	} else {
		delete(m, a.ID)
	}
}

// PurgeLikely reports whether events suggest that a node was purged: an allocation was lost on a
// ready node, or a node's GPUs appeared on another node. Nomad sends no event for the purge itself
// (seen on 1.11.3).
func (s *State) PurgeLikely() bool { return s.purgeLikely }

// DropNode forgets a node that is gone.
func (s *State) DropNode(id string) {
	n := s.Nodes[id]
	if n != nil {
		s.owners.leave(n, nil)
	}
	delete(s.Nodes, id)
	delete(s.back, id)
	delete(s.trimmed, id)
	delete(s.odd, id)
	delete(s.plain, id)
	s.nodeChanges++
	s.nodeGeneration++
	s.sorted = nil
}

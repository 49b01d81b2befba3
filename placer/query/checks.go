// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/reason"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/heartbeat"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

// Advice that doctor gives in several places.
const (
	NextStatus  = "nomad-pal status shows this problem until it is resolved"
	NextServers = "look at the logs of Nomad's servers, and try again"

	remedyUnmeasured = `let the device plugin measure (measure { mode = "idle" }), or nomad-pal profile import`
)

func check(name string, verdict palapi.Verdict, found, next string) palapi.Check {
	return palapi.Check{Name: name, Verdict: verdict, Found: found, Next: next}
}

// profileOld is the age from which doctor reports a profile as old, because GPUs change over
// months.
const profileOld = 90 * 24 * time.Hour

// setup checks what nomad-pal needs on the cluster. Callers of its methods hold the snapshot's mu.
type setup struct{ m *model.Model }

// Checks checks Nomad's clients, their GPUs and device plugins, the profile and the gate.
func (s *Snapshot) Checks() []palapi.Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := setup{s.m}
	out := []palapi.Check{of.checkVersion(), of.checkGPUs(), of.checkPlugin(), of.checkMeasuring(), of.checkProfile(), of.checkUnprofiled(), of.checkGate()}
	for _, w := range s.Warnings() {
		out = append(out, check("warning", palapi.Warn, w, NextStatus))
	}
	return out
}

// checkVersion checks Nomad's version on the clients, because servers show their own versions only
// to some tokens.
func (s setup) checkVersion() palapi.Check {
	low, known := s.m.State.Nodes.OldestNomad(), version.Must(version.NewVersion(cluster.ExactPins))
	switch {
	case low == nil:
		return check("nomad version", palapi.Warn, "no client reports its Nomad version", "check with nomad node status that there are clients, and that the token may read nodes")
	case low.LessThan(known):
		return check("nomad version", palapi.Warn, fmt.Sprintf("the oldest client runs %s, which may start members with fewer GPUs than they request (hashicorp/nomad#18364)", low), "upgrade Nomad to "+cluster.ExactPins+" or later; until then nomad-pal requeues such gangs")
	}
	return check("nomad version", palapi.OK, fmt.Sprintf("the oldest client runs %s", low), "")
}

// gpusOn returns the nodes with GPUs, sorted by name, and the number of nodes without GPUs.
func (s setup) gpusOn() (with []*api.Node, without int) {
	for _, id := range slices.Sorted(maps.Keys(s.m.State.Nodes)) {
		n := s.m.State.Nodes[id]
		if len(cluster.GPUDevices(n)) > 0 {
			with = append(with, n)
		} else {
			without++
		}
	}
	slices.SortStableFunc(with, func(a, b *api.Node) int { return strings.Compare(a.Name, b.Name) })
	return with, without
}

func (s setup) checkGPUs() palapi.Check {
	with, without := s.gpusOn()
	c := s.m.View.Cluster
	sick := 0
	for i := range c.NumGPUs() {
		if c.GPU(i).Health.Unhealthy {
			sick++
		}
	}
	found := fmt.Sprintf("%d, on %d of %d clients", c.NumGPUs(), len(with), len(with)+without)
	switch {
	case c.NumGPUs() == 0:
		return check("gpus", palapi.Fail, "no client shows a GPU", "install the device plugin in the plugin_dir of each client with GPUs, and restart Nomad there")
	case sick > 0:
		return check("gpus", palapi.Warn, fmt.Sprintf("%s; %s unhealthy", found, reason.Counted(sick, "is", "are")), "nomad-pal gpus shows why")
	}
	return check("gpus", palapi.OK, found, "")
}

// checkPlugin checks that nomad-pal's device plugin provides the GPUs. checkPlugin recognizes the
// plugin by an attribute that the plugin always sets.
func (s setup) checkPlugin() palapi.Check {
	with, _ := s.gpusOn()
	var others []string
	for _, n := range with {
		if slices.ContainsFunc(cluster.GPUDevices(n), func(d *api.NodeDeviceResource) bool { return d.Attributes[attr.Reference] == nil }) {
			others = append(others, n.Name)
		}
	}
	if len(others) > 0 {
		return check("device plugin", palapi.Warn, fmt.Sprintf("another device plugin provides the GPUs of %d of %d clients: %s", len(others), len(with), some(others)), "install nomad-pal's plugin on these clients, because their GPUs are not measured without this plugin")
	}
	return check("device plugin", palapi.OK, fmt.Sprintf("nomad-pal's plugin runs on all %d clients with GPUs", len(with)), "")
}

// checkMeasuring reports why device plugins do not measure GPUs, and which results say little. The
// check also passes if GPUs are never measured because of the configuration or their model, or if
// the kernel of class A does not reach the power limit.
func (s setup) checkMeasuring() palapi.Check {
	with, _ := s.gpusOn()
	waits, unable := map[string][]string{}, map[string][]string{} // nodes, by reason
	var uncapped []string                                         // nodes
	note := func(of map[string][]string, why, node string) {
		if why != "" && !slices.Contains(of[why], node) {
			of[why] = append(of[why], node)
		}
	}
	for _, n := range with {
		for _, d := range cluster.GPUDevices(n) {
			accounts, err := attr.ParseAccounts(cluster.TextOf(d, attr.Measuring))
			if err != nil {
				note(waits, err.Error(), n.Name)
			}
			for _, account := range accounts {
				note(waits, account.Waits, n.Name)
				note(unable, account.Unable, n.Name)
				if account.Uncapped && !slices.Contains(uncapped, n.Name) {
					uncapped = append(uncapped, n.Name)
				}
			}
		}
	}
	if len(waits) > 0 {
		return check("measuring", palapi.Warn, "GPUs wait to be measured "+reasons(waits), "to see why, run nomad-device-pal doctor on the node; to measure with a job: jobspecs/measure.nomad.hcl")
	}
	found := "no GPU waits to be measured"
	if len(unable) > 0 {
		found = "GPUs are not measured " + reasons(unable)
	}
	if len(uncapped) > 0 {
		found += fmt.Sprintf("; the measurement of class A stayed below the power limit on %s, so its times say little about training", some(uncapped))
	}
	return check("measuring", palapi.OK, found, "")
}

// reasons lists nodes by reason, the reason with the most nodes first.
func reasons(nodes map[string][]string) string {
	whys := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(nodes[b]), len(nodes[a])), strings.Compare(a, b))
	})
	var out []string
	for _, why := range whys[:min(len(whys), mostReasons)] {
		out = append(out, fmt.Sprintf("on %s: %s", some(nodes[why]), why))
	}
	more := len(whys) - len(out)
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, "; ")
}

const mostReasons = 3

// some lists the first few names, and counts the rest.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (s setup) checkProfile() palapi.Check {
	p := s.m.Profile
	if p == nil {
		return check("profile", palapi.Warn, "no GPU is measured, so all GPUs count as equally fast", remedyUnmeasured)
	}
	found := fmt.Sprintf("version %d, with %s", p.Version, reason.Count(len(p.GPUs)))
	if made, err := time.Parse(time.RFC3339, p.Created); err == nil {
		found += ", built " + reason.Moment(made)
		if s.m.Time.Sub(made) > profileOld {
			return check("profile", palapi.Warn, found, "measure the GPUs again, because their speeds change over months")
		}
	}
	behind := s.behind(int64(p.Version))
	if len(behind) > 0 {
		return check("profile", palapi.Warn, fmt.Sprintf("%s; %s another version: %s", found, reason.Counted(len(behind), "client still shows", "clients still show"), some(behind)), "check that the device plugins on these clients can read the variables nomad-pal/*; a plugin looks for a new profile about once a minute")
	}
	return check("profile", palapi.OK, found, "")
}

// behind returns the nodes whose plugins use a profile version other than the given version.
func (s setup) behind(version int64) (names []string) {
	with, _ := s.gpusOn()
	for _, n := range with {
		for _, d := range cluster.GPUDevices(n) {
			v := d.Attributes[attr.ProfileVersion]
			if v != nil && v.IntVal != nil && *v.IntVal != version {
				names = append(names, n.Name)
				break
			}
		}
	}
	return names
}

// checkUnprofiled counts the GPUs without a class. The plugin cannot measure MIG instances, so they
// do not count.
func (s setup) checkUnprofiled() palapi.Check {
	c, isMIG := s.m.View.Cluster, s.migInstances()
	var names []string
	unknown, mig := 0, 0
	for i := range c.NumGPUs() {
		classes := c.GPU(i).Classes
		switch {
		case isMIG[c.GPU(i).ID]:
			mig++
		case slices.Max(classes[:]) == 0:
			unknown++
			node, _ := c.Group(c.GroupOf(i))
			if !slices.Contains(names, c.Node(node).Name) {
				names = append(names, c.Node(node).Name)
			}
		}
	}
	if unknown > 0 {
		return check("measured gpus", palapi.Warn, fmt.Sprintf("%d of %d GPUs are not measured, on %s", unknown, c.NumGPUs()-mig, some(names)), remedyUnmeasured+"; until then, these GPUs count as median GPUs")
	}
	found := fmt.Sprintf("all %d", c.NumGPUs()-mig)
	if mig > 0 {
		found += fmt.Sprintf("; MIG instances, which cannot be measured: %d", mig)
	}
	return check("measured gpus", palapi.OK, found, "")
}

// migInstances returns the ids of all MIG instances.
func (s setup) migInstances() map[string]bool {
	ids := map[string]bool{}
	with, _ := s.gpusOn()
	for _, n := range with {
		for _, d := range cluster.GPUDevices(n) {
			for _, in := range d.Instances {
				if cluster.IsMIG(d) {
					ids[in.ID] = true
				}
			}
		}
	}
	return ids
}

// checkGate finds nodes whose meta opens the gate, and which therefore accept members of gangs that
// the placer has not placed.
func (s setup) checkGate() palapi.Check {
	var open []string
	for _, n := range s.m.State.Nodes {
		if s.m.State.Nodes.GateOpen(n.ID) {
			open = append(open, n.Name)
		}
	}
	slices.Sort(open)
	if len(open) > 0 {
		return check("gate", palapi.Fail, fmt.Sprintf("meta %s opens the gate on %s, so Nomad itself places single members of waiting gangs on these nodes, if the gate of the gang has the same value", rewrite.GateMeta, some(open)), fmt.Sprintf("nomad node meta apply -unset %s -node-id <id>, unless you want Nomad to place the jobs itself", rewrite.GateMeta))
	}
	return check("gate", palapi.OK, "closed on all nodes", "")
}

// CheckClocks compares the clocks of the active agent, Nomad's servers (written, servers) and the
// caller (now). servers and now were read at the same time. The heartbeat contains the time when the agent last worked, by its own clock, and Nomad
// records when the heartbeat was written. The clock of an agent in trouble is compared only if it
// is ahead.
func CheckClocks(beat store.Heartbeat, written, servers, now time.Time) palapi.Check {
	const most = 5 * time.Second
	here := servers.Sub(now).Abs()
	apart := written.Sub(beat.Worked)
	switch {
	case written.IsZero() || beat.Worked.IsZero():
		return check("clocks", palapi.Warn, "the clocks cannot be compared, because no agent has written a heartbeat", "")
	case apart > heartbeat.HeartbeatEvery && beat.Trouble == "" || apart < -most:
		return check("clocks", palapi.Warn, fmt.Sprintf("the clocks of the agent and of Nomad's servers differ by %s", apart.Abs().Round(time.Second)), "synchronize the clocks by NTP, because waiting times and quarantines are wrong by this difference")
	case here > most:
		return check("clocks", palapi.Warn, fmt.Sprintf("the clocks of this machine and of Nomad's servers differ by %s", here.Round(time.Second)), "synchronize the clocks by NTP")
	case beat.Trouble != "":
		return check("clocks", palapi.OK, "the clocks of this machine and of Nomad's servers agree within seconds; the agent's clock could not be compared, because the agent is unhealthy", "")
	}
	return check("clocks", palapi.OK, "the agent's and the servers' clocks agree within seconds", "")
}

// ChecksFailed returns the only check that doctor shows if it cannot read Nomad.
func ChecksFailed(err error) palapi.Check {
	c := check("reading nomad", palapi.Fail, err.Error(), NextServers)
	if nomad.Refused(err) {
		c.Next = "doctor needs a token that may read nodes, list jobs, and read the variables nomad-pal/*, for example the agent's token"
	}
	return c
}

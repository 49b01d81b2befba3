// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package request

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/ledger"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// sharedWorld is two nodes with four GPUs each, and two more GPUs, S-<node>-0 and -1, with four
// parts each.
func sharedWorld() *cluster.State {
	s := world(2)
	for _, n := range s.Nodes {
		parts := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu.shared", Name: "H200-SHARED", Attributes: map[string]*api.Attribute{}}
		for k := range 8 {
			parts.Instances = append(parts.Instances, &api.NodeDevice{ID: attr.PartID(fmt.Sprintf("S-%s-%d", n.Name, k/4), k%4), Healthy: true})
		}
		c := *n
		r := *n.NodeResources
		r.Devices = append(slices.Clone(r.Devices), parts)
		c.NodeResources = &r
		s.PutNode(&c)
	}
	return s
}

func sharedJob(id, device string, members, count int, meta string) string {
	return fmt.Sprintf(`job %q {
  type = "batch"
  meta { %s }
  constraint {
    attribute = "${meta.pal_gate}"
    value     = "open"
  }
  group "g" {
    count = %d
    ephemeral_disk { size = 10 }
    task "t" {
      driver = "raw_exec"
      config { command = "x" }
      resources {
        cpu    = 10
        memory = 10
        device %q { count = %d }
      }
    }
  }
}`, id, meta, members, device, count)
}

// placed are the instances that a job gets and then holds; "" if it does not fit.
func placed(t *testing.T, v *View, s *cluster.State, id, device string, members, count int, meta string) string {
	t.Helper()
	r, err := v.Request(addJob(t, s, sharedJob(id, device, members, count, meta), 1))
	if err != nil {
		t.Fatal(err)
	}
	pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
	if !ok {
		return pal.Explain(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL}).Reason.String()
	}
	v.Take(r.Gang, pl)
	var ids []string
	for _, u := range pl.GPUs() {
		ids = append(ids, v.Cluster.GPU(u).ID)
	}
	return strings.Join(ids, " ")
}

func sharedView(t *testing.T, s *cluster.State, quarantined ...string) *View {
	t.Helper()
	o := Options{DefaultClass: pal.ClassA, Ledger: ledger.Options{Locality: pal.TwoTier(1.7), Quarantined: map[string]bool{}}}
	for _, id := range quarantined {
		o.Ledger.Quarantined[id] = true
	}
	v, err := NewView(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Only jobs that request parts get them, each where it and its neighbours lose least.
func TestPartsOfGPUs(t *testing.T) {
	const parts = "nvidia/gpu.shared"
	s := sharedWorld()
	v := sharedView(t, s, "S-node-1-1") // quarantine of one part covers all parts of the GPU
	if r, err := v.Request(addJob(t, s, sharedJob("whole", "nvidia/gpu", 9, 1, ""), 1)); err != nil || r.Gang.Sharing != nil {
		t.Errorf("a job that requests GPUs: %+v, %v", r.Gang, err)
	}
	for _, step := range []struct {
		id, device     string
		members, count int
		meta, want     string
	}{
		{"whole", "nvidia/gpu", 9, 1, "", "the cluster has 8"},
		{"first", parts, 1, 1, `pal_class = "A"`, "S-node-0-0::0"},
		{"second", parts, 1, 1, `pal_class = "D"`, "S-node-0-1::0"},                                // an idle GPU
		{"alone", parts, 1, 1, `pal_neighbours = "none"`, "S-node-1-0::0"},                         // the other idle GPU
		{"none", parts, 1, 1, `pal_neighbours = "none"`, "do not accept each other as neighbours"}, // no GPU is idle
		{"third", parts + "/H200-SHARED", 1, 1, `pal_class = "A"`, "S-node-0-1::1"},                // beside D, not beside A
		{"picky", parts, 1, 1, `pal_neighbours = "B,C"`, "do not accept each other as neighbours"},
		{"gang", parts, 3, 1, "", "the job's members must not share a GPU"},
		{"wide", parts, 5, 1, "", "has room for 4 of 5 members: the job's members must not share a GPU"},
		{"near", parts, 3, 1, `pal_locality = "node"`, "has room for 2 of 3 members: the job's members must not share a GPU"},
		{"two", parts, 2, 1, `pal_class = "C"`, "S-node-0-0::1 S-node-0-1::2"},
		{"large", parts, 1, 3, "", "too scattered"},
		{"self", parts, 2, 1, `pal_neighbours = "any,self"`, "S-node-0-0::2 S-node-0-0::3"},
		{"last", parts, 1, 1, "", "S-node-0-1::3"},
		{"fifth", parts, 1, 1, "", "do not accept each other as neighbours"},
	} {
		if got := placed(t, v, s, step.id, step.device, step.members, step.count, step.meta); !strings.Contains(got, step.want) {
			t.Errorf("%s: %s, want %s", step.id, got, step.want)
		}
	}
}

// The placer learns from Nomad who holds the parts of a GPU, and who the neighbours
// are.
func TestPartsThatAreHeld(t *testing.T) {
	s := sharedWorld()
	addJob(t, s, sharedJob("there", "nvidia/gpu.shared", 1, 1, `pal_class = "A"`), 1)
	s.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.JobKey{Namespace: "default", ID: "there"}, Group: "g", Name: "there.g[0]", Node: "id-0",
		Desired: api.AllocDesiredStatusRun, Client: api.AllocClientStatusRunning, GPUs: []string{"S-node-0-0::2"}, ModifyIndex: 1})
	v := sharedView(t, s)
	r, err := v.Request(addJob(t, s, sharedJob("j", "nvidia/gpu.shared", 4, 1, `pal_class = "D"`), 1))
	if err != nil {
		t.Fatal(err)
	}
	d := pal.Explain(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
	if !d.Placed {
		t.Fatal(d.Reason)
	}
	on := map[string]bool{}
	for _, m := range d.Chosen.Members {
		gpu := attr.GPUOf(m.GPUs[0].ID)
		on[gpu] = true
		want := []pal.Neighbour(nil)
		if gpu == "S-node-0-0" {
			want = []pal.Neighbour{{Class: pal.ClassA, Members: 1, Costs: pal.Interference(pal.ClassD, pal.ClassA), CostsThem: pal.Interference(pal.ClassA, pal.ClassD)}}
		}
		if !slices.Equal(m.Neighbours, want) {
			t.Errorf("neighbours on %s: %+v, want %+v", gpu, m.Neighbours, want)
		}
	}
	if len(on) != 4 {
		t.Errorf("four members are on %v, want one on each shared GPU", on)
	}
	pins := v.Pins(r, mustPlace(t, v, r.Gang))
	if got := pins.GPUs(); len(got) != 4 || slices.Contains(got, "S-node-0-0::2") {
		t.Errorf("pins %v", got)
	}
}

func mustPlace(t *testing.T, v *View, g pal.Gang) pal.Placement {
	t.Helper()
	pl, ok := pal.Place(v.Cluster, g, pal.Policy{Name: pal.PAL})
	if !ok {
		t.Fatal("the job does not fit")
	}
	return pl
}

// The replicas of a service are spread over nodes, then over GPUs. They only prefer these nodes. If
// the members need each other, Nomad may choose any part of these GPUs.
func TestReplicasOnParts(t *testing.T) {
	s := sharedWorld()
	v := sharedView(t, s)
	hcl := strings.Replace(sharedJob("web", "nvidia/gpu.shared", 4, 1, ""), `type = "batch"`, `type = "service"`, 1)
	r, err := v.Request(addJob(t, s, hcl, 1))
	if err != nil {
		t.Fatal(err)
	}
	pl := mustPlace(t, v, r.Gang)
	on := map[string]int{}
	for _, u := range pl.GPUs() {
		on[attr.GPUOf(v.Cluster.GPU(u).ID)]++
	}
	if len(on) != 4 {
		t.Errorf("four replicas are on %v", on)
	}
	if got := v.Pins(r, pl); got.Mode != rewrite.ModePrefer || len(got.GPUs()) > 0 || !got.Groups[0].Spread {
		t.Errorf("pins of a service: %+v", got)
	}
	r, err = v.Request(addJob(t, s, strings.Replace(hcl, "meta {", "meta {\n    pal_on_failure = \"gang\"\n", 1), 2))
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Pins(r, mustPlace(t, v, r.Gang)).GPUs(); len(got) != 16 {
		t.Errorf("pins name %v, want all parts of four GPUs", got)
	}
}

// Members that request different numbers of parts might land on one GPU, and are refused unless they
// allow that.
func TestUnlikePartsOfAGang(t *testing.T) {
	const parts, whole = "nvidia/gpu.shared", "nvidia/gpu"
	for _, c := range []struct {
		name, meta, chief string
		count             int
		want              string
	}{
		{"more", "", parts, 2, "cannot keep members on different GPUs"},
		{"together", `pal_neighbours = "any,self"`, parts, 2, ""},
		{"alike", "", parts, 1, ""},
		{"whole", "", whole, 2, ""},
	} {
		s := sharedWorld()
		v := sharedView(t, s)
		hcl := sharedJob(c.name, parts, 2, 1, c.meta)
		from := strings.Index(hcl, "  group")
		chief := strings.NewReplacer(`group "g"`, `group "chief"`, strconv.Quote(parts)+" { count = 1 }", fmt.Sprintf("%q { count = %d }", c.chief, c.count)).Replace(hcl[from:])
		r, err := v.Request(addJob(t, s, hcl[:from]+strings.TrimSuffix(hcl[from:], "}")+chief, 1))
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		on := map[string]int{}
		for _, m := range mustPlace(t, v, r.Gang).Members {
			on[attr.GPUOf(v.Cluster.GPU(m.GPUs[0]).ID)]++
		}
		for gpu, n := range on {
			if n > 1 && c.meta == "" {
				t.Errorf("%s: %d members are on %s", c.name, n, gpu)
			}
		}
	}
}

// What earlier runs show about neighbours replaces the table, for the job and for its neighbours, and
// the request says on how many runs it is based.
func TestNeighboursByEarlierRuns(t *testing.T) {
	s := sharedWorld()
	there := addJob(t, s, sharedJob("there", "nvidia/gpu.shared", 1, 1, `pal_class = "A"`), 1)
	s.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.KeyOf(there), Group: "g", Name: "there.g[0]", Node: "id-0",
		Desired: api.AllocDesiredStatusRun, Client: api.AllocClientStatusRunning, GPUs: []string{"S-node-0-0::2"}, ModifyIndex: 1})
	job := addJob(t, s, sharedJob("j", "nvidia/gpu.shared", 4, 1, `pal_class = "D"`), 1)
	var runs queue.PastRuns
	runs.Beside[pal.ClassA.Index()] = queue.RunsBeside{Runs: 5, Alone: 7, Times: 4, Err: 0}
	asked := 0
	v, err := NewView(s, Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}, DefaultClass: pal.ClassA,
		Runs: func(_ *api.Job, gpus int) queue.PastRuns { asked = gpus; return runs },
		Slower: func(k cluster.JobKey) (slower [pal.NumClasses]float64) {
			if k == cluster.KeyOf(there) {
				slower[pal.ClassD.Index()] = 3
			}
			return slower
		}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Request(job)
	if err != nil {
		t.Fatal(err)
	}
	if from := r.NeighboursFrom; asked != 4 || len(from) != 1 || from[pal.ClassA] != "100 % from 5 runs beside this class and 7 runs alone; 0 % from the table" {
		t.Errorf("from runs on %d GPUs: %v", asked, from)
	}
	for _, m := range pal.Explain(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL}).Chosen.Members {
		if attr.GPUOf(m.GPUs[0].ID) == "S-node-0-0" {
			if n := m.Neighbours; len(n) != 1 || n[0].Costs != 3 || n[0].CostsThem != 2 {
				t.Errorf("want 4 times as long beside A, and the neighbour 3 times as long beside D: %+v", n)
			}
			return
		}
	}
	t.Error("no member has a neighbour")
}

// No job waits for the part of a job that never ends, or whose end the placer does not know: a
// service, and a job that Nomad placed alone. A running job that its author registered again, with
// the gate, is still the placer's, unless a node satisfies the gate.
func TestWhoseParts(t *testing.T) {
	s := sharedWorld()
	o := Options{Ledger: ledger.Options{Locality: pal.TwoTier(1.7)}, DefaultClass: pal.ClassA}
	v, err := NewView(s, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind   string
		ours   bool
		itself bool // the waiting job is itself such a job to the placer
		stays  bool
	}{
		{"batch", true, false, false},
		{"batch", false, false, true},
		{"service", true, true, true},
	} {
		hcl := strings.Replace(sharedJob("j", "nvidia/gpu.shared", 1, 1, ""), `type = "batch"`, fmt.Sprintf("type = %q", c.kind), 1)
		job := addJob(t, s, hcl, 1)
		r, err := v.Request(job)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Gang.Sharing.Stays; got != c.itself {
			t.Errorf("a waiting %s stays: %v", c.kind, got)
		}
		if job = rewrite.Open(job); c.ours {
			pl, ok := pal.Place(v.Cluster, r.Gang, pal.Policy{Name: pal.PAL})
			if !ok {
				t.Fatal("the job does not fit")
			}
			if job, err = v.Pin(job, v.Pins(r, pl)); err != nil {
				t.Fatal(err)
			}
		}
		s.PutJob(job)
		if got := o.occupants(s)(cluster.KeyOf(job)).Sharing.Stays; got != c.stays {
			t.Errorf("a running %s, placed by the placer (%v), stays: %v", c.kind, c.ours, got)
		}
	}
	gated := addJob(t, s, sharedJob("gated", "nvidia/gpu.shared", 1, 1, ""), 1)
	for i, want := range []bool{false, true} { // events with a lower index are ignored
		created := *gated.JobModifyIndex - 1 + 2*uint64(i)
		s.PutAlloc(&cluster.Alloc{ID: "a", Job: cluster.KeyOf(gated), Group: "g", Name: "gated.g[0]", Node: "id-0", CreateIndex: created,
			Desired: api.AllocDesiredStatusRun, Client: api.AllocClientStatusRunning, GPUs: []string{"S-node-0-0::2"}, ModifyIndex: created})
		if got := o.occupants(s)(cluster.KeyOf(gated)).Sharing.Stays; got != want {
			t.Errorf("a batch job with the gate, registered at %d, whose member was created at %d, stays: %v", *gated.JobModifyIndex, created, got)
		}
	}
	if !o.occupants(s)(cluster.JobKey{Namespace: "default", ID: "purged"}).Sharing.Stays {
		t.Error("a job that Nomad no longer has does not stay")
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// world is a Queue and a cluster. It carries out the commands of a story, and the decisions of the
// Queue.
type world struct {
	queue   *Queue
	cluster *pal.Cluster
	now     time.Duration
	gangs   map[string]pal.Gang
	places  map[string]pal.Placement
	manual  bool // actions are not reported automatically
}

// TestStories runs the stories in testdata, one file for each rule of the queue.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := w.do(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

func (w *world) do(t *testing.T, d *datadriven.TestData) (string, error) {
	var at int
	if d.HasArg("at") {
		d.ScanArgs(t, "at", &at)
		w.now = time.Duration(at) * time.Minute
	}
	switch d.Cmd {
	case "open":
		return "", w.open(t, d)
	case "submit":
		for _, s := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			if err := w.submit(s); err != nil {
				return "", err
			}
		}
		return w.decide(), nil
	case "end", "remove", "stopped", "kept", "settled", "requeue", "started":
		for _, id := range strings.Fields(d.Input) {
			w.report(d.Cmd, id)
		}
		return w.decide(), nil
	case "wait":
		return w.decide(), nil
	case "queue":
		var b strings.Builder
		for _, x := range w.queue.Waiting(w.now, w.cluster) {
			if !slices.Contains(Reasons, x.Reason) {
				t.Errorf("%s waits for the reason %q, which Reasons lacks", x.Job, x.Reason)
			}
			fmt.Fprintln(&b, x)
		}
		return b.String(), nil
	case "expect":
		var b strings.Builder
		for _, x := range w.queue.Waiting(w.now, w.cluster) {
			fmt.Fprintf(&b, "%s between %v and %v, behind %q with %g GPUs ahead\n", x.Job, x.From, x.To, x.Ahead, x.AheadGPUs)
		}
		return b.String(), nil
	case "change":
		return w.change(d.Input), nil
	case "windows":
		return "", w.windows(d.Input)
	case "tenants":
		return w.tenants(), nil
	case "wake":
		at, ok := w.queue.Wake(w.now)
		if !ok {
			return "never\n", nil
		}
		return fmt.Sprintf("%v\n", at), nil
	}
	return "", fmt.Errorf("command %q", d.Cmd)
}

// open creates a queue, and a cluster of nodes with four GPUs. For class A, the GPU slow has a PM
// score of 2, and the GPU fast one of 0.5.
func (w *world) open(t *testing.T, d *datadriven.TestData) error {
	nodes, order, maxWait, slow, fast := 2, "fifo", 720, "", -1
	o := Options{Placement: pal.Policy{Name: pal.PAL}}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "nodes":
			d.ScanArgs(t, "nodes", &nodes)
		case "order":
			d.ScanArgs(t, "order", &order)
		case "max-wait":
			d.ScanArgs(t, "max-wait", &maxWait)
		case "slow":
			d.ScanArgs(t, "slow", &slow)
		case "fast":
			d.ScanArgs(t, "fast", &fast)
		case "backfill":
			o.Backfill = BackfillReserved
			if len(a.Vals) == 1 {
				o.Backfill = Backfill(a.Vals[0])
			}
		case "starts":
			d.ScanArgs(t, "starts", &o.Starts)
		case "preempt":
			o.Preempt = true
		case "migrate":
			o.Migrate = true
		case "fair":
			o.FairShare = true
		case "quota":
			var gpus int
			d.ScanArgs(t, "quota", &gpus)
			o.Tenants = map[string]Tenant{"a": {Quota: gpus, BorrowingLimit: new(int)}}
		case "half":
			var minutes int
			d.ScanArgs(t, "half", &minutes)
			o.HalfLife = time.Duration(minutes) * time.Minute
		case "priorities":
			o.JobPriority = true
		case "locality-wait":
			o.LocalityWait = true
		case "outliers":
			o.OutlierThreshold = DefaultOutlierThreshold
		case "manual":
		default:
			return fmt.Errorf("argument %q", a.Key)
		}
	}
	if err := readTenants(d.Input, &o); err != nil {
		return err
	}
	o.Order, o.MaxWait = Order(order), time.Duration(maxWait)*time.Minute
	q, err := New(o)
	if err != nil {
		return err
	}
	all := testNodes(nodes, slow)
	if fast >= 0 {
		u := &all[fast/4].Groups[0].GPUs[fast%4]
		u.Scores[0], u.Binned[0] = 0.5, 0.5
	}
	w.cluster, err = pal.NewCluster(all, pal.TwoTier(1.7))
	w.queue, w.now, w.manual = q, 0, d.HasArg("manual")
	w.gangs, w.places = map[string]pal.Gang{}, map[string]pal.Placement{}
	return err
}

func testNodes(n int, slow string) []pal.Node {
	var nodes []pal.Node
	for i := range n {
		var gpus []pal.GPU
		for j := range 4 {
			u := pal.GPU{ID: fmt.Sprint(4*i + j)}
			if slow == u.ID {
				u.Scores[0], u.Binned[0] = 2, 2
			}
			gpus = append(gpus, u)
		}
		nodes = append(nodes, pal.Node{ID: fmt.Sprint(i), Datacenter: "dc", Groups: []pal.DeviceGroup{{Name: "g", GPUs: gpus}}})
	}
	return nodes
}

// submit submits the job of a line "id gpus [key=value …]".
func (w *world) submit(s string) error {
	f := strings.Fields(s)
	var gpus int
	if _, err := fmt.Sscan(f[1], &gpus); err != nil {
		return err
	}
	j := Job{ID: f[0], Gang: pal.SingleGPUs(f[0], pal.ClassA, gpus), Submitted: w.now}
	for _, kv := range f[2:] {
		k, v, _ := strings.Cut(kv, "=")
		var n int
		_, _ = fmt.Sscan(v, &n)
		switch k {
		case "est":
			j.Estimate = time.Duration(n) * time.Minute
		case "limit":
			j.Limit = time.Duration(n) * time.Minute
		case "prio":
			j.Priority = n
		case "tenant":
			j.Tenant = v
		case "user":
			j.User = v
		case "array":
			j.Array, j.ArrayParallel = "array", n
		case "name":
			j.Name = v
		case "pre":
			j.Preemptible, j.RestartCost = true, time.Minute
		case "least":
			j.Least, j.RestartCost = n, time.Minute
		case "endless":
			j.Endless = true
		case "together": // one member with all GPUs
			j.Gang.MemberSets = []pal.MemberSet{{Members: 1, GPUs: gpus}}
		case "mig":
			j.Migratable, j.RestartCost = true, time.Minute
		default:
			return fmt.Errorf("job attribute %q", kv)
		}
	}
	w.gangs[j.ID] = j.Gang
	return w.queue.Submit(w.now, j)
}

// change takes lines "id gpus [tenant [user]]", and asks where each of these running gangs could
// run with this number of GPUs instead.
func (w *world) change(lines string) string {
	var b strings.Builder
	for _, s := range strings.Split(strings.TrimSpace(lines), "\n") {
		var id, tenant, user string
		var gpus int
		_, _ = fmt.Sscan(s, &id, &gpus, &tenant, &user)
		had := w.places[id]
		w.cluster.Release(w.gangs[id], had)
		free := w.cluster.FreeGPUs()
		j := Job{ID: id, Tenant: tenant, User: user, Gang: pal.SingleGPUs(id, pal.ClassA, gpus), Estimate: time.Hour}
		f, wait, ok := w.queue.RoomFor(w.now, w.cluster, j)
		if w.cluster.FreeGPUs() != free {
			return "RoomFor changed the cluster\n"
		}
		w.cluster.Take(w.gangs[id], had)
		if ok {
			fmt.Fprintf(&b, "%s goes to %s\n", id, w.names(f.Placement))
		} else {
			fmt.Fprintf(&b, "%s: %s\n", id, wait.Why())
		}
	}
	return b.String()
}

func (w *world) release(id string) {
	if p, ok := w.places[id]; ok {
		w.cluster.Release(w.gangs[id], p)
		delete(w.places, id)
	}
}

func (w *world) report(what, id string) {
	switch what {
	case "end":
		w.release(id)
		w.queue.Finished(w.now, id)
	case "remove":
		w.release(id)
		w.queue.Removed(w.now, id)
	case "stopped":
		w.release(id)
		w.queue.Stopped(w.now, id)
	case "settled":
		w.queue.Settled(id)
	case "kept":
		w.queue.NotStopped(id)
	case "requeue":
		w.queue.Requeue(w.now, id)
	case "started":
		p := w.queue.entries[id].placement
		w.cluster.Take(w.gangs[id], p)
		w.places[id] = p
		w.queue.Started(w.now, id, p)
	}
}

// decide calls Decide and carries out the decisions, until Decide returns none.
func (w *world) decide() string {
	var b strings.Builder
	for {
		free := w.cluster.FreeGPUs()
		actions := w.queue.Decide(w.now, w.cluster)
		if w.cluster.FreeGPUs() != free {
			return "Decide changed the cluster\n"
		}
		for _, a := range actions {
			fmt.Fprint(&b, a.Kind, " ", a.Job)
			if a.Kind != Preempt {
				fmt.Fprint(&b, " on ", w.names(a.Placement))
			}
			if a.For != "" {
				fmt.Fprint(&b, " for ", a.For)
			}
			fmt.Fprintln(&b)
			if !w.manual {
				w.carryOut(a)
			}
		}
		if len(actions) == 0 || w.manual {
			break
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (w *world) carryOut(a Action) {
	if a.Kind != Start {
		w.release(a.Job)
	}
	if a.Kind == Preempt {
		w.queue.Stopped(w.now, a.Job)
		return
	}
	w.cluster.Take(w.gangs[a.Job], a.Placement)
	w.places[a.Job] = a.Placement
	w.queue.Started(w.now, a.Job, a.Placement)
}

func (w *world) names(p pal.Placement) string {
	var ids []string
	for _, u := range p.GPUs() {
		ids = append(ids, w.cluster.GPU(u).ID)
	}
	return strings.Join(ids, ",")
}

// TestStaleCluster: the Queue decides correctly if the cluster shows that a member has ended or a
// GPU has failed before that is reported to the Queue.
func TestStaleCluster(t *testing.T) {
	for _, what := range []string{"ended", "failed"} {
		w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
		q, err := New(Options{Order: FIFO, JobPriority: true, Backfill: BackfillReserved, Preempt: true, Migrate: true, LocalityWait: true, OutlierThreshold: 1.5,
			Placement: pal.Policy{Name: pal.PAL}})
		if err != nil {
			t.Fatal(err)
		}
		w.queue = q
		if w.cluster, err = pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7)); err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"a 4 prio=1 pre=1", "b 4 prio=1 pre=1"} {
			if err := w.submit(s); err != nil {
				t.Fatal(err)
			}
		}
		w.decide()
		if what == "ended" {
			w.cluster.Release(w.gangs["a"], w.places["a"])
		} else {
			w.cluster.SetHealth(w.places["a"].GPUs()[0], pal.Health{Unhealthy: true})
		}
		w.now, w.manual = time.Hour, true
		if err := w.submit("c 8 prio=9"); err != nil {
			t.Fatal(err)
		}
		got := w.decide() // must not panic
		if want := map[string]string{"ended": "preempt b for c\n", "failed": "nothing\n"}[what]; got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		w.queue.Waiting(w.now, w.cluster)
	}
}

// TestWaitingSurvivesRestart: after a restart, the placer still knows which gangs are overdue.
func TestWaitingSurvivesRestart(t *testing.T) {
	q, err := New(Options{Order: SRTF, Backfill: BackfillBestEffort, MaxWait: time.Hour, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	gang := func(id string, n int) pal.Gang { return pal.SingleGPUs(id, pal.ClassA, n) }
	if err := q.Restore(Job{ID: "runs", Gang: gang("runs", 1)}, pal.Placement{Members: []pal.Member{{GPUs: []int{0}}}, PMScore: 1, Penalty: 1}, 0); err != nil {
		t.Fatal(err)
	}
	c.SetTaken(0, true)
	now := 10 * time.Hour
	for id, submitted := range map[string]time.Duration{"old": now - 2*time.Hour, "new": now} {
		if err := q.Submit(now, Job{ID: id, Gang: gang(id, map[string]int{"old": 4, "new": 1}[id]), Submitted: submitted, Estimate: 100 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if got := q.Decide(now, c); len(got) != 0 {
		t.Errorf("decided %v past a gang that has waited for 2 hours", got)
	}
	if ws := q.Waiting(now, c); len(ws) != 2 || ws[0].Job != "old" || !ws[0].Overdue {
		t.Errorf("waiting: %v", ws)
	}
}

// TestRoomForWhatTheQueueHasNotHeard: RoomFor works if members of a shrinking gang have ended, but
// the queue does not know that yet.
func TestRoomForWhatTheQueueHasNotHeard(t *testing.T) {
	w := &world{gangs: map[string]pal.Gang{}, places: map[string]pal.Placement{}}
	q, err := New(Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	if err != nil {
		t.Fatal(err)
	}
	w.queue = q
	if w.cluster, err = pal.NewCluster(testNodes(1, ""), pal.TwoTier(1.7)); err != nil {
		t.Fatal(err)
	}
	if err := w.submit("a 4 least=1"); err != nil {
		t.Fatal(err)
	}
	w.decide()
	w.now, w.manual = time.Hour, true
	if err := w.submit("b 2"); err != nil {
		t.Fatal(err)
	}
	if got, want := w.decide(), "resize a on 0,1 for b\n"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	if err := w.submit("c 4"); err != nil {
		t.Fatal(err)
	}
	w.cluster.Release(w.gangs["a"], w.places["a"])
	j := Job{ID: "a", Gang: pal.SingleGPUs("a", pal.ClassA, 3)}
	if _, wait, ok := q.RoomFor(w.now, w.cluster, j); ok || wait.Reason != reason.GPUs {
		t.Errorf("room: %v, %s", ok, wait.Why())
	}
}

// TestRoomForCountsItsOwn: RoomFor returns the number of free GPUs that an edited gang cannot use,
// as Waiting does for a waiting gang.
func TestRoomForCountsItsOwn(t *testing.T) {
	c, err := pal.NewCluster(testNodes(2, ""), pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Placement: pal.Policy{Name: pal.PAL}})
	_, free := c.GroupGPUs(0)
	g := pal.SingleGPUs("a", pal.ClassA, free+1)
	g.MemberSets[0].Eligible = make([]bool, c.Groups())
	g.MemberSets[0].Eligible[0] = true
	_, w, _ := q.RoomFor(0, c, Job{ID: "a", Gang: g})
	if w.Reason != reason.TooLarge || w.Free != free || w.FreeOthers != c.NumGPUs()-free {
		t.Errorf("%s: %d free and %d for others, want %d and %d", w.Why(), w.Free, w.FreeOthers, free, c.NumGPUs()-free)
	}
}

// TestRoomForShrinkingGang: if a gang is edited while it shrinks, its GPUs and CPU are already free
// in the cluster. So no end of a member frees its CPU once more. The gang does not get back the
// GPUs that its leaving members free for another gang.
func TestRoomForShrinkingGang(t *testing.T) {
	nodes := testNodes(2, "")
	nodes[0].Free, nodes[1].Free = pal.Resources{CPU: 6}, pal.Resources{CPU: 4}
	c, err := pal.NewCluster(nodes, pal.TwoTier(1.7))
	if err != nil {
		t.Fatal(err)
	}
	q := newTestLine(t, Options{Order: FIFO, Backfill: BackfillReserved, Placement: pal.Policy{Name: pal.PAL}})
	gang := func(id string, gpus int, cpu int) pal.Gang {
		g := pal.SingleGPUs(id, pal.ClassA, gpus)
		g.MemberSets[0].Need = pal.Resources{CPU: cpu}
		return g
	}
	places := map[string]pal.Placement{}
	runs := func(j Job, gpus ...int) {
		var ms []pal.Member
		for _, u := range gpus {
			ms = append(ms, pal.Member{Group: c.GroupOf(u), GPUs: []int{u}})
		}
		places[j.ID] = pal.Predict(c, j.Gang, ms)
		c.Take(j.Gang, places[j.ID])
		if err := q.Restore(j, places[j.ID], 0); err != nil {
			t.Fatal(err)
		}
	}
	a := Job{ID: "a", Gang: gang("a", 3, 1), Least: 2, Estimate: 30 * time.Minute}
	runs(a, 0, 1, 2)
	runs(Job{ID: "x", Gang: gang("x", 1, 3), Estimate: 100 * time.Minute}, 3)
	firm := Job{ID: "firm", Gang: gang("firm", 4, 0), Estimate: 100 * time.Minute}
	runs(firm, 4, 5, 6, 7)
	for _, j := range []Job{{ID: "b", Gang: gang("b", 1, 0), Estimate: 200 * time.Minute}, {ID: "head", Gang: gang("head", 1, 5)}} {
		if err := q.Submit(0, j); err != nil {
			t.Fatal(err)
		}
	}
	if got := q.Decide(0, c); len(got) != 1 || got[0].Kind != Resize {
		t.Fatalf("decided %v, want that a gives up a member", got)
	}
	q.Finished(0, "firm")
	c.Release(firm.Gang, places["firm"])
	c.Release(a.Gang, places["a"])
	a.Gang, a.Least, a.Estimate = gang("a", 6, 1), 0, 30*time.Minute
	if _, w, ok := q.RoomFor(0, c, a); !ok {
		t.Errorf("%s: want room, as the head starts after 100 minutes", w.Why())
	}
	a.Gang = gang("a", 7, 0)
	if _, w, ok := q.RoomFor(0, c, a); ok || w.Reason != reason.GPUs {
		t.Errorf("room %v (%s), also on the GPU that b gets", ok, w.Why())
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httputil"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// benchState is a cluster of n nodes × 8 GPUs, half of them busy, with waiting
// gangs of 2 × 4 GPUs.
func benchState(nodes, waiting int) (*cluster.State, *profile.Profile, error) {
	s := cluster.NewState()
	var samples []profile.Sample
	for n := range nodes {
		d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H200"}
		var ids []string
		for k := range 8 {
			id := fmt.Sprintf("GPU-%05d-%d", n, k)
			ids = append(ids, id)
			d.Instances = append(d.Instances, &api.NodeDevice{ID: id, Healthy: true})
			for i, class := range pal.AppClasses() {
				samples = append(samples, profile.Sample{GPU: id, Model: "H200", App: class, Time: 1 + float64((n*8+k)*(i+7)%97)/1000})
			}
		}
		node := &api.Node{
			ID: fmt.Sprintf("node-id-%05d", n), Name: fmt.Sprintf("node-%05d", n), Datacenter: "dc1", NodePool: "default",
			Status: "ready", SchedulingEligibility: "eligible", Attributes: map[string]string{"driver.raw_exec": "1"},
			NodeResources: &api.NodeResources{
				Cpu: api.NodeCpuResources{CpuShares: 100000}, Memory: api.NodeMemoryResources{MemoryMB: 1000000},
				Disk: api.NodeDiskResources{DiskMB: 1000000}, Devices: []*api.NodeDeviceResource{d},
			},
		}
		s.Nodes[node.ID] = node
		s.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("a", n), Job: cluster.JobKey{Namespace: "default", ID: fmt.Sprint("busy", n)}, Group: "g",
			Node: node.ID, Desired: "run", Client: "running", GPUs: ids[:4],
		})
	}
	for i := range waiting {
		job := benchJob(fmt.Sprintf("job-%04d", i), uint64(i+1))
		job.Version, job.SubmitTime = new(uint64), new(time.Now().UnixNano()+int64(i)) // it has no earlier versions to read, and is not overdue
		s.PutJob(rewrite.Gate(job))
	}
	p, err := profile.Build(samples, profile.DefaultOptions(), nil)
	return s, p, err
}

func benchJob(id string, index uint64) *api.Job {
	ns, kind, group, status := "default", "batch", "g", "pending"
	count, gpus, cpu, priority, submitted := 2, uint64(4), 100, 50, int64(index)
	return &api.Job{
		ID: &id, Name: &id, Namespace: &ns, Type: &kind, Status: &status, Priority: &priority, Datacenters: []string{"*"},
		Version: &index, ModifyIndex: &index, JobModifyIndex: &index, SubmitTime: &submitted,
		TaskGroups: []*api.TaskGroup{{Name: &group, Count: &count, Tasks: []*api.Task{{
			Name: "t", Driver: "raw_exec", Resources: &api.Resources{
				CPU: &cpu, MemoryMB: &cpu, Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &gpus}},
			},
		}}}},
	}
}

// benchPlacer is a placer that has the state and makes no requests.
func benchPlacer(b testing.TB, s *cluster.State, prof *profile.Profile) *Placer {
	p, err := New(nil, model.DefaultConfig(), hclog.NewNullLogger(), Hooks{})
	if err != nil {
		b.Fatal(err)
	}
	o := p.m.Cfg.QueueOptions()
	o.Starts = 0 // all in one pass
	if p.m.Queue, err = queue.New(o); err != nil {
		b.Fatal(err)
	}
	p.m.State, p.m.Profile = s, prof
	if err := p.m.UpdateView(time.Now()); err != nil { // the first builds everything
		b.Fatal(err)
	}
	return p
}

// fill makes the nodes from…to-1 of benchState fully busy.
func fill(s *cluster.State, from, to int) {
	for n := from; n < to; n++ {
		var ids []string
		for k := 4; k < 8; k++ {
			ids = append(ids, fmt.Sprintf("GPU-%05d-%d", n, k))
		}
		s.PutAlloc(&cluster.Alloc{
			ID: fmt.Sprint("b", n), Job: cluster.JobKey{Namespace: "default", ID: fmt.Sprint("more", n)}, Group: "g",
			Node: fmt.Sprintf("node-id-%05d", n), Desired: "run", Client: "running", GPUs: ids,
		})
	}
}

// pass does the work of one cycle without requests to Nomad, after an event about one allocation:
// it updates the view and the queue, decides, and computes reasons and pins. It commits nothing, so
// the queue does not change.
func (p *Placer) pass(b testing.TB, want int) {
	now := time.Now()
	for _, a := range p.m.State.AllocsOf(cluster.JobKey{Namespace: "default", ID: "busy7"}) {
		p.m.State.PutAlloc(a)
	}
	if err := p.m.UpdateView(now); err != nil {
		b.Fatal(err)
	}
	p.m.Time = now
	p.track(b.Context())
	p.reconcileAll(func(t *model.Tracked) { p.step(b.Context(), t, gang.Reconcile{}) })
	p.syncQueue(b.Context())
	actions := p.m.Queue.Decide(gang.QueueTime(now), p.m.View.Cluster)
	for _, a := range actions {
		t := p.m.ByID(a.Job)
		p.prepare(t, a.Found, now)
		p.m.View.Take(t.Request.Gang, a.Placement)
	}
	if len(actions) != want {
		b.Fatalf("%d of %d started", len(actions), want)
	}
	for _, a := range actions { // as if the commit had failed
		p.m.View.Release(p.m.ByID(a.Job).Request.Gang, a.Placement)
		p.m.Queue.Requeue(gang.QueueTime(now), a.Job)
	}
}

// outliers is a profile of the state's GPUs in which 1 in 64 is twice as slow as
// the others.
func outliers(s *cluster.State) (*profile.Profile, error) {
	var samples []profile.Sample
	for n := range len(s.Nodes) {
		for k := range 8 {
			for i, class := range pal.AppClasses() {
				t := 1 + float64((n*8+k)*(i+7)%97)/1000
				if (n*8+k)%64 == 7 {
					t = 2
				}
				samples = append(samples, profile.Sample{GPU: fmt.Sprintf("GPU-%05d-%d", n, k), Model: "H200", App: class, Time: t})
			}
		}
	}
	return profile.Build(samples, profile.DefaultOptions(), nil)
}

// threeModels gives the nodes of the state three GPU models in turn, and the jobs hints how fast
// they run on each.
func threeModels(s *cluster.State, waiting int) (*profile.Profile, error) {
	models := []string{"NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "Tesla T4"}
	var samples []profile.Sample
	for n := range len(s.Nodes) {
		d := s.Nodes[fmt.Sprintf("node-id-%05d", n)].NodeResources.Devices[0]
		d.Name = models[n%3]
		for k := range 8 {
			for i, class := range pal.AppClasses() {
				samples = append(samples, profile.Sample{GPU: fmt.Sprintf("GPU-%05d-%d", n, k), Model: d.ID(), App: class, Time: 1 + float64((n*8+k)*(i+7)%97)/1000})
			}
		}
	}
	for i := range waiting {
		job := benchJob(fmt.Sprintf("job-%04d", i), uint64(i+1))
		job.Version, job.SubmitTime = new(uint64), new(time.Now().UnixNano()+int64(i))
		job.Meta = map[string]string{"pal_speed": fmt.Sprintf("%s=1, %s=0.%d, %s=0.%d", models[0], models[1], 4+i%5, models[2], 1+i%7)}
		s.PutJob(rewrite.Gate(job))
	}
	return profile.Build(samples, profile.DefaultOptions(), nil)
}

// report reports as benchmark metrics the p50, the p99, and the time for each of n decisions.
func report(b *testing.B, took []time.Duration, n int) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)/2])/float64(n), "ms/decision")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDecide measures a pass at 10,000 nodes × 8 GPUs, half of them busy, with one gang of 2 ×
// 4 GPUs, and with a queue of 1,000. It repeats that with 1 GPU in 64 an outlier: the queue avoids
// outliers, and the reasons search for them again. It repeats both on three GPU models, with jobs
// whose speeds are known.
func BenchmarkDecide(b *testing.B) {
	for _, bc := range []struct {
		gangs    int
		outliers bool
		models   bool
	}{{gangs: 1}, {gangs: 1, models: true}, {gangs: 1000}, {gangs: 1000, outliers: true}, {gangs: 1000, models: true}} {
		waiting, name := bc.gangs, fmt.Sprintf("gangs=%d", bc.gangs)
		if bc.outliers {
			name += "-outliers"
		}
		if bc.models {
			name += "-models"
		}
		b.Run(name, func(b *testing.B) {
			s, prof, err := benchState(10000, waiting)
			if bc.outliers && err == nil {
				prof, err = outliers(s)
			}
			if bc.models && err == nil {
				prof, err = threeModels(s, waiting)
			}
			if err != nil {
				b.Fatal(err)
			}
			p := benchPlacer(b, s, prof)
			p.pass(b, waiting) // reads the jobs
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				p.pass(b, waiting)
				took = append(took, time.Since(began))
			}
			report(b, took, waiting)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "heap-MB")
			runtime.KeepAlive(p)
		})
	}
}

// BenchmarkFree measures one decision at 10,000 nodes, for several numbers of free GPUs.
func BenchmarkFree(b *testing.B) {
	for _, nodes := range []int{100, 1000, 2500, 5000, 10000} {
		b.Run(fmt.Sprintf("free=%d", 4*nodes), func(b *testing.B) {
			s, prof, err := benchState(10000, 1)
			if err != nil {
				b.Fatal(err)
			}
			fill(s, nodes, 10000)
			p := benchPlacer(b, s, prof)
			p.pass(b, 1)
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				p.pass(b, 1)
				took = append(took, time.Since(began))
			}
			report(b, took, 1)
		})
	}
}

// BenchmarkEvent measures a cycle after an event with nothing to decide, while 10,000 gangs wait.
func BenchmarkEvent(b *testing.B) {
	p := crowded(b, 10000, 10000)
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		p.pass(b, 0)
		took = append(took, time.Since(began))
	}
	report(b, took, 1)
}

// crowded is a placer on a full cluster with n waiting gangs.
func crowded(b testing.TB, nodes, waiting int) *Placer {
	s, prof, err := benchState(nodes, waiting)
	if err != nil {
		b.Fatal(err)
	}
	fill(s, 0, nodes)
	p := benchPlacer(b, s, prof)
	p.pass(b, 0)
	return p
}

// publisher returns the function by which a crowded placer publishes a snapshot.
func publisher(b testing.TB, nodes, waiting int) (publish func()) {
	p, now := crowded(b, nodes, waiting), time.Now()
	return func() {
		now = now.Add(time.Hour)
		p.publish(now)
		p.Status()
	}
}

// Between two cycles most jobs do not change. A cycle does nothing about them, whether they run or
// wait: with 10,000 jobs in the queue that would take milliseconds.
func TestCycleLooksAtWhatChanged(t *testing.T) {
	p := crowded(t, 20, 500)
	if allocs := testing.AllocsPerRun(10, func() { p.pass(t, 0) }); allocs > 200 {
		t.Errorf("%v memory allocations in a cycle after one allocation changed, while 500 gangs wait", allocs)
	}
}

// Explaining waiting gangs searches the cluster once per kind of gang, not once per gang.
func TestPublishLooksOnceForWhatIsAlike(t *testing.T) {
	few, many := testing.AllocsPerRun(3, publisher(t, 10, 100)), testing.AllocsPerRun(3, publisher(t, 300, 100))
	if many > 3*few {
		t.Errorf("%v memory allocations on 10 nodes, %v on 300", few, many)
	}
}

// BenchmarkPublish measures publishing a snapshot, which happens at most once a second.
func BenchmarkPublish(b *testing.B) {
	publish := publisher(b, 10000, 1000)
	for b.Loop() {
		publish()
	}
}

// BenchmarkPicture measures a snapshot of 80,000 GPUs and 10,000 waiting jobs, and one when nothing
// has changed.
func BenchmarkPicture(b *testing.B) {
	p, now := crowded(b, 10000, 10000), time.Now()
	p.publish(now)
	b.Run("made", func(b *testing.B) {
		for b.Loop() {
			now, p.changed = now.Add(time.Hour), true
			p.publish(now)
		}
	})
	b.Run("shared", func(b *testing.B) {
		for b.Loop() {
			now = now.Add(time.Second)
			p.picturedAt = now.Add(-5 * time.Second)
			p.publish(now)
		}
	})
}

// replayed repeats the first answer to each read, so that a benchmark measures the placer and not
// the in-memory Nomad.
type replayed struct {
	next  http.RoundTripper
	first sync.Map // url → []byte
}

func (r *replayed) RoundTrip(q *http.Request) (*http.Response, error) {
	if text, ok := r.first.Load(q.URL.String()); ok {
		return http.ReadResponse(bufio.NewReader(bytes.NewReader(text.([]byte))), q)
	}
	resp, err := r.next.RoundTrip(q)
	if err == nil && q.Method == http.MethodGet {
		text, err := httputil.DumpResponse(resp, true)
		if err != nil {
			return nil, err
		}
		r.first.Store(q.URL.String(), text)
	}
	return resp, err
}

// BenchmarkRestart measures a placer's start until its first decisions and snapshot, with 10,000
// waiting jobs.
func BenchmarkRestart(b *testing.B) {
	s := nomadtest.New(nomadtest.Options{Stepped: true, Latency: 1})
	defer s.Close()
	for n := range 1000 {
		s.AddNode(nomadtest.GPUNode(n, 8))
	}
	client, err := nomad.NewClient(&api.Config{Address: "http://nomad.test", HttpClient: &http.Client{Transport: &replayed{next: s.Transport("placer")}}}, "")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10000 {
		if _, _, err := client.API().Jobs().Register(rewrite.Gate(benchJob(fmt.Sprintf("job-%04d", i), 1)), nil); err != nil {
			b.Fatal(err)
		}
	}
	restart := func() {
		p, err := New(client, model.DefaultConfig(), hclog.NewNullLogger(), Hooks{})
		if err == nil {
			err = p.resync(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		p.m.Time = time.Now()
		if err := p.m.UpdateView(p.m.Time); err != nil {
			b.Fatal(err)
		}
		p.track(b.Context())
		p.reconcileAll(func(t *model.Tracked) { p.step(b.Context(), t, gang.Reconcile{}) })
		p.syncQueue(b.Context())
		if n := len(p.m.Queue.Decide(gang.QueueTime(p.m.Time), p.m.View.Cluster)); n == 0 {
			b.Fatal("nothing starts")
		}
		p.publish(p.m.Time)
	}
	restart() // fills the cache of answers
	b.ReportAllocs()
	for b.Loop() {
		restart()
	}
}

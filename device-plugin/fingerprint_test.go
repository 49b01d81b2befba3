// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/device"
	"pgregory.net/rapid"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// stage is a backend with answers set by the test.
type stage struct {
	mu     sync.Mutex
	inv    gpu.Inventory
	err    error
	hang   chan struct{} // while not nil, scans wait for it to close
	scans  int
	left   int // number of disconnects
	events chan gpu.Event
}

func (s *stage) Scan() (gpu.Inventory, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	inv := s.inv
	inv.Devices = append([]gpu.Device(nil), s.inv.Devices...)
	return inv, s.err
}

func (s *stage) Sample(ids []string) map[string]gpu.Sample {
	out := map[string]gpu.Sample{}
	for _, id := range ids {
		out[id] = gpu.Sample{TemperatureC: new(int64(40))}
	}
	return out
}

func (s *stage) Events(ctx context.Context, out chan<- gpu.Event) {
	for {
		select {
		case e := <-s.events:
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *stage) Disconnect() { s.set(func(s *stage) { s.left++ }) }

func (s *stage) Close() {}

func (s *stage) set(change func(*stage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// onStage returns a plugin with a stage of n GPUs; exit collects exit codes.
func onStage(n int, cfg Config) (p *Plugin, s *stage, log *testlog.Buffer, exits *[]int) {
	s = &stage{events: make(chan gpu.Event)}
	for i := range n {
		s.inv.Devices = append(s.inv.Devices, gpu.Device{ID: fmt.Sprintf("GPU-%d", i), Model: "M", Place: gpu.Place{NUMANode: -1}, NVLink: gpu.NVLink{Island: -1}})
	}
	if cfg.StateDir == DefaultStateDir {
		cfg.StateDir = "" // the default directory belongs to this machine
	}
	log, exits = &testlog.Buffer{}, &[]int{}
	p = New(Options{
		Log:  hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug}),
		Open: func(Config) Backend { return s },
		Exit: func(code int) { *exits = append(*exits, code) },
	})
	p.Configure(cfg)
	return p, s, log, exits
}

func next(t *testing.T, c <-chan *device.FingerprintResponse) []*device.DeviceGroup {
	t.Helper()
	select {
	case m, ok := <-c:
		if !ok || m.Error != nil {
			t.Fatalf("message %+v, open %v", m, ok)
		}
		return m.Devices
	case <-time.After(time.Hour): // by synctest's clock
		t.Fatal("no message")
	}
	return nil
}

// fingerprints opens a stream; end ends it and waits for that.
func fingerprints(t *testing.T, p *Plugin) (c <-chan *device.FingerprintResponse, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := p.Fingerprint(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		cancel()
		for range c {
		}
	}
}

// U16: a stream that nobody reads ends with its context and leaves no goroutine: synctest
// fails if one is left.
func TestU16CancelledStreamsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _, _ := onStage(2, DefaultConfig())
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := p.Fingerprint(ctx)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := p.Stats(ctx, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // both streams are blocked in their first send, or wait for data
			cancel()
			synctest.Wait()
			select {
			case _, open := <-c:
				if open {
					t.Fatal("a cancelled fingerprint stream still sends")
				}
			default:
				t.Fatal("a cancelled fingerprint stream is not closed")
			}
			select {
			case _, open := <-stats:
				if open {
					t.Fatal("a cancelled stats stream still sends")
				}
			default:
				t.Fatal("a cancelled stats stream is not closed")
			}
		}
	})
}

// While a driver takes seconds to start, as without persistence mode, Nomad gets no GPUs. A
// command that a person runs waits for them.
func TestFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for patience, want := range map[time.Duration]int{0: 0, time.Minute: 1} {
			p, s, _, _ := onStage(2, DefaultConfig())
			if patience != 0 {
				p.opts.Patience = patience
			}
			hang := make(chan struct{})
			s.hang = hang
			begin := time.Now()
			time.AfterFunc(5*time.Second, func() { close(hang) })
			c, end := fingerprints(t, p)
			if got := next(t, c); len(got) != want {
				t.Errorf("patience %s: %d groups after %s, want %d", patience, len(got), time.Since(begin), want)
			}
			end()
			synctest.Wait()
			time.Sleep(time.Minute)
		}
	})
}

// If a plugin restarts on a node with a slow driver, as most drivers with eight GPUs are, it does
// not report its GPUs as unhealthy before it has read them. If the driver hangs, it does.
func TestFirstScanAfterARestart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		first string        // state of the GPU in the first message
		by    time.Duration // latest time of the first message
		well  time.Duration // latest time at which the GPU is healthy
	}{
		{"slow", 6 * time.Second, "", 6 * time.Second, 6 * time.Second},
		{"hanging for a while", 25 * time.Second, "driver-not-answering", hangAfter, 25 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.StateDir = t.TempDir()
			p, s, _, _ := onStage(2, cfg)
			if err := openStore(cfg.StateDir).saveInventory(s.inv); err != nil {
				t.Fatal(err)
			}
			s.hang = make(chan struct{})
			begin := time.Now()
			time.AfterFunc(tc.takes, func() { close(s.hang) })
			c, end := fingerprints(t, p)
			defer end()
			reserved := make(chan error, 1)
			go func() {
				_, err := p.Reserve([]string{"GPU-1"})
				reserved <- err
			}()
			got := next(t, c)
			if d := got[0].Devices[1]; d.HealthDesc != tc.first || time.Since(begin) > tc.by {
				t.Errorf("%s: %+v after %s, want %q within %s", tc.name, d, time.Since(begin), tc.first, tc.by)
			}
			if err := <-reserved; (err == nil) != (tc.first == "") {
				t.Errorf("%s: Reserve meanwhile: %v", tc.name, err)
			}
			for !got[0].Devices[1].Healthy {
				got = next(t, c)
			}
			if took := time.Since(begin); took > tc.well {
				t.Errorf("%s: healthy after %s, want %s", tc.name, took, tc.well)
			}
		})
	}
}

// GPUs that are still starting when the plugin starts appear seconds later, not a whole period
// later. A GPU that never reveals its identity does not make the plugin scan so often forever.
func TestGPUsThatStillStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _, _ := onStage(2, DefaultConfig())
		both := s.inv.Devices
		s.inv.Devices, s.inv.Hidden = both[:1], make([]gpu.Hidden, 1)
		c, end := fingerprints(t, p)
		defer end()
		next(t, c)
		s.set(func(s *stage) { s.inv.Devices, s.inv.Hidden = both, nil })
		begin := time.Now()
		if got := next(t, c); len(got[0].Devices) != 2 || time.Since(begin) > recoverScan {
			t.Errorf("%d GPUs after %s, want 2 within %s", len(got[0].Devices), time.Since(begin), recoverScan)
		}
		s.set(func(s *stage) { s.inv.Hidden = make([]gpu.Hidden, 1) })
		time.Sleep(2 * startsWithin)
		s.set(func(s *stage) { s.scans = 0 })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.set(func(s *stage) {
			if s.scans > 10 {
				t.Errorf("%d scans in 10 minutes, with a period of %s", s.scans, p.cfg.FingerprintPeriod)
			}
		})
	})
}

func TestHangingScanIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, log, exits := onStage(2, DefaultConfig())
		c, end := fingerprints(t, p)
		if got := next(t, c); !got[0].Devices[0].Healthy {
			t.Fatal("unhealthy at first")
		}
		p.mu.Lock()
		before := p.view // the statistics sender holds it, too
		p.mu.Unlock()
		hang := make(chan struct{})
		s.set(func(s *stage) { s.hang = hang })
		begin := time.Now()
		got := next(t, c)
		if d := got[0].Devices[1]; d.Healthy || d.HealthDesc != "driver-not-answering" || len(got[0].Devices) != 2 {
			t.Errorf("device %+v, want it listed and unhealthy", d)
		}
		if took := time.Since(begin); took > p.cfg.FingerprintPeriod+hangAfter+lookInterval {
			t.Errorf("it took %s", took)
		}
		if before.inv.Devices[1].Signals.Unanswered {
			t.Error("a view that others hold has changed")
		}
		if _, err := p.Reserve([]string{"GPU-0"}); err == nil || !strings.Contains(err.Error(), "driver-not-answering") {
			t.Errorf("Reserve: %v", err)
		}
		time.Sleep(3 * time.Minute) // by synctest's clock
		synctest.Wait()
		if len(*exits) == 0 || (*exits)[0] != hungExit {
			t.Errorf("exits %v, want %d: the watchdog did not bite", *exits, hungExit)
		}
		close(hang)
		s.set(func(s *stage) { s.hang = nil })
		for got = next(t, c); !got[0].Devices[0].Healthy; got = next(t, c) {
		}
		end()
		if !strings.Contains(log.String(), "the driver does not answer") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// An incompatible library stays in the process: only a new process gets the new one. A
// young process waits before it ends, because Nomad restarts plugins without backing off.
func TestReplacedDriverRestartsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s, _, exits := onStage(1, DefaultConfig())
		replaced := &gpu.Unavailable{What: "versions differ", Restart: true}
		s.set(func(s *stage) { s.err = replaced })
		ctx, cancel := context.WithCancel(t.Context())
		c, err := p.Fingerprint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := next(t, c); len(got) != 0 || len(*exits) != 0 {
			t.Errorf("a young process: got %d groups, exits %v", len(got), *exits)
		}
		s.set(func(s *stage) { s.err = nil })
		if got := next(t, c); len(got) != 1 {
			t.Errorf("got %d groups, want 1", len(got))
		}
		s.set(func(s *stage) { s.err = &gpu.Unavailable{What: "no driver"} })
		if got := next(t, c); len(got) != 0 {
			t.Errorf("without a driver: got %d groups", len(got))
		}
		time.Sleep(3 * time.Minute)
		if synctest.Wait(); len(*exits) != 0 {
			t.Errorf("a new process would not find a driver either: exits %v", *exits)
		}
		s.set(func(s *stage) { s.err = replaced })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(*exits) == 0 || (*exits)[0] != restartExit {
			t.Errorf("exits %v, want %d", *exits, restartExit)
		}
		cancel()
		for range c {
		}
	})
}

const someProfile = `{"format": "nomad-pal/profile/1", "version": %d,
 "options": {"method": "edges", "edges": [0.99, 1.01, 1.03, 1.06], "hysteresis": 0, "outlier": 1.5, "min_gpus": 8},
 "groups": [{"model": "M", "app": "A", "key": "k", "reference": 1, "measured": 64, "spread": 0.1, "values": [0.97, 1, 1.02, 1.045, 1.2]}],
 "gpus": [{"id": "GPU-0", "model": "M", "entries": [{"app": "A", "key": "k", "time": 0.95, "score": 0.95, "class": 1, "bin": 1, "value": 0.97}]}]}`

// A new profile takes effect at once. A bad or half-written one leaves the previous one in
// force, and the log names key and file.
func TestProfileIsWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf(someProfile, 7))
	if _, err := profile.Parse(fmt.Appendf(nil, someProfile, 7)); err != nil {
		t.Fatalf("the test's profile is bad: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.ProfilePath, cfg.FingerprintPeriod = path, time.Hour
		p, s, log, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		a := next(t, c)[0].Attributes
		if got := *a[attr.List(pal.ClassA, 1)].String; got != "GPU-0" || *a[attr.ProfileVersion].Int != 7 || *a[attr.Reference].String != attr.ReferenceFile {
			t.Errorf("class 1 is %q, version %d, reference %s", got, *a[attr.ProfileVersion].Int, *a[attr.Reference].String)
		}
		write(fmt.Sprintf(someProfile, 8)[:100]) // half-written
		time.Sleep(5 * time.Second)
		s.events <- gpu.Event{} // make the plugin check everything again
		time.Sleep(5 * time.Second)
		select {
		case m := <-c:
			t.Errorf("a half-written profile changed the message: %+v", m)
		default:
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "config key \\\"profile\\\"") && !strings.Contains(log.String(), "config key \"profile\"") {
			t.Errorf("the log does not name the key:\n%s", log)
		}
		write(fmt.Sprintf(someProfile, 9))
		if got := *next(t, c)[0].Attributes[attr.ProfileVersion].Int; got != 9 {
			t.Errorf("version %d, want 9", got)
		}
		end()
	})
}

func TestUnknownIgnoredIDIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.IgnoredGPUIDs = []string{"GPU-0", "GPU-typo"}
		p, _, log, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		next(t, c)
		end()
		if s := log.String(); strings.Count(s, "GPU-typo") != 1 || strings.Contains(s, "\"GPU-0\"") {
			t.Errorf("log:\n%s\nwant one line that names GPU-typo", s)
		}
	})
}

// An empty id, such as a template's unset variable, names no GPU.
func TestEmptyIDNamesNoGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.IgnoredGPUIDs = []string{""}
		p, _, _, _ := onStage(2, cfg)
		c, end := fingerprints(t, p)
		defer end()
		if groups := next(t, c); len(groups) != 1 || len(groups[0].Devices) != 2 {
			t.Errorf("%d groups, want one with both GPUs", len(groups))
		}
	})
	if names("", gpu.Device{ID: "GPU-0", Model: "M"}) {
		t.Error("sharing: an empty word names a whole GPU")
	}
}

// Lists and counts agree for every population: lists grow with the class, the last one has
// every GPU, and counts are of the healthy members.
func TestListsAndCountsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := view{verdicts: map[string]verdict{}}
		for i := range rapid.IntRange(1, 12).Draw(t, "gpus") {
			id := fmt.Sprintf("GPU-%02d", i)
			d := gpu.Device{ID: id, Model: "M", Place: gpu.Place{NUMANode: i % 2}, NVLink: gpu.NVLink{Island: -1}, Measured: gpu.Measured{Key: "k"}}
			if rapid.Bool().Draw(t, "measured") {
				d.Measured.Times = map[pal.AppClass]float64{pal.ClassA: rapid.Float64Range(0.9, 1.6).Draw(t, "time")}
			}
			v.inv.Devices = append(v.inv.Devices, d)
			v.verdicts[id] = verdict{healthy: rapid.Bool().Draw(t, "healthy")}
		}
		var err error
		if v.rating, _, err = rate(v.inv.Devices, nil, nil); err != nil {
			t.Fatal(err)
		}
		g := v.groups()[0]
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, c := range pal.AppClasses() {
			before := 0
			for k := 1; k <= profile.MaxClass; k++ {
				ids := attr.SplitIDs(*g.Attributes[attr.List(c, k)].String)
				if len(ids) < before {
					t.Fatalf("class %s: le_%d has %d, le_%d has %d", c, k-1, before, k, len(ids))
				}
				before = len(ids)
				want := int64(0)
				for _, id := range ids {
					if v.verdicts[id].healthy {
						want++
					}
				}
				if got := *g.Attributes[attr.ListCount(c, k)].Int; got != want {
					t.Fatalf("%s: %d, want %d", attr.ListCount(c, k), got, want)
				}
			}
			if before != len(v.inv.Devices) {
				t.Fatalf("class %s: the last list has %d of %d GPUs", c, before, len(v.inv.Devices))
			}
		}
	})
}

// Without a state_dir, the plugin ends, Nomad starts it again and calls Reserve at once.
func TestReserveAfterARestartWithoutState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir = ""
		p, s, _, _ := onStage(2, cfg)
		s.hang = make(chan struct{})
		time.AfterFunc(3*time.Second, func() { close(s.hang) })
		c, end := fingerprints(t, p)
		defer end()
		reserved := make(chan error, 1)
		go func() {
			_, err := p.Reserve([]string{"GPU-1"})
			reserved <- err
		}()
		defer time.Sleep(4 * time.Second)
		t.Logf("first message lists %d groups", len(next(t, c)))
		if err := <-reserved; err != nil {
			t.Error(err)
		}
	})
}

// An operator ignores a GPU after the plugin has stored it. While the driver hangs at the next
// start, the plugin neither publishes that GPU nor gives it to a task.
func TestIgnoredGPUsBeforeTheFirstScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.StateDir, cfg.IgnoredGPUIDs = t.TempDir(), []string{"GPU-0"}
		p, s, _, _ := onStage(2, cfg)
		if err := openStore(cfg.StateDir).saveInventory(s.inv); err != nil {
			t.Fatal(err)
		}
		s.hang = make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(s.hang) })
		c, end := fingerprints(t, p)
		if got := next(t, c); len(got) != 1 || len(got[0].Devices) != 1 || got[0].Devices[0].ID != "GPU-1" {
			t.Errorf("got %+v, want the GPU that is not ignored", got)
		}
		if _, err := p.Reserve([]string{"GPU-0"}); err == nil {
			t.Error("Reserve gives an ignored GPU away")
		}
		end()
		time.Sleep(2 * time.Minute)
	})
}

// After three starts that ended in a crash, the plugin pauses for a minute before it uses the
// driver, with its GPUs unhealthy. A process that ends on request, or after a minute, has not
// crashed.
func TestPauseAfterCrashes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(t *testing.T, start func() *Plugin) // what the earlier processes did
		pause  time.Duration
	}{
		{"two crashes", func(_ *testing.T, start func() *Plugin) { start(); start() }, 0},
		{"three crashes", func(_ *testing.T, start func() *Plugin) { start(); start(); start() }, crashPause},
		{"four crashes", func(_ *testing.T, start func() *Plugin) {
			for range 4 {
				start()
				time.Sleep(crashPause)
			}
		}, crashPause},
		{"an end on request", func(t *testing.T, start func() *Plugin) {
			start()
			start()
			c, end := fingerprints(t, start())
			next(t, c)
			end()
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := DefaultConfig()
				cfg.StateDir = t.TempDir()
				start := func() *Plugin {
					p, s, _, _ := onStage(2, cfg)
					if err := openStore(cfg.StateDir).saveInventory(s.inv); err != nil {
						t.Fatal(err)
					}
					p.mu.Lock()
					defer p.mu.Unlock()
					p.ready()
					return p
				}
				tc.before(t, start)
				p, _, log, _ := onStage(2, cfg)
				begin := time.Now()
				c, end := fingerprints(t, p)
				defer end()
				got := next(t, c)
				if d := got[0].Devices[1]; d.Healthy != (tc.pause == 0) || time.Since(begin) > 0 {
					t.Errorf("first %+v after %s", d, time.Since(begin))
				}
				if _, err := p.Reserve([]string{"GPU-1"}); (err == nil) != (tc.pause == 0) {
					t.Errorf("Reserve: %v", err)
				}
				if tc.pause > 0 {
					time.Sleep(tc.pause - time.Second)
					synctest.Wait()
					p.mu.Lock()
					scanned := p.scanned
					p.mu.Unlock()
					if scanned || !strings.Contains(log.String(), "the plugin ended unexpectedly") {
						t.Errorf("scanned %v during the pause; log\n%s", scanned, log)
					}
					got = next(t, c)
				}
				if took := time.Since(begin); !got[0].Devices[1].Healthy || took != tc.pause {
					t.Errorf("%+v after %s, want it healthy after %s", got[0].Devices[1], took, tc.pause)
				}
				time.Sleep(leastUptime + time.Second)
				synctest.Wait()
				kept := -1
				if found, err := openStore(cfg.StateDir).Read(startsFile, &kept); !found || err != nil || kept != 0 {
					t.Errorf("after a minute of use: %d starts (%v), want none", kept, err)
				}
			})
		})
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"bytes"
	"context"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// slowDriver takes a second for each reading.
type slowDriver struct{ stage }

func (d *slowDriver) Sample(ids []string) map[string]gpu.Sample {
	time.Sleep(time.Second) // by synctest's clock
	return d.stage.Sample(ids)
}

// Callers that ask during a reading share its result. If they asked about other devices, they share
// one more reading. If the driver is too slow, they get what there is.
func TestReadingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sampler{backend: &slowDriver{}}
		got := make(chan []string, 3)
		ask := func(wait time.Duration, ids ...string) {
			readings, _ := s.sample(ids, time.Minute, wait)
			got <- slices.Sorted(maps.Keys(readings))
		}
		go ask(time.Hour, "a")
		synctest.Wait()
		go ask(time.Hour, "a", "b")
		synctest.Wait()
		ask(500*time.Millisecond, "c")
		for _, want := range [][]string{nil, {"a"}, {"a", "b"}} {
			if ids := <-got; !slices.Equal(ids, want) {
				t.Errorf("got readings of %v, want %v", ids, want)
			}
		}
	})
}

// A driver whose wait for events does not end does not affect the next stream: it measures
// GPUs, as the previous stream did.
func TestEventSourceThatDoesNotEnd(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.Measure.Mode = measure.Off
	synctest.Test(t, func(t *testing.T) {
		waits := make(chan struct{})
		defer close(waits)
		p := New(Options{Log: hclog.NewNullLogger(), Self: []string{"none"},
			Open: func(Config) Backend { return &deaf{waits: waits} }})
		p.Configure(cfg)
		for range 2 {
			c, end := fingerprints(t, p)
			next(t, c)
			p.mu.Lock()
			if p.measures == nil || p.measuring != p.measures {
				t.Error("the stream does not measure")
			}
			p.mu.Unlock()
			end()
			synctest.Wait()
			p.mu.Lock()
			if p.measuring != nil {
				t.Error("a stream that has ended measures")
			}
			p.mu.Unlock()
		}
	})
}

// deaf is a backend whose event source ends only when the test allows it.
type deaf struct {
	stage
	waits chan struct{}
}

func (d *deaf) Events(context.Context, chan<- gpu.Event) { <-d.waits }

// Nomad answers with JSON, which cannot represent NaN or infinity: one such value would
// make all statistics fail.
func TestStatisticsThatAreNoNumbers(t *testing.T) {
	set := (&view{}).instance("GPU-1", gpu.Sample{PowerCapPercent: new(math.NaN()), TensorActivePercent: new(math.Inf(-1)), DRAMActivePercent: new(0.5)}, time.Now()).Stats.Attributes
	if set["Power cap time"] != nil || set["Tensor active"] != nil || set["DRAM active"] == nil {
		t.Errorf("got %v, want only numbers", slices.Sorted(maps.Keys(set)))
	}
}

// A GPU without a power limit, such as the GB10, still reports its power draw.
func TestStatisticWithoutAMaximum(t *testing.T) {
	set := statistics{}
	set.incumbent(gpu.Sample{PowerW: new(75.3)})
	if v := set[attr.StatPower]; v.IntNumeratorVal == nil || *v.IntNumeratorVal != 75 || v.IntDenominatorVal != nil {
		t.Errorf("got %+v, want 75 W without a limit", v)
	}
}

// The statistic says what is wrong with a GPU, even if the GPU still gets jobs.
func TestHealthStatistic(t *testing.T) {
	for want, v := range map[string]verdict{"healthy": {healthy: true}, "xid:79": {reason: "xid:79"}, "degraded:pcie": {healthy: true, degraded: []string{"pcie"}}} {
		view, set := view{verdicts: map[string]verdict{"GPU-0": v}}, statistics{}
		view.health(set, "GPU-0")
		if got := *set["Health"].StringVal; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// counting counts the scans, each of which takes a moment.
type counting struct {
	stage
	scans atomic.Int64
}

func (c *counting) Scan() (gpu.Inventory, error) {
	c.scans.Add(1)
	time.Sleep(50 * time.Millisecond)
	return c.stage.Scan()
}

// However many errors an application causes, the plugin only counts them: they cost no
// driver calls and no log lines.
func TestFloodOfApplicationErrors(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = ""
	synctest.Test(t, func(t *testing.T) {
		backend, log := &counting{}, &bytes.Buffer{}
		backend.events = make(chan gpu.Event)
		backend.inv.Devices = []gpu.Device{{ID: "GPU-0", Model: "M"}, {ID: "GPU-1", Model: "M"}}
		p := New(Options{Log: hclog.New(&hclog.LoggerOptions{Output: log}), Open: func(Config) Backend { return backend }})
		p.Configure(cfg)
		c, end := fingerprints(t, p)
		next(t, c)
		for range 1000 {
			backend.events <- gpu.Event{GPU: "GPU-1", Xid: 31}
			time.Sleep(10 * time.Millisecond)
		}
		backend.events <- gpu.Event{GPU: "GPU-1", Xid: 79}
		begin := time.Now()
		if got := next(t, c)[0].Devices; got[0].HealthDesc != "" || got[1].HealthDesc != "xid:79" || time.Since(begin) != 0 {
			t.Errorf("%+v and %+v after %s, want the second unhealthy at once", got[0], got[1], time.Since(begin))
		}
		time.Sleep(2 * time.Second) // the last event's scan
		end()
		synctest.Wait()
		if n := backend.scans.Load(); n < 10 || n > 13 {
			t.Errorf("%d scans in 12 s of events, want one a second", n)
		}
		if n := strings.Count(log.String(), "xid=31"); n != 1 || !strings.Contains(log.String(), "xid=79 errors=1001") {
			t.Errorf("%d lines about Xid 31, want 1 of it and the count with the next:\n%s", n, log)
		}
		if r := p.health.record("GPU-1"); r.xidCount != 1001 {
			t.Errorf("%d errors counted, want 1001", r.xidCount)
		}
	})
}

// The page's table has exactly the statistics that the plugin can publish, with their units.
func TestEveryStatisticIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/attributes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Statistics")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|([^|]*)\\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = row[2]
		}
	}
	var everything gpu.Sample
	v := reflect.ValueOf(&everything).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	view := view{}
	for name, value := range view.instance("GPU-0", everything, time.Now()).Stats.Attributes {
		if unit, ok := documented[name]; !ok || !strings.Contains(unit, value.Unit) {
			t.Errorf("%s (unit %q): on the page %v, with %q", name, value.Unit, ok, unit)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("the page documents %q, which the plugin never publishes", name)
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/guard"
	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/internal/testlog"
	"github.com/nomad-pal/nomad-pal/internal/version"
)

// The plugin under test, and the fake NVML library for it.
var (
	pluginFlag = flag.String("plugin", os.Getenv("PLUGIN"), "plugin binary to test; empty builds nomad-device-pal")
	binary     string
	library    string // directory of libnvidia-ml.so.1; "" without gcc
	isOurs     bool   // the plugin reports a version of ours
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func prepare(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = *pluginFlag
	if binary == "" {
		binary = filepath.Join(dir, "nomad-device-pal")
		out, err := exec.Command("go", "build", fmt.Sprintf("-race=%v", raceDetector), "-o", binary, "github.com/nomad-pal/nomad-pal/device-plugin/cmd/nomad-device-pal").CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("building the plugin: %w\n%s", err, out)
		}
	}
	if binary, err = filepath.Abs(binary); err != nil {
		return 0, err
	}
	lib, err := nvmltest.Build(dir)
	switch {
	case errors.Is(err, nvmltest.ErrNoCompiler):
	case err != nil:
		return 0, err
	default:
		library = filepath.Dir(lib)
	}
	if isOurs, err = introduces(binary); err != nil {
		return 0, err
	}
	if err := flag.Set("test.parallel", "12"); err != nil { // the tests wait most of the time
		return 0, err
	}
	return guard.Main(m), nil
}

// introduces reports whether a plugin identifies itself as ours.
func introduces(binary string) (bool, error) {
	p, err := startPlugin(binary, nil, io.Discard)
	if err != nil {
		return false, err
	}
	defer p.Stop()
	info, err := p.Base.PluginInfo()
	if err != nil {
		return false, err
	}
	return info.Name == "nvidia-gpu" && info.PluginVersion == version.Number, nil
}

// ours skips the test unless the plugin under test is our own, which promises more than the
// contract.
func ours(t *testing.T) {
	t.Helper()
	if !isOurs {
		t.Skip("a promise of nomad-device-pal, not of the contract")
	}
}

// world is one plugin process with its simulated driver.
type world struct {
	t     *testing.T
	state nvmltest.State
	path  string // path of the state file
	env   []string
	log   *testlog.Buffer
	*process
}

// driverless returns a world whose plugin has not started. If state is nil, there is no
// NVML library at all.
func driverless(t *testing.T, state nvmltest.State) *world {
	t.Helper()
	t.Parallel()
	if library == "" {
		t.Skip("gcc is not installed: no fake NVML library")
	}
	dir := t.TempDir()
	w := &world{t: t, state: state, path: filepath.Join(dir, "state"), log: &testlog.Buffer{}}
	w.env = []string{nvmltest.EnvState + "=" + w.path, "LD_LIBRARY_PATH=" + library}
	if state == nil {
		w.env[1] = "LD_LIBRARY_PATH="
	} else {
		w.write()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("plugin log:\n%s", w.log)
		}
	})
	return w
}

// start starts the plugin with the text of a config block.
func start(t *testing.T, state nvmltest.State, config string) *world {
	t.Helper()
	w := driverless(t, state)
	w.launch()
	if err := w.Configure(config); err != nil {
		t.Fatalf("setting the config: %v", err)
	}
	return w
}

// follow starts the plugin on a node with n H200s, and returns a stream of its fingerprints
// from the first one that lists them all.
func follow(t *testing.T, gpus int, config string) (*world, *stream) {
	t.Helper()
	w := start(t, nvmltest.H200(gpus), config)
	s := w.fingerprint()
	s.until(fmt.Sprintf("%d GPUs", gpus), listed(gpus))
	return w, s
}

// Configure sets the config. Our own plugin keeps no state unless the text names a
// directory: the default directory belongs to this machine.
func (w *world) Configure(text string) error {
	if isOurs && !strings.Contains(text, "state_dir") {
		text += "\nstate_dir = \"\"\n"
	}
	return w.process.Configure(text)
}

// launch starts the process.
func (w *world) launch() {
	w.t.Helper()
	p, err := startPlugin(binary, w.env, w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	w.process = p
	w.t.Cleanup(p.Stop)
}

// write makes the fake driver answer according to the state.
func (w *world) write() {
	w.t.Helper()
	if err := w.state.Write(w.path); err != nil {
		w.t.Fatal(err)
	}
}

// set changes one value of the fake driver.
func (w *world) set(scope, key, value string) {
	w.t.Helper()
	w.state.Set(scope, key, value)
	w.write()
}

// stream is a fingerprint stream with its received messages.
type stream struct {
	t      *testing.T
	c      <-chan *device.FingerprintResponse
	cancel context.CancelFunc
	last   []*device.DeviceGroup
	count  int
}

func (w *world) fingerprint() *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	c, err := w.Device.Fingerprint(ctx)
	if err != nil {
		w.t.Fatalf("fingerprint: %v", err)
	}
	return &stream{t: w.t, c: c, cancel: cancel}
}

// next waits for a message. An error or the end of the stream fails the test:
// Nomad would drop all devices until the agent restarts.
func (s *stream) next() []*device.DeviceGroup {
	s.t.Helper()
	ctx, cancel := patience.Context(s.t.Context(), patience.Long)
	defer cancel()
	return s.nextIn(ctx, "a fingerprint")
}

func (s *stream) nextIn(ctx context.Context, what string) []*device.DeviceGroup {
	s.t.Helper()
	select {
	case m, ok := <-s.c:
		if !ok {
			s.t.Fatal("the fingerprint stream ended")
		}
		if m.Error != nil {
			s.t.Fatalf("the fingerprint stream carried an error: %v", m.Error)
		}
		for _, g := range m.Devices {
			if err := g.Validate(); err != nil { // Nomad would kill the plugin
				s.t.Fatalf("group %q is invalid: %v", g.Name, err)
			}
		}
		s.last, s.count = m.Devices, s.count+1
		return m.Devices
	case <-ctx.Done():
		s.t.Fatalf("%s: %v; the last fingerprint was %s", what, context.Cause(ctx), describe(s.last))
	}
	return nil
}

// until waits for a message that satisfies ok.
func (s *stream) until(what string, ok func([]*device.DeviceGroup) bool) []*device.DeviceGroup {
	s.t.Helper()
	ctx, cancel := patience.Context(s.t.Context(), patience.Long)
	defer cancel()
	for s.count == 0 || !ok(s.last) {
		s.nextIn(ctx, what)
	}
	return s.last
}

// quiet fails if a message or the end of the stream arrives within d.
func (s *stream) quiet(d time.Duration) {
	s.t.Helper()
	select {
	case m, ok := <-s.c:
		s.t.Fatalf("unexpected message (open: %v): %+v", ok, m)
	case <-time.After(d):
	}
}

// instance finds a device by id; nil if it is not listed.
func instance(gs []*device.DeviceGroup, id string) *device.Device {
	for _, g := range gs {
		for _, d := range g.Devices {
			if d.ID == id {
				return d
			}
		}
	}
	return nil
}

// unhealthy waits until exactly this GPU is unhealthy.
func unhealthy(id string) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		d := instance(gs, id)
		return d != nil && !d.Healthy
	}
}

func healthy(id string) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool {
		d := instance(gs, id)
		return d != nil && d.Healthy
	}
}

// devices counts the instances in all groups.
func devices(gs []*device.DeviceGroup) int {
	n := 0
	for _, g := range gs {
		n += len(g.Devices)
	}
	return n
}

func listed(n int) func([]*device.DeviceGroup) bool {
	return func(gs []*device.DeviceGroup) bool { return devices(gs) == n }
}

// statistics waits for one statistics message that satisfies ok.
func (w *world) statistics(ok func(map[string]*device.DeviceStats) bool) map[string]*device.DeviceStats {
	w.t.Helper()
	ctx, cancel := patience.Context(context.Background(), patience.Long)
	defer cancel()
	c, err := w.Device.Stats(ctx, 200*time.Millisecond)
	if err != nil {
		w.t.Fatalf("stats: %v", err)
	}
	var last map[string]*device.DeviceStats
	for m := range c {
		if m.Error != nil {
			w.t.Fatalf("the stats stream carried an error: %v (last %s)", m.Error, statText(last))
		}
		last = map[string]*device.DeviceStats{}
		for _, g := range m.Groups {
			maps.Copy(last, g.InstanceStats)
		}
		if ok(last) {
			return last
		}
	}
	w.t.Fatalf("no fitting statistics: %v; the last: %s", context.Cause(ctx), statText(last))
	return nil
}

// start2 starts another process with the same driver as w.
func start2(t *testing.T, w *world) *world {
	t.Helper()
	again := *w
	again.launch()
	if err := again.Configure(fast); err != nil {
		t.Fatal(err)
	}
	again.fingerprint().next()
	return &again
}

// run runs a command that must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

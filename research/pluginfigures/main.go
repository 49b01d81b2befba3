// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command pluginfigures measures what a device plugin costs and how fast it is,
// over its real handshake and a library without a driver that plays 8 H200s:
//
//	make plugin-figures [PLUGINS=path,path] [NVML=folder]
//
// NVML names the folder of another libnvidia-ml.so.1, whose driver the plugins see then;
// what only our own library can play, faults, is left out. With a Nomad at hand it also measures how long a fault takes to reach Nomad's
// server. Several binaries are put side by side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/bench/process"
	"github.com/nomad-pal/nomad-pal/device-plugin/conformance"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// gpus is the size of the node that is played.
const gpus = 8

// config is the same for all plugins: keys that all of them know.
const config = `fingerprint_period = "1s"`

func main() {
	plugins := flag.String("plugins", "", "plugin binaries, separated by commas")
	idle := flag.Duration("idle", 30*time.Second, "how long to watch the idle plugin")
	nomad := flag.Bool("nomad", true, "measure up to Nomad's server as well")
	nvml := flag.String("nvml", "", "folder of another libnvidia-ml.so.1 to measure over")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *plugins == "" {
		fmt.Fprintln(os.Stderr, "pluginfigures: -plugins is needed")
		os.Exit(2)
	}
	if *nvml == "" {
		fmt.Printf("%d emulated H200s behind a libnvidia-ml.so.1 without a driver; statistics every second; fingerprint_period 1s, at rest 1m\n\n", gpus)
	} else {
		fmt.Printf("libnvidia-ml.so.1 of %s; statistics every second; fingerprint_period 1m\n\n", *nvml)
	}
	for _, path := range strings.Split(*plugins, ",") {
		var err error
		if *nvml == "" {
			err = figures(ctx, path, *idle, *nomad)
		} else {
			err = elsewhere(ctx, path, *nvml, *idle)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "pluginfigures: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// figures prints the figures of one plugin.
func figures(ctx context.Context, path string, idle time.Duration, nomad bool) error {
	dir, err := os.MkdirTemp("", "figures")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lib, err := nvmltest.Build(dir)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Println(filepath.Base(path))
	fmt.Printf("  binary size                                   %8.1f MB\n", float64(st.Size())/1e6)
	w := &world{dir: dir, state: nvmltest.H200(gpus), path: lib + ".state", binary: path, libraries: dir}
	if err := w.measure(ctx, idle); err != nil {
		return err
	}
	if nomad {
		err := w.throughNomad(ctx)
		if errors.Is(err, cluster.ErrNoNomad) {
			fmt.Println("  from fault to Nomad's server                  not measured: no Nomad here (make nomad)")
			return nil
		}
		return err
	}
	return nil
}

// elsewhere prints what can be measured over a library that is not ours.
func elsewhere(ctx context.Context, path, nvml string, idle time.Duration) error {
	dir, err := os.MkdirTemp("", "figures")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println(filepath.Base(path))
	w := &world{dir: dir, binary: path, libraries: nvml}
	if err := w.watch(ctx, "rest", idle); err != nil {
		return err
	}
	fmt.Println()
	return nil
}

// world is one plugin and the driver that it sees.
type world struct {
	dir, path, binary string
	libraries         string // folder of libnvidia-ml.so.1
	state             nvmltest.State
	keepsState        bool // it has the key state_dir
	*conformance.Process
	stream <-chan *device.FingerprintResponse
}

func (w *world) set(scope, key, value string) error {
	w.state.Set(scope, key, value)
	return w.state.Write(w.path)
}

// ownState is a config, with a directory of our own for a plugin that would
// else keep its state in this machine's. Each step has another, so that the
// faults of one are not remembered in the next.
func (w *world) ownState(config, dir string) string {
	if !w.keepsState {
		return config
	}
	return config + fmt.Sprintf("\nstate_dir = %q\n", filepath.Join(w.dir, dir))
}

// measure drives the plugin by itself.
func (w *world) measure(ctx context.Context, idle time.Duration) error {
	if err := w.state.Write(w.path); err != nil {
		return err
	}
	begin := time.Now()
	p, err := w.start(config, "state")
	if err != nil {
		return err
	}
	defer p.Stop()
	fmt.Printf("  start, handshake and config                   %8.0f ms\n", ms(time.Since(begin)))
	begin = time.Now()
	if w.stream, err = p.Device.Fingerprint(ctx); err != nil {
		return err
	}
	if _, err := w.next(ctx); err != nil {
		return err
	}
	fmt.Printf("  first fingerprint                             %8.1f ms\n", ms(time.Since(begin)))
	if err := w.reserve(); err != nil {
		return err
	}
	if err := w.faults(ctx); err != nil {
		return err
	}
	p.Stop() // what faults did to a plugin says nothing about one at rest
	for _, r := range rests {
		if err := w.atRest(ctx, r, idle); err != nil {
			return err
		}
	}
	return nil
}

// rest is a node on which the plugin is watched at rest.
type rest struct {
	name string
	// call is how long each call into the library takes, beside looking things up:
	// Go's runtime looks after a call as long as it runs, so a driver that takes its
	// time costs wakeups.
	call time.Duration
	// noGPM: the GPUs are older than Hopper.
	noGPM bool
}

var rests = []rest{
	{name: "a driver that answers at once"},
	{name: "a driver that takes 50 µs a call", call: 50 * time.Microsecond},
	{name: "GPUs without profiling metrics", noGPM: true},
}

// restConfig is a plugin as it is installed: it reads the GPUs once a minute.
const restConfig = `fingerprint_period = "1m"`

// atRest restarts the plugin over a healthy node and watches it.
func (w *world) atRest(ctx context.Context, r rest, idle time.Duration) error {
	w.state = nvmltest.H200(gpus)
	w.state.Set("sys", "call_us", strconv.FormatInt(r.call.Microseconds(), 10))
	for i := range gpus {
		if scope := fmt.Sprintf("gpu%d", i); r.noGPM {
			w.state.Set(scope, "gpm", "0")
			w.state.Set(scope, "pcie_rx_kb", "1000")
			w.state.Set(scope, "pcie_tx_kb", "1000")
		}
	}
	if err := w.state.Write(w.path); err != nil {
		return err
	}
	fmt.Printf("  at rest for %.0f s, %s\n", idle.Seconds(), r.name)
	return w.watch(ctx, fmt.Sprintf("rest-%t-%s", r.noGPM, r.call), idle)
}

// watch starts the plugin and watches it at rest.
func (w *world) watch(ctx context.Context, state string, idle time.Duration) error {
	p, err := w.start(restConfig, state)
	if err != nil {
		return err
	}
	defer p.Stop()
	if w.stream, err = p.Device.Fingerprint(ctx); err != nil {
		return err
	}
	if _, err := w.next(ctx); err != nil {
		return err
	}
	return w.idle(ctx, idle)
}

// start starts the plugin with a config, and a state of its own.
func (w *world) start(config, state string) (*conformance.Process, error) {
	p, err := conformance.Start(w.binary, []string{"LD_LIBRARY_PATH=" + w.libraries}, io.Discard)
	if err != nil {
		return nil, err
	}
	w.Process = p
	schema, err := p.Base.ConfigSchema()
	if err != nil {
		p.Stop()
		return nil, err
	}
	_, w.keepsState = schema.GetObject().GetAttributes()["state_dir"]
	if err := p.Configure(w.ownState(config, state)); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// next is the next fingerprint; the end of the stream is an error here as it is
// for Nomad.
func (w *world) next(ctx context.Context) ([]*device.DeviceGroup, error) {
	select {
	case m, ok := <-w.stream:
		if !ok {
			return nil, errors.New("the fingerprint stream ended: Nomad would drop all devices until its agent restarts")
		}
		return m.Devices, m.Error
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(20 * time.Second):
		return nil, errors.New("no fingerprint within 20 s")
	}
}

// reserve times reservations.
func (w *world) reserve() error {
	const n = 1000
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		if _, err := w.Device.Reserve([]string{nvmltest.UUID(i % gpus)}); err != nil {
			return err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	fmt.Printf("  Reserve, median and 99th percentile           %8.2f ms, %.2f ms\n", ms(took[n/2]), ms(took[n*99/100]))
	return nil
}

// faults times how long until the plugin says that a GPU is unhealthy.
func (w *world) faults(ctx context.Context) error {
	for _, f := range []struct{ name, scope, key, value, end string }{
		{"GPU lost (polled)", "gpu1", "lost", "1", ""},
		{"Xid 79 (event)", "sys", "event.1", "2 8 79 -1", "1"},
	} {
		begin := time.Now()
		if err := w.set(f.scope, f.key, f.value); err != nil {
			return err
		}
		took, err := w.untilUnhealthy(ctx, begin)
		if err != nil {
			fmt.Printf("  fault to message: %-27s never: %v\n", f.name, err)
			break
		}
		fmt.Printf("  fault to message: %-27s %8.0f ms\n", f.name, ms(took))
	}
	return w.set("gpu1", "lost", "")
}

func (w *world) untilUnhealthy(ctx context.Context, begin time.Time) (time.Duration, error) {
	before := -1
	for {
		groups, err := w.next(ctx)
		if err != nil {
			return 0, err
		}
		unhealthy := 0
		for _, g := range groups {
			for _, d := range g.Devices {
				if !d.Healthy {
					unhealthy++
				}
			}
		}
		if unhealthy > max(before, 0) {
			return time.Since(begin), nil
		}
		before = unhealthy
	}
}

// idle watches what the plugin takes while statistics are sent every second.
func (w *world) idle(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	stats, err := w.Device.Stats(ctx, time.Second)
	if err != nil {
		return err
	}
	before, err := process.Of(w.PID())
	if err != nil {
		return err
	}
	wakeups, err := process.Wakeups(w.PID())
	if err != nil {
		return err
	}
	begin, n := time.Now(), 0
	for m := range stats {
		if m.Error != nil && time.Since(begin) < d-time.Second {
			return m.Error
		}
		n++
	}
	woken, err := process.Wakeups(w.PID())
	if err != nil {
		return err
	}
	used, err := process.Of(w.PID())
	if err != nil {
		return err
	}
	fmt.Printf("    statistics                                  %8d\n", n)
	fmt.Printf("    CPU                                         %8.2f %% of a core\n", 100*(used.CPU-before.CPU).Seconds()/time.Since(begin).Seconds())
	fmt.Printf("    wakeups                                     %8.1f a second\n", float64(woken-wakeups)/time.Since(begin).Seconds())
	fmt.Printf("    memory (RSS)                                %8.1f MB\n", used.RSSMB)
	return nil
}

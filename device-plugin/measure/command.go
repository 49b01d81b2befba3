// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/internal/nearest"
	"github.com/nomad-pal/nomad-pal/internal/wholefile"
)

// Synopsis and Help describe the subcommand.
const (
	Synopsis = "Measure how fast each GPU of this node is"
	Help     = `Usage: nomad-device-pal measure [options] [GPU...]

  Measures GPUs (all of the node, or those named by UUID) with kernels for the
  application classes A (compute), B (mixed), C (memory bandwidth) and D
  (irregular access), all at once, because jobs share the node's cooling and power.
  Takes two to five minutes, and needs the NVIDIA driver.
  Refuses a GPU that is in use, or that a Nomad allocation holds. Asks the agent
  at NOMAD_ADDR, with NOMAD_TOKEN (default: this machine's agent,
  http://127.0.0.1:4646).

  -limit=DURATION     At most this long per GPU (default 5m).
  -warmup=DURATION    At most this long until the GPU is warm (default 3m).
  -force              Measure GPUs that are in use too, and do not ask Nomad.
  -out=FILE           Write the report, with every repetition, to this file.
  -nvml=LIBRARY       NVML library (default libnvidia-ml.so.1).
  -cuda=LIBRARY       CUDA driver library (default libcuda.so.1).
  -state-dir=DIR      The plugin's state_dir (default /var/lib/nomad-device-pal). If the
                      plugin with this state_dir has released the driver, this
                      command does not open the driver.

  Exit code 0: every GPU was measured; 1: a GPU was measured only in part, or not at
  all; 2: bad arguments.
`
)

// Backend lists the GPUs and reads their telemetry.
type Backend interface {
	Scan() (gpu.Inventory, error)
	Sample(ids []string) map[string]gpu.Sample
	// Processes returns the processes that compute or draw on each GPU.
	Processes(ids []string) map[string][]int
	Close()
}

// Command is the measure subcommand, configured by the plugin's main.
type Command struct {
	// Self is the command line that runs [ChildMain].
	Self []string
	// Open opens NVML.
	Open func(library string) Backend
	// Allocated asks Nomad which of the GPUs are allocated.
	Allocated func(ctx context.Context, ids []string) (map[string]string, error)
	// Released returns an error if the plugin's state directory has an order to release the
	// driver.
	Released func(stateDir string) error
	// StateDir is the plugin's state directory, unless a flag names another.
	StateDir       string
	Stdout, Stderr io.Writer
	proc           string        // "" means /proc
	patience       time.Duration // how long to wait for the driver; 0 means gpu.DriverWithin
}

// options are the parsed flags.
type options struct {
	plan                Plan
	force               bool
	out, nvml, cudaPath string
	gpus                []string
	stateDir            string
}

// Run runs the subcommand and returns its exit code. After SIGINT or SIGTERM, the command ends and
// returns the results so far.
func (c Command) Run(args []string) int {
	o, err := c.parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(c.Stdout, Help)
		return 0
	}
	if err != nil {
		fmt.Fprintf(c.Stderr, "measure: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := c.measure(ctx, o)
	if err != nil {
		fmt.Fprintf(c.Stderr, "measure: %v\n", err)
		return 1
	}
	if err := c.deliver(o, report); err != nil {
		fmt.Fprintf(c.Stderr, "measure: %v\n", err)
		return 1
	}
	if slices.ContainsFunc(report.Results, func(r Result) bool { return r.Partial }) {
		return 1
	}
	return 0
}

func (c Command) parseOptions(args []string) (options, error) {
	o := options{plan: DefaultPlan()}
	fs := flag.NewFlagSet("measure", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.DurationVar(&o.plan.Limit, "limit", o.plan.Limit, "")
	fs.DurationVar(&o.plan.Warmup, "warmup", o.plan.Warmup, "")
	fs.BoolVar(&o.force, "force", false, "")
	fs.StringVar(&o.out, "out", "", "")
	fs.StringVar(&o.nvml, "nvml", "libnvidia-ml.so.1", "")
	fs.StringVar(&o.cudaPath, "cuda", cuda.Library, "")
	fs.StringVar(&o.stateDir, "state-dir", c.StateDir, "")
	if err := fs.Parse(args); err != nil {
		return o, fmt.Errorf("%w%s", err, nearest.Option(fs, err))
	}
	o.gpus = fs.Args()
	if o.plan.Limit <= 0 || o.plan.Warmup < 0 {
		return o, errors.New("-limit must be positive, and -warmup must not be negative")
	}
	return o, nil
}

// measure runs the sessions.
func (c Command) measure(ctx context.Context, o options) (Report, error) {
	report := Report{Format: Format, Started: time.Now().UTC().Truncate(time.Second), Results: []Result{}}
	report.Node, _ = os.Hostname() // the name is useful but not required
	if c.Released != nil {
		if err := c.Released(o.stateDir); err != nil {
			return report, err
		}
	}
	run := Runner{Self: c.Self, Library: o.cudaPath, Allocated: c.Allocated, proc: c.proc}
	b := c.Open(o.nvml)
	targets, err := c.targets(ctx, o, b, &run)
	if errors.Is(err, gpu.ErrNoAnswer) {
		return report, err
	}
	defer b.Close()
	if err != nil {
		return report, err
	}
	progress := &board{w: c.Stderr, doing: map[string]string{}}
	report.Results = make([]Result, len(targets))
	session := func(i int) { report.Results[i] = run.Session(ctx, targets[i], o.plan, progress.show) }
	var wg sync.WaitGroup
	for i := range targets {
		wg.Go(func() { session(i) })
	}
	wg.Wait()
	return report, nil
}

// targets returns the GPUs to measure. The values from NVML become part of the comparability keys.
func (c Command) targets(ctx context.Context, o options, b Backend, run *Runner) ([]Target, error) {
	inv, err := gpu.Within(cmp.Or(c.patience, gpu.DriverWithin), "listing the GPUs", b.Scan)
	if err != nil {
		return nil, err
	}
	run.Sample, run.Processes = b.Sample, b.Processes
	var targets []Target
	var known []string
	for _, d := range inv.Devices {
		if d.MIG.Profile != "" {
			continue
		}
		known = append(known, d.ID)
		if len(o.gpus) == 0 || slices.Contains(o.gpus, d.ID) {
			targets = append(targets, Target{Device: d, Driver: inv.DriverVersion})
		}
	}
	for _, id := range o.gpus {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("this node has no GPU %q (its GPUs: %s)", id, strings.Join(known, ", "))
		}
	}
	if len(targets) == 0 {
		return nil, errors.New("no GPU to measure on this node (MIG instances are not measured)")
	}
	if !o.force {
		if err := run.refuseBusy(ctx, inv.Devices, targets); err != nil {
			return nil, err
		}
	}
	for i := range targets {
		targets[i].Of = len(known)
		targets[i].Beside = len(targets) - 1
	}
	return targets, nil
}

// refuseBusy returns an error that names the GPUs that are in use or allocated. refuseBusy also
// returns an error if Nomad does not answer.
func (r Runner) refuseBusy(ctx context.Context, all []gpu.Device, targets []Target) error {
	const anyway = "-force measures anyway"
	var ids, busy []string
	for _, t := range targets {
		ids = append(ids, t.Device.ID)
	}
	held, err := r.Allocated(ctx, ids)
	if err != nil {
		return fmt.Errorf("cannot tell whether tasks hold these GPUs: %w (NOMAD_ADDR and NOMAD_TOKEN set the agent and the token; %s)", err, anyway)
	}
	uses := r.InUse(all, ids)
	for _, id := range ids {
		why := cmp.Or(held[id], uses[id])
		if why != "" {
			busy = append(busy, id+" ("+why+")")
		}
	}
	if len(busy) > 0 {
		return fmt.Errorf("in use: %s; measuring would disturb the programs that use them (%s)", strings.Join(busy, ", "), anyway)
	}
	return nil
}

// deliver writes the report to the file and prints it, as the flags request.
func (c Command) deliver(o options, r Report) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := wholefile.Write(o.out, data); err != nil {
			return fmt.Errorf("writing %q: %w", o.out, err)
		}
		fmt.Fprintf(c.Stderr, "report written to %s\n", o.out)
	}
	return writeTable(c.Stdout, r)
}

// ChildMain runs the hidden subcommand [ChildCommand].
func ChildMain(args []string, in io.Reader, out, stderr io.Writer) int {
	fs := flag.NewFlagSet(ChildCommand, flag.ContinueOnError)
	fs.SetOutput(stderr)
	id := fs.String("gpu", "", "")
	library := fs.String("library", "", "")
	window := fs.Duration("window", 500*time.Millisecond, "")
	avoid := fs.String("avoid", "", "")
	list := fs.Bool("list", false, "")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	_ = os.WriteFile("/proc/self/comm", []byte(childName), 0) // otherwise the process would be named after /proc/self/exe
	if *list {
		return childList(*library, out)
	}
	o := childOptions{library: *library, uuid: *id, windowMs: float64(*window) / float64(time.Millisecond)}
	if *avoid != "" {
		o.avoid = strings.Split(*avoid, ",")
	}
	return Child(o, in, out)
}

// childList prints the GPUs that the driver lists.
func childList(library string, out io.Writer) int {
	enc := json.NewEncoder(out)
	d, err := cuda.Open(library)
	var devices []cuda.Device
	if err == nil {
		devices, err = d.Devices()
	}
	if err != nil {
		_ = enc.Encode(failed(err))
		return 1
	}
	for _, dev := range devices {
		if err := enc.Encode(message{Device: &childDevice{UUID: dev.UUID, Name: dev.Name, Compute: capability(dev)}}); err != nil {
			return 2
		}
	}
	return 0
}

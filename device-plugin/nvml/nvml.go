// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// Backend reads GPUs through NVML. The library is loaded with the first scan,
// and again with every scan until it works.
type Backend struct {
	opts Options
	lib  nvml.Interface
	// lookup reports whether the library has a symbol. Calling a missing symbol
	// would end the process.
	lookup func(symbol string) error
	// check finds the library, and reports whether it can be loaded and is NVML, before
	// anything in it is called; nil when there is nothing to load.
	check func() error
	// within is how long the calls for one GPU may take, lateWithin to count in the next
	// scan, eventsEvery the time between looks for events.
	within, lateWithin, eventsEvery time.Duration

	// conn is held for reading around every use of the library, for writing
	// while it is initialised or shut down.
	conn    sync.RWMutex
	up      bool
	path    string // of the library
	wasUp   bool   // it worked once in this process
	loaded  string // the load of the driver that it was initialised under
	inits   int    // how often it was initialised
	symbols *symbols
	// overruns: the driver's lists of processes do not fit into NVML's records.
	overruns bool

	// mu guards what scans leave for samples and events.
	mu       sync.Mutex
	slots    []*slot
	known    map[string]found  // by UUID: indexes move when a GPU falls off the bus
	handles  map[string]handle // by device id
	physical map[string]nvml.Device
	pairs    topologyCache
	gpm      map[string]*gpmState
	counters map[string]growth // of GPUs
	listing  map[string]bool   // devices whose processes are being asked for
}

// handle is how a device id is asked for.
type handle struct {
	dev      nvml.Device // the device itself
	parent   nvml.Device // of a MIG instance, else nil
	physical string      // UUID of the physical GPU
	gi, ci   int         // of a MIG instance
}

// Open returns the backend. It does not touch the library.
func Open(o Options) *Backend {
	b := newBackend(o, nil, nil)
	b.load(o.Library)
	b.check = func() error {
		// The driver may have been installed since, and elsewhere.
		if path := gpu.FindLibrary(o.root(), o.Library); path != b.path {
			b.load(path)
		}
		return checkLibrary(b.path)
	}
	return b
}

// load takes the library from a path. Callers hold conn for writing, or nobody has the backend.
func (b *Backend) load(path string) {
	b.path = path
	b.lib = nvml.New(nvml.WithLibraryPath(path))
	b.lookup = b.lib.Extensions().LookupSymbol
}

func newBackend(o Options, lib nvml.Interface, lookup func(string) error) *Backend {
	return &Backend{
		opts: o, lib: lib, lookup: lookup, within: answerWithin, lateWithin: lateWithin, eventsEvery: eventsEvery,
		known: map[string]found{}, handles: map[string]handle{}, physical: map[string]nvml.Device{},
		gpm: map[string]*gpmState{}, counters: map[string]growth{}, listing: map[string]bool{},
	}
}

// Close shuts NVML down once the calls that run have returned. It does not wait for
// them: one may hang with the driver.
func (b *Backend) Close() {
	if b.conn.TryLock() {
		defer b.conn.Unlock()
		b.shutdown()
		return
	}
	go b.Disconnect()
}

// connect initialises NVML unless it is up. A driver that was reloaded needs
// that as well.
func (b *Backend) connect() error {
	load := b.driverLoad()
	if b.connected(load) {
		return nil
	}
	b.conn.Lock()
	defer b.conn.Unlock()
	b.shutdown()
	if b.check != nil {
		if err := b.check(); err != nil {
			return err
		}
	}
	if ret := b.lib.Init(); ret != nvml.SUCCESS {
		return b.unavailable(ret)
	}
	b.up, b.wasUp, b.loaded = true, true, cmp.Or(load, b.driverLoad()) // it may have loaded the module
	b.inits++
	b.symbols = newSymbols(b.lookup)
	driver, _ := value(&reader{sym: b.symbols}, "nvmlSystemGetDriverVersion", b.lib.SystemGetDriverVersion)
	b.overruns = overruns(driver)
	b.mu.Lock()
	// What an earlier initialisation gave is not valid.
	b.gpm, b.handles, b.physical = map[string]*gpmState{}, map[string]handle{}, map[string]nvml.Device{}
	b.mu.Unlock()
	return nil
}

// checkLibrary loads a library and looks for what NVML cannot do without: a call
// to a function that is not there would end the process.
func checkLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return &gpu.Unavailable{What: notLoaded(path), Err: err}
	}
	defer lib.Close()
	for _, names := range [][]string{{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlErrorString"}, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}} {
		if !slices.ContainsFunc(names, func(n string) bool { return lib.Lookup(n) == nil }) {
			return &gpu.Unavailable{What: fmt.Sprintf("library %q is not NVML: it has no %s (config key nvml_library)", path, names[0])}
		}
	}
	return nil
}

// notLoaded is an error with the places where a library was looked for.
func notLoaded(path string) string {
	where := ""
	if !strings.Contains(path, "/") {
		where = fmt.Sprintf("; it is neither where the linker looks nor in %s", strings.Join(gpu.LibraryDirs(), ", "))
	}
	return fmt.Sprintf("NVML library %q cannot be loaded: is the NVIDIA driver installed?%s (config key nvml_library)", path, where)
}

// connected does not wait for calls that run, or hang, as a writer would.
func (b *Backend) connected(load string) bool {
	b.conn.RLock()
	defer b.conn.RUnlock()
	return b.up && load == b.loaded
}

// Disconnect shuts NVML down once the calls that run have returned.
func (b *Backend) Disconnect() {
	b.conn.Lock()
	defer b.conn.Unlock()
	b.shutdown()
}

// shutdown ends the connection. Callers hold conn for writing.
func (b *Backend) shutdown() {
	if b.up {
		b.up = false
		b.lib.Shutdown()
	}
}

// replaced reports whether a new process would load another library than this
// process has loaded: the driver package was upgraded or downgraded.
func replaced(maps, library string) bool {
	data, err := os.ReadFile(maps)
	if err != nil {
		return false
	}
	name, _, _ := strings.Cut(filepath.Base(library), ".so")
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line) // addresses, rights, offset, device, inode, path
		if len(f) < 6 || !strings.HasPrefix(filepath.Base(f[5]), name+".so") {
			continue
		}
		next := library
		if !strings.Contains(library, "/") { // its versions lie side by side
			next = filepath.Join(filepath.Dir(f[5]), library)
		}
		st, err := os.Stat(next)
		if err != nil { // removed, or found by another way
			_, err = os.Stat(f[5])
			return errors.Is(err, os.ErrNotExist)
		}
		now, ok := st.Sys().(*syscall.Stat_t)
		return ok && strconv.FormatUint(now.Ino, 10) != f[4]
	}
	return false
}

// driverLoad identifies the present load of the kernel module by the number of its
// directory in /sys, which is new with each load. The time of the directory is no
// sign: the kernel sets it to now whenever it has dropped the directory from its
// cache, and then every latched fault would be forgotten.
func (b *Backend) driverLoad() string {
	st, err := os.Stat(filepath.Join(b.opts.root(), "sys/module/nvidia"))
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(sys.Ino, 10)
}

// bootID identifies the boot of the machine.
func (b *Backend) bootID() string {
	data, err := os.ReadFile(filepath.Join(b.opts.root(), "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// symbols remembers which functions the loaded library has.
type symbols struct {
	lookup func(string) error
	mu     sync.Mutex
	known  map[string]bool
}

func newSymbols(lookup func(string) error) *symbols {
	return &symbols{lookup: lookup, known: map[string]bool{}}
}

// has reports whether one of the names is there: versions of one function.
func (s *symbols) has(names ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		found, asked := s.known[n]
		if !asked {
			found = s.lookup(n) == nil
			s.known[n] = found
		}
		if found {
			return true
		}
	}
	return false
}

// reader asks one GPU, and notes what the answers say about it.
type reader struct {
	sym         *symbols
	lost, reset bool
	fatal       gpu.Failure   // what told first that the GPU is lost, or must be reset
	failed      []gpu.Failure // of the questions that count, each once
	denied      []gpu.Failure // the same, where the plugin may not ask
}

// value asks for one value. ok is false when the library or the GPU has it not.
func value[T any](r *reader, symbol string, ask func() (T, nvml.Return)) (v T, ok bool) {
	v, ret := answer(r, symbol, ask)
	return v, ret == nvml.SUCCESS
}

// answer is value with the return code. A question that fails is asked a second time at once,
// so that a single call that went wrong says nothing.
func answer[T any](r *reader, symbol string, ask func() (T, nvml.Return)) (T, nvml.Return) {
	var zero T
	if r.lost || !r.sym.has(strings.Split(symbol, "|")...) {
		return zero, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	function := gpu.BaseName(symbol)
	v, ret := ask()
	if askAgain(function, ret) {
		v, ret = ask()
	}
	r.note(function, ret)
	if ret != nvml.SUCCESS {
		return zero, ret
	}
	return v, ret
}

// askAgain reports whether a second answer may differ, and matters.
func askAgain(function string, ret nvml.Return) bool {
	if ret == nvml.SUCCESS {
		return false
	}
	switch gpu.KindOf(int(ret)) {
	case gpu.Lost, gpu.NeedsReset:
		return true
	case gpu.Failed:
		return gpu.WeightOf(function) != gpu.Nothing
	}
	return false
}

// first is an answer without its second value.
func first[T, U any](ask func() (T, U, nvml.Return)) func() (T, nvml.Return) {
	return func() (T, nvml.Return) {
		v, _, ret := ask()
		return v, ret
	}
}

// note remembers what an answer says about the GPU.
func (r *reader) note(function string, ret nvml.Return) {
	if ret == nvml.SUCCESS {
		return
	}
	f := gpu.Failure{Function: function, Code: int(ret)}
	counts := gpu.WeightOf(function) != gpu.Nothing
	switch gpu.KindOf(int(ret)) {
	case gpu.Lost, gpu.NeedsReset:
		if !r.lost && !r.reset {
			r.fatal = f
		}
		r.lost = r.lost || ret == nvml.ERROR_GPU_IS_LOST
		r.reset = r.reset || ret == nvml.ERROR_RESET_REQUIRED
	case gpu.Failed, gpu.DriverGone:
		if counts {
			r.failed = withFailure(r.failed, f)
		}
	case gpu.Denied:
		if counts {
			r.denied = withFailure(r.denied, f)
		}
	}
}

// join takes over what another reader of the same GPU learned about all of it.
func (r *reader) join(o *reader) {
	if !r.lost && !r.reset {
		r.fatal = o.fatal
	}
	r.lost, r.reset = r.lost || o.lost, r.reset || o.reset
}

// withFailure adds a failure unless the question has failed before: some are asked of several
// clocks or sensors.
func withFailure(fs []gpu.Failure, f gpu.Failure) []gpu.Failure {
	if slices.ContainsFunc(fs, func(o gpu.Failure) bool { return o.Function == f.Function }) {
		return fs
	}
	fs = append(slices.Clone(fs), f)
	gpu.SortFailures(fs)
	return fs
}

// number asks for an integer and scales it down. All ones is how NVML says that a
// value is not available, while the call succeeds (NVML_VALUE_NOT_AVAILABLE).
func number[T ~int | ~uint32 | ~uint64](r *reader, symbol string, divide int64, ask func() (T, nvml.Return)) *int64 {
	v, ok := value(r, symbol, ask)
	if !ok || !available(v) {
		return nil
	}
	n := int64(v) / divide
	return &n
}

// available takes go-nvml's integers as well, which were 32 bits wide in NVML.
func available[T ~int | ~uint32 | ~uint64](v T) bool {
	return v != ^T(0) && uint64(v) != math.MaxUint32
}

// mebibytes are n bytes, nil when the driver does not know.
func mebibytes(n uint64) *int64 {
	if !available(n) {
		return nil
	}
	v := int64(n >> 20)
	return &v
}

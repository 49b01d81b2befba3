// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

//go:build cgo && linux

package nvml

import (
	"cmp"
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

// Backend reads GPUs through NVML. The first scan loads the library. If loading fails, each later
// scan tries again.
type Backend struct {
	opts Options
	lib  nvml.Interface
	// lookup reports whether the library has a symbol.
	lookup func(symbol string) error
	// check returns an error if the library cannot be loaded or is not NVML. The check precedes all
	// calls of the library. check is nil if there is nothing to load.
	check func() error
	// within is the maximum time of the calls for one GPU in a scan. eventsEvery is the time between
	// two checks for events.
	within, eventsEvery time.Duration

	// conn is locked for reading while the library is used, and for writing while NVML is
	// initialized or shut down.
	conn    sync.RWMutex
	up      bool
	path    string      // path of the library
	loaded  string      // driver load during which NVML was initialized
	inits   int         // number of initializations
	file    libraryFile // the library that this process has loaded, which it never unloads
	symbols *symbols
	// overruns means that the driver writes longer process records than NVML documents.
	overruns bool

	// mu protects the data that scans store for samples and events.
	mu       sync.Mutex
	slots    []*slot
	known    map[string]found  // by UUID, because indexes change when a GPU falls off the bus
	handles  map[string]handle // by device id
	physical map[string]nvml.Device
	linked   map[string]links // links that each GPU has had, by UUID; for scans only
	gpm      map[string]*gpmState
	counters map[string]growth // counters of GPUs, by the counter's name and the GPU's UUID
	listing  map[string]bool   // devices whose processes are being listed
}

// handle has the data that calls to NVML need for a device id.
type handle struct {
	dev      nvml.Device // the device itself
	parent   nvml.Device // the GPU of a MIG instance, otherwise nil
	physical string      // UUID of the physical GPU
	gi, ci   int         // ids of a MIG instance and its compute instance
}

// Open returns the backend. It does not call the library.
func Open(o Options) *Backend {
	b := newBackend(o, nil, nil)
	b.load(o.Library)
	b.check = func() error {
		// The driver may have been installed in another place since the last attempt.
		path := gpu.FindLibrary(o.root(), o.Library)
		if path != b.path {
			b.load(path)
		}
		return checkLibrary(b.path)
	}
	return b
}

// load loads the library from a path. Callers hold conn for writing, or are the only users
// of the backend.
func (b *Backend) load(path string) {
	b.path, b.file = path, libraryFile{}
	b.lib = nvml.New(nvml.WithLibraryPath(path))
	b.lookup = b.lib.Extensions().LookupSymbol
}

func newBackend(o Options, lib nvml.Interface, lookup func(string) error) *Backend {
	return &Backend{
		opts: o, lib: lib, lookup: lookup, within: answerWithin, eventsEvery: eventsEvery,
		known: map[string]found{}, linked: map[string]links{}, handles: map[string]handle{}, physical: map[string]nvml.Device{},
		gpm: map[string]*gpmState{}, counters: map[string]growth{}, listing: map[string]bool{},
	}
}

// Close shuts NVML down once the running calls have returned. Close waits neither for these calls
// nor for the shutdown, because both can hang with the driver.
func (b *Backend) Close() { go b.Disconnect() }

// starting is held while a backend initializes NVML or shuts it down. Initialization and shutdown
// write variables that all backends share (in go-nvml), and one backend can shut down while another
// starts.
var starting sync.Mutex

// connect initializes NVML if NVML is not initialized, or if the driver was reloaded.
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
	starting.Lock()
	ret := b.lib.Init()
	starting.Unlock()
	if b.file == (libraryFile{}) {
		b.file = onDisk(b.path)
	}
	if ret != nvml.SUCCESS {
		return b.unavailable(ret)
	}
	b.up, b.loaded = true, cmp.Or(load, b.driverLoad()) // initializing may have loaded the module
	b.inits++
	b.symbols = &symbols{lookup: b.lookup, known: map[string]bool{}}
	driver, _ := value(&reader{sym: b.symbols}, "nvmlSystemGetDriverVersion", b.lib.SystemGetDriverVersion)
	b.overruns = overruns(driver)
	b.mu.Lock()
	b.gpm = map[string]*gpmState{}
	b.handles = map[string]handle{}
	b.physical = map[string]nvml.Device{}
	b.mu.Unlock()
	return nil
}

// checkLibrary loads a library and checks for the functions that NVML always has, because calling a
// missing function would end the process.
func checkLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY)
	if err := lib.Open(); err != nil {
		return &gpu.Unavailable{What: notLoaded(path), Err: err}
	}
	defer lib.Close()
	for _, names := range [][]string{{"nvmlInit_v2", "nvmlInit"}, {"nvmlShutdown"}, {"nvmlErrorString"}, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}} {
		if !slices.ContainsFunc(names, func(n string) bool { return lib.Lookup(n) == nil }) {
			return &gpu.Unavailable{What: fmt.Sprintf("library %q is not NVML, because it has no function %s (config key nvml_library)", path, names[0])}
		}
	}
	return nil
}

// notLoaded returns the error text for a library that cannot be loaded. The text lists where the
// plugin looked for the library.
func notLoaded(path string) string {
	where := ""
	if !strings.Contains(path, "/") {
		where = fmt.Sprintf("; the library is neither where the dynamic linker looks nor in %s", strings.Join(gpu.LibraryDirs(), ", "))
	}
	return fmt.Sprintf("NVML library %q cannot be loaded: is the NVIDIA driver installed?%s (config key nvml_library)", path, where)
}

// connected reports whether NVML is initialized for the present load of the driver. connected does
// not wait for calls that run or hang.
func (b *Backend) connected(load string) bool {
	b.conn.RLock()
	defer b.conn.RUnlock()
	return b.up && load == b.loaded
}

// Disconnect shuts NVML down once the running calls have returned.
func (b *Backend) Disconnect() {
	b.conn.Lock()
	defer b.conn.Unlock()
	b.shutdown()
}

// shutdown ends the connection. Callers hold conn for writing.
func (b *Backend) shutdown() {
	if b.up {
		b.up = false
		starting.Lock()
		defer starting.Unlock()
		b.lib.Shutdown()
	}
}

// libraryFile identifies the file from which a new process would load the library. The zero value
// means that there is no file.
type libraryFile struct {
	device, inode uint64
	size          int64
	modified      time.Time
	version       string // of the driver, from the file's name; "" if unknown
}

// onDisk returns the file of a library, by path or name, as it is on disk now. It does not compare with the inodes in
// /proc/self/maps, because on an overlay file system these differ from those of the same files.
func onDisk(path string) (f libraryFile) {
	if !strings.Contains(path, "/") {
		path = besides("/proc/self/maps", path)
	}
	st, err := os.Stat(path)
	if err != nil {
		return f
	}
	sys := st.Sys().(*syscall.Stat_t)
	f = libraryFile{device: uint64(sys.Dev), inode: sys.Ino, size: st.Size(), modified: st.ModTime()}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		_, version, _ := strings.Cut(filepath.Base(real), ".so.")
		if strings.Contains(version, ".") {
			f.version = version
		}
	}
	return f
}

// besides returns the path of the named library in the directory of the version that this process
// has loaded, or "" if none is loaded.
func besides(maps, library string) string {
	data, _ := os.ReadFile(maps) // without the file, no library is known
	name, _, _ := strings.Cut(library, ".so")
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 5 && strings.HasPrefix(filepath.Base(f[5]), name+".so") {
			return filepath.Join(filepath.Dir(f[5]), library)
		}
	}
	return ""
}

// outdated reports whether the library's file was replaced, unless the new file is of the loaded
// driver's version.
func (b *Backend) outdated() bool {
	b.conn.RLock()
	defer b.conn.RUnlock()
	now := onDisk(b.path)
	if now == b.file {
		return false
	}
	module, _ := os.ReadFile(filepath.Join(b.opts.root(), "sys/module/nvidia/version")) // without the file, the version is unknown
	return now.version == "" || now.version != strings.TrimSpace(string(module))
}

// driverLoad identifies the present load of the kernel module by the inode number of its directory
// in /sys. Each load has a new number. The directory's time is unsuitable, because the kernel can
// change the time without a new load, and the plugin would then forget all latched faults.
func (b *Backend) driverLoad() string {
	st, err := os.Stat(filepath.Join(b.opts.root(), "sys/module/nvidia"))
	if err != nil {
		return ""
	}
	return strconv.FormatUint(st.Sys().(*syscall.Stat_t).Ino, 10)
}

// bootID identifies the machine's boot; "" if unknown.
func (b *Backend) bootID() string {
	data, _ := os.ReadFile(filepath.Join(b.opts.root(), "proc/sys/kernel/random/boot_id"))
	return strings.TrimSpace(string(data))
}

// symbols caches which functions the loaded library has.
type symbols struct {
	lookup func(string) error
	mu     sync.Mutex
	known  map[string]bool
}

// has reports whether the library has one of the names, which are versions of one function.
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

// reader asks NVML about one GPU, and collects what the answers reveal about its health.
type reader struct {
	sym         *symbols
	lost, reset bool
	fatal       gpu.Failure   // the first answer that said that the GPU is lost, or must be reset
	failed      []gpu.Failure // failed questions that affect health, each once
	denied      []gpu.Failure // questions for which the plugin lacks permission, each once
}

// value asks for one value. ok is false if the library or the GPU does not have the value.
func value[T any](r *reader, symbol string, ask func() (T, nvml.Return)) (v T, ok bool) {
	v, ret := answer(r, symbol, ask)
	return v, ret == nvml.SUCCESS
}

// answer is like value, but returns the return code instead of ok. answer repeats a failed question
// once, so that a single failed call has no effect.
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

// askAgain reports whether a second answer can differ and would matter.
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

// first returns the first of two values.
func first[T, U any](ask func() (T, U, nvml.Return)) func() (T, nvml.Return) {
	return func() (T, nvml.Return) {
		v, _, ret := ask()
		return v, ret
	}
}

// note records what an answer reveals about the GPU.
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

// join adds the findings of another reader about the whole GPU.
func (r *reader) join(o *reader) {
	if !r.lost && !r.reset {
		r.fatal = o.fatal
	}
	r.lost, r.reset = r.lost || o.lost, r.reset || o.reset
}

// withFailure adds a failure unless the question has failed before. Some questions are asked
// several times, for different clocks or sensors.
func withFailure(fs []gpu.Failure, f gpu.Failure) []gpu.Failure {
	if slices.ContainsFunc(fs, func(o gpu.Failure) bool { return o.Function == f.Function }) {
		return fs
	}
	fs = append(slices.Clone(fs), f)
	gpu.SortFailures(fs)
	return fs
}

// number asks for an integer and divides it. If a value is not available, NVML's call succeeds with
// all bits set (NVML_VALUE_NOT_AVAILABLE).
func number[T ~int | ~uint32 | ~uint64](r *reader, symbol string, divide int64, ask func() (T, nvml.Return)) *int64 {
	v, ok := value(r, symbol, ask)
	if !ok || !available(v) {
		return nil
	}
	n := int64(v) / divide
	return &n
}

// available reports whether NVML has the value. Some integers have 32 bits in NVML, but more bits
// in go-nvml.
func available[T ~int | ~uint32 | ~uint64](v T) bool {
	return v != ^T(0) && uint64(v) != math.MaxUint32
}

// mebibytes converts bytes to MiB; nil if the driver does not know the value.
func mebibytes(n uint64) *int64 {
	if !available(n) {
		return nil
	}
	v := int64(n >> 20)
	return &v
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// note is the record of one part of the tests.
type note struct {
	Name string
	// Wall and CPU are in seconds. CPU is the time of test binaries and of the processes that they
	// waited for, without compilation. For a command other than go test, CPU is the time of the
	// whole command.
	Wall, CPU float64
	Passed    int
	Skips     []skip
	Failed    bool
	// Again are the tests that failed, and passed when they ran again alone.
	Again []test `json:",omitempty"`
}

// test is a test or a subtest.
type test struct{ Package, Name string }

// skip is one test that did not run.
type skip struct{ Package, Test, Why string }

func (n note) write() error {
	text, err := json.MarshalIndent(n, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(notes, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(notes, n.Name+".json"), append(text, '\n'), 0o644)
}

// runTests runs go test, prints what go test prints without -json, and writes the note. -C DIR runs
// go test in another module. -again runs failed tests a second time, each alone, because tests of
// real processes can fail on a starved machine. The summary names the tests that pass the second
// time.
func runTests(name string, args []string) (int, error) {
	again := args[0] == "-again"
	if again {
		args = args[1:]
	}
	var in []string
	if len(args) > 1 && args[0] == "-C" {
		in, args = args[:2], args[2:]
	}
	times, err := os.CreateTemp("", "suite")
	if err != nil {
		return 1, err
	}
	times.Close()
	defer os.Remove(times.Name())
	began := time.Now()
	r := newReader(os.Stdout)
	code, err := r.run(times.Name(), in, args)
	if err != nil {
		return 1, err
	}
	n := note{Name: name, Skips: slices.Clone(r.skips)}
	if failed := r.failed(); code != 0 && again && !r.broken && len(failed) <= mostAgain {
		if code, err = r.runAgain(times.Name(), in, args, failed); err != nil {
			return 1, err
		}
		if code == 0 {
			n.Again = failed
		}
	}
	n.Wall, n.Passed, n.Failed = time.Since(began).Seconds(), r.passed, code != 0
	if n.CPU, err = sum(times.Name()); err != nil {
		return 1, err
	}
	return code, n.write()
}

// run runs go test, and returns its exit code.
func (r *reader) run(times string, in, args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command("go", slices.Concat([]string{"test"}, in, []string{"-json", "-exec", self + " exec " + times}, args)...)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, diesWithUs()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	read := make(chan struct{})
	go r.watch(read)
	err = r.read(out)
	close(read)
	if err != nil {
		return 1, err
	}
	return exitCode(cmd.Wait())
}

// mostAgain is the maximum number of failed tests that run again. More failures point to a fault of
// the product.
const mostAgain = 3

// runAgain runs these tests alone, one after the other, until one fails.
func (r *reader) runAgain(times string, in, args []string, tests []test) (int, error) {
	for _, t := range tests {
		fmt.Fprintf(r.to, "%s failed; it runs again, alone\n", t.Name)
		if code, err := r.run(times, in, slices.Concat(withoutTests(args), []string{"-run", t.pattern(), t.Package})); code != 0 || err != nil {
			return code, err
		}
	}
	return 0, nil
}

// withoutTests returns go test's arguments without those that select tests: -run and the packages.
func withoutTests(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-run":
			i++
		case args[i] != "." && !strings.HasPrefix(args[i], "./"):
			rest = append(rest, args[i])
		}
	}
	return rest
}

// pattern returns a -run pattern that matches only this test.
func (t test) pattern() string {
	parts := strings.Split(t.Name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// event is a line of go test -json.
type event struct{ Action, Package, ImportPath, Test, Output string }

// reader prints the part of go test -json that people want to see, and collects the note.
type reader struct {
	mu     sync.Mutex // guards all fields
	to     io.Writer
	output map[string][]string  // output of tests that have not ended
	runs   map[string]time.Time // the running tests and their start, without tests that wait for others
	said   time.Time            // when something was last printed
	passed int
	skips  []skip
	fails  []test // failed tests and their parent tests
	broken bool   // a package failed in another way: it could not be built, or its process ended
}

func newReader(to io.Writer) *reader {
	return &reader{to: to, output: map[string][]string{}, runs: map[string]time.Time{}, said: time.Now()}
}

func (r *reader) print(text string) {
	if text != "" {
		fmt.Fprint(r.to, text)
		r.said = time.Now()
	}
}

// quiet is the maximum time without output.
const quiet = time.Minute

// watch prints the running tests whenever nothing was printed for the time quiet, until the channel
// all closes.
func (r *reader) watch(all <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-all:
			return
		case now := <-tick.C:
			r.mu.Lock()
			if now.Sub(r.said) >= quiet {
				r.print(r.running(now))
			}
			r.mu.Unlock()
		}
	}
}

// running returns the running tests, without those that have running subtests.
func (r *reader) running(now time.Time) string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(r.runs)) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.runs)), func(k string) bool { return strings.HasPrefix(k, key+"/") }) {
			in, test, _ := strings.Cut(key, " ")
			names = append(names, fmt.Sprintf("%s %s (%v)", path.Base(in), test, now.Sub(r.runs[key]).Round(time.Second)))
		}
	}
	if names == nil {
		return "no test is running; packages are being built\n"
	}
	return "running: " + strings.Join(names, ", ") + "\n"
}

func (r *reader) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line == "" && err == io.EOF {
			return nil
		}
		if line == "" && err != nil {
			return err
		}
		r.line(line)
	}
}

func (r *reader) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		r.print(line)
		return
	}
	r.event(e)
	key := e.Package + " " + e.Test
	switch {
	case e.Test == "":
	case e.Action == "run" || e.Action == "cont":
		r.runs[key] = time.Now()
	case e.Action != "output":
		delete(r.runs, key)
	}
}

func (r *reader) event(e event) {
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Action == "output" && e.Test == "":
		if !strings.HasPrefix(e.Output, "PASS\n") && !strings.Contains(e.Output, "\t[no test files]") {
			r.print(e.Output)
		}
	case e.Action == "output":
		r.output[key] = append(r.output[key], e.Output)
	case e.Test == "" && e.Action == "fail":
		fails := slices.ContainsFunc(r.fails, func(t test) bool { return t.Package == e.Package })
		r.broken = r.broken || r.cutShort(e.Package) || !fails
	case e.Test == "":
	case e.Action == "fail":
		r.fails = append(r.fails, test{e.Package, e.Test})
		r.print(strings.Join(r.output[key], ""))
		delete(r.output, key)
	case e.Action == "skip":
		r.skips = append(r.skips, skip{e.Package, e.Test, reason(r.output[key])})
		delete(r.output, key)
	case e.Action == "pass":
		r.passed++
		delete(r.output, key)
	}
}

// failed returns the failed tests, without those that have a failed subtest.
func (r *reader) failed() (leaves []test) {
	for _, t := range r.fails {
		if !slices.ContainsFunc(r.fails, func(sub test) bool {
			return sub.Package == t.Package && strings.HasPrefix(sub.Name, t.Name+"/")
		}) {
			leaves = append(leaves, t)
		}
	}
	return leaves
}

// cutShort prints the output of a package's tests that still ran when their process ended, and
// reports whether there were any.
func (r *reader) cutShort(in string) (any bool) {
	for _, key := range slices.Sorted(maps.Keys(r.runs)) {
		if strings.HasPrefix(key, in+" ") {
			r.print(strings.Join(r.output[key], ""))
			delete(r.output, key)
			delete(r.runs, key)
			any = true
		}
	}
	return any
}

// reason returns why a test was skipped: the last line of its output, without the file name.
func reason(lines []string) string {
	why := ""
	for _, line := range lines {
		if text := strings.TrimSpace(line); !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			_, said, found := strings.Cut(text, "_test.go:")
			if _, words, ok := strings.Cut(said, ": "); found && ok {
				text = words
			} else if _, words, ok := strings.Cut(text, ".go:"); ok {
				_, text, _ = strings.Cut(words, ": ")
			}
			why = cmp.Or(text, why)
		}
	}
	return cmp.Or(why, "no reason given")
}

// diesWithUs makes Linux kill a child process when this process ends. More exactly, Linux
// kills the child when the thread that started it ends.
func diesWithUs() *syscall.SysProcAttr {
	runtime.LockOSThread()
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// measured runs a test binary, and adds its CPU time to a file. The binary dies with this process.
func measured(times string, args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = diesWithUs()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	parent, look := os.Getppid(), time.NewTicker(time.Second)
	defer look.Stop()
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s) // the process may have ended
			case <-look.C:
				if os.Getppid() != parent { // go test was killed
					_ = cmd.Process.Kill()
				}
			}
		}
	}()
	code, err := exitCode(cmd.Wait())
	if err != nil {
		return 1, err
	}
	return code, add(times, used(cmd.ProcessState))
}

// used returns the CPU time of a process and its children.
func used(p *os.ProcessState) time.Duration { return p.UserTime() + p.SystemTime() }

func add(path string, d time.Duration) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, d.Seconds())
	return err
}

func sum(path string) (seconds float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.FieldsSeq(string(text)) {
		s, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return 0, err
		}
		seconds += s
	}
	return seconds, nil
}

// timed runs a command and notes its times.
func timed(name string, args []string) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	began := time.Now()
	code, err := exitCode(cmd.Run())
	if err != nil {
		return 1, err
	}
	n := note{Name: name, Wall: time.Since(began).Seconds(), CPU: used(cmd.ProcessState).Seconds(), Failed: code != 0}
	return code, n.write()
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/guard"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

func TestMain(m *testing.M) { os.Exit(guard.Main(m)) }

// source is this package's folder. It is stored because tests change the working directory.
var source, _ = os.Getwd()

// suiteBinary builds the command.
func suiteBinary(t *testing.T) string {
	t.Helper()
	self := filepath.Join(t.TempDir(), "suite")
	cmd := exec.Command("go", "build", "-o", self, ".")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return self
}

// The suite turns the output of go test -json into that of go test, and collects the skips.
func TestRead(t *testing.T) {
	var out strings.Builder
	r := newReader(&out)
	if err := r.read(strings.NewReader(`{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: gcc is not installed: no library\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: said\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: wrong\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"--- FAIL: TestC (0.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.01s\n"}
go: no such tool
{"Action":"output","Package":"q","Output":"ok  \tq\t(cached)\n"}
`)); err != nil {
		t.Fatal(err)
	}
	if want := "    c_test.go:7: wrong\n--- FAIL: TestC (0.00s)\nFAIL\tp\t0.01s\ngo: no such tool\nok  \tq\t(cached)\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if want := []skip{{"p", "TestA", "gcc is not installed: no library"}}; !slices.Equal(r.skips, want) || r.passed != 1 {
		t.Errorf("%+v, %d passed", r.skips, r.passed)
	}
}

// The output of a test is printed even if its process ends before the test does, by a panic or a
// timeout.
func TestReadCutShort(t *testing.T) {
	var out strings.Builder
	r := newReader(&out)
	if err := r.read(strings.NewReader(`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"a\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: b\n"}
{"Action":"run","Package":"q","Test":"TestC"}
{"Action":"output","Package":"q","Test":"TestC","Output":"c\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.01s\n"}
{"Action":"fail","Package":"p"}
`)); err != nil {
		t.Fatal(err)
	}
	if want := "FAIL\tp\t0.01s\npanic: b\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// While no test prints anything, the suite names the running tests, without those that wait
// or whose subtests are running.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		from, to := io.Pipe()
		r, all := newReader(&out), make(chan struct{})
		go r.watch(all)
		go func() { _ = r.read(from); close(all) }()
		says := func(want string, after time.Duration, events ...string) {
			t.Helper()
			r.mu.Lock() // guards out, too
			out.Reset()
			r.mu.Unlock()
			for _, e := range events {
				action, test, _ := strings.Cut(e, " ")
				fmt.Fprintf(to, `{"Action":%q,"Package":"m/p","Test":%q,"Output":"===\n"}`+"\n", action, test)
			}
			time.Sleep(after)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if out.String() != want {
				t.Errorf("%q: got %q, want %q", events, out.String(), want)
			}
		}
		says("", 30*time.Second)
		says("no test is running; packages are being built\n", 40*time.Second)
		says("", 30*time.Second, "run TestA", "run TestB", "pause TestB", "run TestC", "run TestC/d", "output TestA")
		says("running: p TestA (50s), p TestC/d (50s)\n", 30*time.Second)
		says("", 30*time.Second, "pass TestA")
		says("running: p TestB (20s), p TestC (1m50s)\n", 30*time.Second, "cont TestB", "pass TestC/d")
		to.Close()
	})
}

func TestSkipped(t *testing.T) {
	got := skipped([]note{
		{Skips: []skip{{"m/p", "TestA", "gcc is not installed"}, {"m/p", "TestB", "gcc is not installed"}}},
		{Skips: []skip{{"m/q", "TestC", "one of its kind runs already; make test-long runs all"}}},
	})
	if want := "skipped: 2 tests (p.TestA, …): gcc is not installed\n  what would run them: apt-get install gcc\n" +
		"skipped: 1 tests (q.TestC): one of its kind runs already; make test-long runs all\n"; got != want {
		t.Errorf("got %s", got)
	}
}

// TestRun runs a package with tests that pass, are skipped, and fail.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n",
		"m_test.go": "package m\nimport \"testing\"\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"no ptxas\") }\nfunc TestC(t *testing.T) { t.Fatal(\"wrong\") }\n",
		"page.md":   "| `m` | x | `make test` | 1 s |\n| `later` | x | `make test` | 1 s |\n| `long` | x | `make test-long` | 1 s |\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	self := suiteBinary(t)
	says := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(self, args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%q: exit code %d\n%s", args, got, out)
		}
		return string(out)
	}
	if out := says(1, "run", "m", "-count=1", "./..."); !strings.Contains(out, "m_test.go:5: wrong\n--- FAIL: TestC") || strings.Contains(out, "ptxas") {
		t.Error(out)
	}
	sum := says(0, "summary", "page.md")
	for _, want := range []string{
		"skipped: 1 tests (m.TestB): no ptxas\n  what would run them: make ptxas",
		" s  failed\ndid not run, or did not run to the end: later\n",
	} {
		if !strings.Contains(sum, want) {
			t.Errorf("%q is not in %s", want, sum)
		}
	}
	// It waits for the busy threads, then prints the ids of their session and of its own.
	const look = "until [ $(ps -o nlwp= --ppid $PPID | sort -n | tail -1) -gt 3 ]; do sleep 0.01; done; " +
		"ps -o sid=,args= --ppid $PPID | sed -n 's/ *\\([0-9]*\\) .*suite burn 3$/\\1/p'; ps -o sid= $$; exit 4"
	for _, how := range []string{"beside", "apart"} {
		ids := strings.Fields(says(4, how, "3", "--", "sh", "-c", look))
		if len(ids) != 2 || (ids[0] != ids[1]) != (how == "apart") {
			t.Errorf("%s: sessions %q", how, ids)
		}
	}
	killed(t, dir, self)
	says(3, "time", "m", "--", "sh", "-c", "exit 3")
	says(2, "nonsense")
}

// With -again, the suite runs a failed test again, alone. The summary names the test if it
// passes then.
func TestRunAgain(t *testing.T) {
	self := suiteBinary(t)
	once := func(name string) string { // the named test has a subtest that fails the first time, after a subtest that passes
		return "func Test" + name + "(t *testing.T) {\nt.Run(\"x\", func(*testing.T) {})\n" +
			"t.Run(\"x(y)\", func(t *testing.T) { if os.Mkdir(\"" + name + "\", 0o755) == nil { t.Fatal(\"wrong\") } })\n}\n"
	}
	for name, tc := range map[string]struct {
		tests string
		code  int
		says  string
	}{
		"it passes then":         {once("A"), 0, "failed, but passed when it ran again alone: m.TestA/x(y) (m)"},
		"it fails again":         {"func TestB(t *testing.T) { os.Getpid(); t.Fatal(\"wrong\") }\n", 1, "TestB failed; it runs again, alone"},
		"the process ends":       {"func TestC(t *testing.T) { os.Exit(7) }\n", 1, ""},
		"it cannot be built":     {"func TestD(t *testing.T) { os.Nothing() }\n", 1, ""},
		"too many fail":          {once("E") + once("F") + once("G") + once("H"), 1, ""},
		"as many as may do fail": {once("E") + once("F") + once("G"), 0, "m.TestG/x(y) (m)"},
	} {
		t.Chdir(t.TempDir())
		for file, text := range map[string]string{
			"go.mod":    "module m\n",
			"m_test.go": "package m\nimport (\"os\"; \"testing\")\n" + tc.tests,
			"page.md":   "| `m` | x | 1 s |\n",
		} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(self, "run", "m", "-again", "-count=1", "-run", "Test", "./...")
		out, _ := cmd.CombinedOutput()
		sum, err := exec.Command(self, "summary", "page.md").CombinedOutput()
		said := string(out) + string(sum)
		if got := cmd.ProcessState.ExitCode(); got != tc.code || err != nil || !strings.Contains(said, tc.says) {
			t.Errorf("%s: exit code %d, %v, want %d and %q\n%s", name, got, err, tc.code, tc.says, said)
		}
		if again := strings.Contains(said, "runs again"); again != (tc.says != "") {
			t.Errorf("%s: runs again: %v\n%s", name, again, said)
		}
	}
}

// The race part has the packages in which goroutines share memory. Packages that run a
// sample of their cases under the detector also run without it, in full.
func TestPackages(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"go.mod":                "module m\n",
		"internal/race/race.go": "package race\n",
		"pure/a.go":             "package pure\n",
		"pure/a_test.go":        "package pure\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Parallel() }\n",
		"code/a.go":             "package code\nfunc f() { go f() }\n",
		"code/a_test.go":        "package code\n",
		"tests/a.go":            "package tests\n",
		"tests/a_test.go":       "package tests_test\nimport _ \"net/http/httptest\"\n",
		"locks/a.go":            "package locks\nimport \"sync\"\nvar mu sync.Mutex\n",
		"locks/a_test.go":       "package locks\n",
		"samples/a.go":          "package samples\nimport _ \"m/internal/race\"\nvar c chan int\n",
		"samples/a_test.go":     "package samples\n",
		"untested/a.go":         "package untested\nfunc f() { go f() }\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for part, want := range map[string]string{"race": "m/code m/locks m/samples m/tests", "norace": "m/pure m/samples"} {
		var out strings.Builder
		code, err := packages(&out, part, []string{"./..."})
		if got := strings.Join(strings.Fields(out.String()), " "); got != want || code != 0 || err != nil {
			t.Errorf("%s: %q, %d, %v; want %q", part, got, code, err, want)
		}
	}
}

// killed checks that the tests end when the suite is killed.
func killed(t *testing.T, dir, self string) {
	t.Helper()
	sleeps := "package m\nimport (\"os\"; \"strconv\"; \"testing\")\n" +
		"func TestD(t *testing.T) { os.WriteFile(\"new\", []byte(strconv.Itoa(os.Getpid())), 0o644); os.Rename(\"new\", \"pid\"); select {} }\n"
	if err := os.WriteFile(filepath.Join(dir, "d_test.go"), []byte(sleeps), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "run", "m", "-run", "TestD", "./...")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	var pid string
	patience.Eventually(t, "the test runs", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		pid = string(text)
		return err == nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	patience.Eventually(t, "the test ends", func() bool {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

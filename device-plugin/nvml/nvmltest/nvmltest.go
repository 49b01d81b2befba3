// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package nvmltest builds a libnvidia-ml.so.1 that needs no driver, to test the real NVML path:
// dlopen, missing symbols, error codes, lost GPUs, calls that hang, MIG, events. The library's
// answers come from a file that the test rewrites; testdata/fakenvml.c documents its format.
package nvmltest

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed testdata/fakenvml.c
var source []byte

// EnvState is the environment variable with the path of the state file. If the variable is not set,
// ".state" is appended to the library's path.
const EnvState = "FAKE_NVML"

// ErrNoCompiler means that no C compiler can build the library here, so tests are skipped.
var ErrNoCompiler = fmt.Errorf("gcc is not installed")

// Build compiles the library into dir and returns its path. The functions named
// in hide are left out, as in an old driver.
func Build(dir string, hide ...string) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", ErrNoCompiler
	}
	code := filepath.Join(dir, "fakenvml.c")
	if err := os.WriteFile(code, source, 0o644); err != nil {
		return "", err
	}
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	args := []string{"-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", lib, code, "-lpthread", "-ldl"}
	if len(hide) > 0 {
		script := filepath.Join(dir, "hide.map")
		if err := os.WriteFile(script, []byte("{ local: "+strings.Join(hide, "; ")+"; };\n"), 0o644); err != nil {
			return "", err
		}
		args = append(args, "-Wl,--version-script="+script)
	}
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the fake NVML: %w\n%s", err, out)
	}
	return lib, nil
}

// State is the content of the state file: the library's answers by scope ("sys", "gpu0",
// "mig0.1") and key.
type State map[string]map[string]string

// Set sets a value; "" removes it.
func (s State) Set(scope, key, value string) {
	if value == "" {
		delete(s[scope], key)
		return
	}
	if s[scope] == nil {
		s[scope] = map[string]string{}
	}
	s[scope][key] = value
}

// Write replaces the state file in one step.
func (s State) Write(path string) error {
	var lines []string
	for scope, keys := range s {
		for key, value := range keys {
			lines = append(lines, scope+" "+key+" "+value)
		}
	}
	slices.Sort(lines)
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	if err := os.WriteFile(path+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// UUID returns the id of GPU i in [H200] states.
func UUID(i int) string { return fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i) }

// MIGUUID returns the id of MIG instance j of GPU i.
func MIGUUID(i, j int) string { return fmt.Sprintf("MIG-%08d-%04d-0000-0000-000000000000", i, j) }

// H200 returns the state of a machine with n idle H200s behind NVSwitches.
func H200(n int) State {
	s := State{}
	s.Set("sys", "driver", "580.159.04")
	s.Set("sys", "cuda", "13000")
	for i := range n {
		scope := fmt.Sprintf("gpu%d", i)
		for kv := range strings.FieldsSeq(idle) {
			k, v, _ := strings.Cut(kv, "=")
			s.Set(scope, k, v)
		}
		s.Set(scope, "uuid", UUID(i))
		s.Set(scope, "name", "NVIDIA H200")
		s.Set(scope, "bus", fmt.Sprint(0x1a+i))
		s.Set(scope, "minor", fmt.Sprint(i))
	}
	return s
}

// Own gives each GPU an id that no other test has, and returns the ids.
func (s State) Own() (ids []string) {
	for i := 0; s[fmt.Sprintf("gpu%d", i)] != nil; i++ {
		ids = append(ids, fmt.Sprintf("GPU-%08d-0000-0000-0000-%012x", i, rand.Uint64()>>16))
		s.Set(fmt.Sprintf("gpu%d", i), "uuid", ids[i])
	}
	return ids
}

// idle is the state of an idle H200.
const idle = `memory_mib=143771 bar1_mib=262144 limit_mw=700000 power_mw=75300 max_sm_mhz=1980 max_mem_mhz=3201 sm_mhz=345 mem_mhz=3201
 pcie_width=16 pcie_gen=5 pcie_width_now=16 display=0 persistence=1 architecture=9 capability=90 ecc=1 mig=0 mig_max=7
 utilization=0 encoder=0 decoder=0 temperature=31 reasons=1 replays=0 remap=0
 ecc_l1=0 ecc_l2=0 ecc_memory=0 events=8 nvlinks=18 nvlinks_max=18 nvlink_to=switch fabric_state=3 field.230=0 field.74=0 field.75=0
 gpm=1 gpm.5=0 gpm.10=0.5`

// Split puts GPU i into MIG mode with n instances of 1g.18gb.
func (s State) Split(i, n int) {
	s.Set(fmt.Sprintf("gpu%d", i), "mig", "1")
	for j := range n {
		scope := fmt.Sprintf("mig%d.%d", i, j)
		s.Set(scope, "uuid", MIGUUID(i, j))
		s.Set(scope, "name", "NVIDIA H200 MIG 1g.18gb")
		s.Set(scope, "memory_mib", "16384")
		s.Set(scope, "gi", fmt.Sprint(j+7))
		s.Set(scope, "ci", "0")
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
)

// allKernels returns all kernels that the driver compiles.
func allKernels() []kernel {
	return append(computeKernels(), triadKernel(), gatherKernel(), dataKernel(idFill), dataKernel(idSum))
}

// entryOf returns the PTX of one kernel, without the others in its file.
func entryOf(t *testing.T, k kernel) string {
	t.Helper()
	head, entries, _ := strings.Cut(string(k.ptx), ".visible .entry ")
	for e := range strings.SplitSeq(entries, ".visible .entry ") {
		if strings.HasPrefix(e, k.entry+"(") {
			return head + ".visible .entry " + e
		}
	}
	t.Fatalf("%s: no entry %s", k.id, k.entry)
	return ""
}

// The embedded PTX has the kernels and parameters that bench.go launches, and is consistent. The
// assembler must not unroll its loops: that took ptxas half a minute for wgmma.
func TestPTX(t *testing.T) {
	params := regexp.MustCompile(`\.visible \.entry (\w+)\(([^)]*)\)`)
	want := map[string]string{
		"pal_wgmma": "u64 u32 u32", "pal_mma": "u64 u32 u32", "pal_ffma": "u64 u32 u32",
		"pal_triad": "u64 u64 u64 u64 f32", "pal_gather": "u64 u64 u64 u32 u32",
		"pal_fill": "u64 u64 u32 u32 u32", "pal_sum": "u64 u64 u64",
	}
	for _, k := range allKernels() {
		ptx := entryOf(t, k)
		m := params.FindStringSubmatch(ptx)
		var types []string
		for p := range strings.SplitSeq(m[2], ",") {
			types = append(types, strings.TrimPrefix(strings.Fields(p)[1], "."))
		}
		if got := strings.Join(types, " "); got != want[k.entry] {
			t.Errorf("%s: parameters %s, want %s", k.entry, got, want[k.entry])
		}
		if threads := fmt.Sprintf(".maxntid %d,1,1", k.grid(devices()["h200"]).Threads); !strings.Contains(ptx, threads) {
			t.Errorf("%s: no %q", k.entry, threads)
		}
		loops := regexp.MustCompile(`(?m)^[A-Z]:`).FindAllString(ptx, -1)
		for _, label := range loops {
			if back := strings.LastIndex(ptx, "bra "+label[:1]+";") > strings.Index(ptx, "\n"+label); back && !strings.Contains(ptx, label+"\n .pragma \"nounroll\";") {
				t.Errorf("%s: the loop %s may be unrolled", k.id, label)
			}
		}
	}
}

// Times and checksums of a kernel are compared as long as its id is the same. If you change a kernel,
// change the version in its id, run `make hardware` on a GPU, and then write the new digest here.
func TestKernelsAreTheSame(t *testing.T) {
	for name, want := range map[string]string{
		"ptx/data.ptx":   "b6750426f96f9ac2",
		"ptx/ffma.ptx":   "a5e61fc8206fe59a",
		"ptx/gather.ptx": "733f153ebd264ac4",
		"ptx/mma.ptx":    "27b5999bd87728ed",
		"ptx/triad.ptx":  "04058c0fa4fc77c8",
		"ptx/wgmma.ptx":  "769eed9dec85f177",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(text))[:16]; got != want {
			t.Errorf("%s has changed: %s, want %s", name, got, want)
		}
	}
}

// assembler returns the path of ptxas, from PTXAS or PATH. `make ptxas` fetches one.
func assembler(t *testing.T) string {
	t.Helper()
	ptxas := os.Getenv("PTXAS")
	if ptxas == "" {
		ptxas, _ = exec.LookPath("ptxas")
	}
	if ptxas == "" {
		t.Skip("no ptxas (make ptxas fetches one): the kernels are not assembled here")
	}
	return ptxas
}

// The driver compiles each kernel when a session begins, as ptxas does here. That must take
// at most two seconds of CPU, because a session that takes too long counts as hung.
// Registers must not spill to memory, because the spills would be measured.
func TestPTXAssembles(t *testing.T) {
	ptxas := assembler(t)
	const limit = 2 * time.Second
	registers := map[string]int{idWGMMA: 154, idMMA: 94, idFFMA: 64, idTriad: 64, idGather: 32, idFill: 32, idSum: 32}
	used, spilled := regexp.MustCompile(`Used (\d+) registers`), regexp.MustCompile(`(\d+) bytes spill`)
	warned := regexp.MustCompile(`(?i)warning.*|potential performance loss.*`)
	for _, k := range allKernels() {
		file := filepath.Join(t.TempDir(), k.id+".ptx")
		if err := os.WriteFile(file, []byte(entryOf(t, k)), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, arch := range architectures(k) {
			cmd := exec.Command(ptxas, "-arch="+arch, "-v", "-o", os.DevNull, file)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s for %s: %v\n%s", k.id, arch, err, out)
				continue
			}
			cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			m := used.FindSubmatch(out)
			if m == nil {
				t.Fatalf("%s for %s: no word of registers:\n%s", k.id, arch, out)
			}
			n, _ := strconv.Atoi(string(m[1]))
			t.Logf("%s for %s: %d registers, assembled in %s", k.id, arch, n, cpu.Round(time.Millisecond))
			if cpu > limit {
				t.Errorf("%s for %s: ptxas takes %s of CPU, want at most %s", k.id, arch, cpu, limit)
			}
			if n > registers[k.id] {
				t.Errorf("%s for %s: %d registers, want at most %d", k.id, arch, n, registers[k.id])
			}
			for _, s := range spilled.FindAllSubmatch(out, -1) {
				if string(s[1]) != "0" {
					t.Errorf("%s for %s: %s spilled", k.id, arch, s[0])
				}
			}
			if w := warned.Find(out); w != nil { // for example about matrix instructions that wait for each other
				t.Errorf("%s for %s: %s", k.id, arch, w)
			}
		}
	}
}

// architectures returns those for which the driver assembles a kernel.
func architectures(k kernel) []string {
	if k.id == idWGMMA {
		return []string{"sm_90a"}
	}
	var out []string
	for _, d := range []cuda.Device{{Major: 7}, {Major: 7, Minor: 5}, {Major: 8}, {Major: 8, Minor: 6}, {Major: 8, Minor: 7}, {Major: 8, Minor: 9}, {Major: 9}} {
		if k.suits == nil || k.suits(d) {
			out = append(out, fmt.Sprintf("sm_%d%d", d.Major, d.Minor))
		}
	}
	return out
}

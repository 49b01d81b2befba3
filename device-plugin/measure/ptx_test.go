// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The embedded PTX has the kernels and parameters that bench.go launches, holds
// together, and assembles where there is an assembler (ptxas on PATH).
func TestPTX(t *testing.T) {
	params := regexp.MustCompile(`\.visible \.entry (\w+)\(([^)]*)\)`)
	want := map[string]string{
		"pal_wgmma": "u64 u32 u32", "pal_mma": "u64 u32 u32", "pal_ffma": "u64 u32 f32 f32",
		"pal_triad": "u64 u64 u64 u64 f32", "pal_gather": "u64 u64 u64 u32 u32",
	}
	ptxas, _ := exec.LookPath("ptxas")
	for _, k := range append(computeKernels(), triadKernel(), gatherKernel()) {
		m := params.FindSubmatch(k.ptx)
		if m == nil || string(m[1]) != k.entry {
			t.Errorf("%s: no entry %s", k.id, k.entry)
			continue
		}
		var types []string
		for _, p := range strings.Split(string(m[2]), ",") {
			types = append(types, strings.TrimPrefix(strings.Fields(p)[1], "."))
		}
		if got := strings.Join(types, " "); got != want[k.entry] {
			t.Errorf("%s: parameters %s, want %s", k.entry, got, want[k.entry])
		}
		if threads := fmt.Sprintf(".maxntid %d,1,1", k.grid(devices()["h200"]).Threads); !strings.Contains(string(k.ptx), threads) {
			t.Errorf("%s: no %q", k.entry, threads)
		}
		for _, problem := range lintPTX(string(k.ptx)) {
			t.Errorf("%s: %s", k.id, problem)
		}
		if ptxas != "" {
			assemble(t, ptxas, k)
		}
	}
	if ptxas == "" {
		t.Log("no ptxas on PATH: the PTX is not assembled here")
	}
}

func assemble(t *testing.T, ptxas string, k kernel) {
	t.Helper()
	arch := regexp.MustCompile(`\.target (sm_\w+)`).FindSubmatch(k.ptx)
	file := filepath.Join(t.TempDir(), k.id+".ptx")
	if err := os.WriteFile(file, k.ptx, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(ptxas, "-arch="+string(arch[1]), "-v", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", k.id, err, out)
	}
}

// lintPTX finds what an assembler would refuse first: registers that are not
// declared or not of the instruction's width, labels and parameters that do not
// exist, matrix instructions with the wrong number of operands.
func lintPTX(ptx string) (problems []string) {
	body := ptx[strings.Index(ptx, "{")+1 : strings.LastIndex(ptx, "}")]
	types, counts := declarations(body)
	labels := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)(?:^|;\s*)([A-Z]):`).FindAllStringSubmatch(body, -1) {
		labels[m[1]] = true
	}
	body = regexp.MustCompile(`//[^\n]*`).ReplaceAllString(body, "")
	for _, line := range strings.Split(strings.ReplaceAll(body, "\n", " "), ";") {
		line = strings.TrimSpace(regexp.MustCompile(`^\s*[A-Z]:`).ReplaceAllString(line, ""))
		if line == "" || strings.HasPrefix(line, ".reg") {
			continue
		}
		if m := regexp.MustCompile(`\bbra (\w+)`).FindStringSubmatch(line); m != nil && !labels[m[1]] {
			problems = append(problems, fmt.Sprintf("%q: no label %s", line, m[1]))
		}
		if m := regexp.MustCompile(`ld\.param\.\w+ %\w+,\[(\w+)\]`).FindStringSubmatch(line); m != nil && !strings.Contains(ptx, " "+m[1]+",") && !strings.Contains(ptx, " "+m[1]+")") {
			problems = append(problems, fmt.Sprintf("%q: no parameter %s", line, m[1]))
		}
		problems = append(problems, lintRegisters(line, types, counts)...)
		problems = append(problems, lintMatrix(line)...)
	}
	return problems
}

// declarations gives each register family its type and number, −1 for a single one.
func declarations(body string) (types map[string]string, counts map[string]int) {
	types, counts = map[string]string{}, map[string]int{}
	for _, m := range regexp.MustCompile(`\.reg \.(\w+) ([^;]+);`).FindAllStringSubmatch(body, -1) {
		for _, name := range strings.Split(m[2], ",") {
			name = strings.TrimSpace(name)
			family, n, ranged := strings.Cut(strings.TrimSuffix(name, ">"), "<")
			types[family], counts[family] = m[1], -1
			if ranged {
				counts[family], _ = strconv.Atoi(n)
			}
		}
	}
	return types, counts
}

// special are the registers that the machine has.
const special = "%tid %ctaid %ntid %nctaid"

func lintRegisters(line string, types map[string]string, counts map[string]int) (problems []string) {
	opcode := strings.Fields(regexp.MustCompile(`^@%\w+ `).ReplaceAllString(line, ""))[0]
	for _, m := range regexp.MustCompile(`(%[a-z]+)(\d*)`).FindAllStringSubmatch(line, -1) {
		if strings.Contains(special, m[1]) && m[2] == "" && counts[m[1]] == 0 {
			continue
		}
		n, declared := counts[m[1]]
		number, _ := strconv.Atoi(m[2])
		if !declared || n == -1 && m[2] != "" || n >= 0 && (m[2] == "" || number >= n) {
			problems = append(problems, fmt.Sprintf("%q: register %s is not declared", line, m[0]))
		}
	}
	// Arithmetic of one type has operands of one width.
	if m := regexp.MustCompile(`^(?:add|sub|mul\.lo|and|or|xor|shl|shr|fma\.rn|mov)\.([bufs])(32|64)$`).FindStringSubmatch(opcode); m != nil {
		first := regexp.MustCompile(`(%[a-z]+)\d*`).FindStringSubmatch(line[strings.Index(line, opcode)+len(opcode):])
		if got := types[first[1]]; !strings.HasSuffix(got, m[2]) {
			problems = append(problems, fmt.Sprintf("%q: writes a .%s register", line, got))
		}
	}
	return problems
}

// lintMatrix counts the operands of the tensor core instructions.
func lintMatrix(line string) (problems []string) {
	operands := strings.Count(line, "%")
	switch {
	case strings.Contains(line, "mma.sync.aligned.m16n8k16") && operands != 4+4+2+4:
		problems = append(problems, fmt.Sprintf("%q: %d operands, want 14", line, operands))
	case strings.Contains(line, "wgmma.mma_async") && operands != 128+2:
		problems = append(problems, fmt.Sprintf("wgmma with %d operands, want 128 accumulators and 2 descriptors", operands))
	}
	return problems
}

// The lint sees what it is there for.
func TestLintPTX(t *testing.T) {
	good := string(ptxTriad)
	if got := lintPTX(good); len(got) > 0 {
		t.Fatal(got)
	}
	for name, edit := range map[string][2]string{
		"register beyond its family": {"%r5,%r2,%r3", "%r8,%r2,%r3"},
		"undeclared family":          {"mul.lo.u32 %r5", "mul.lo.u32 %z5"},
		"no such label":              {"bra E", "bra X"},
		"no such parameter":          {"[n16]", "[n17]"},
		"wrong width":                {"add.u64 %d7,%d11,%d6", "add.u64 %r7,%d11,%d6"},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Fatalf("%s: %q is not in the kernel", name, edit[0])
		}
		if got := lintPTX(bad); len(got) == 0 {
			t.Errorf("%s is not seen", name)
		}
	}
}

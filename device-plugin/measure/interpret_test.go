// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// thread interprets the PTX of our kernels, for one thread of one block of a launch. It
// knows only the instructions that they use (no tensor cores). It shows the results of a
// kernel without a GPU.
type thread struct {
	t      *testing.T
	regs   map[string]uint64
	params map[string]uint64
	memory []byte // addresses are offsets
	// onFMA is called with the result of each fused multiply-add.
	onFMA func(register string, bits uint32)
}

var (
	operandSyntax = regexp.MustCompile(`[%\w\[\]{}.]+`)
	labelSyntax   = regexp.MustCompile(`^([A-Z]):\s*`)
)

// instruction is one instruction of a program, with its predicate if it has one.
type instruction struct {
	guard, op string
	args      []string
}

// program parses the PTX of a kernel.
func program(t *testing.T, k kernel) (code []instruction, labels map[string]int) {
	t.Helper()
	ptx := regexp.MustCompile(`//[^\n]*`).ReplaceAllString(entryOf(t, k), "")
	body := ptx[strings.Index(ptx, "{")+1 : strings.LastIndex(ptx, "}")]
	labels = map[string]int{}
	for s := range strings.SplitSeq(strings.ReplaceAll(body, "\n", " "), ";") {
		s = strings.TrimSpace(s)
		if m := labelSyntax.FindStringSubmatch(s); m != nil {
			labels[m[1]], s = len(code), s[len(m[0]):]
		}
		if s == "" || s[0] == '.' {
			continue
		}
		var i instruction
		if s[0] == '@' {
			i.guard, s, _ = strings.Cut(s[1:], " ")
		}
		op, rest, _ := strings.Cut(s, " ")
		i.op, i.args = op, operandSyntax.FindAllString(rest, -1)
		code = append(code, i)
	}
	return code, labels
}

// run executes a kernel until it returns.
func (th *thread) run(k kernel) {
	th.t.Helper()
	code, labels := program(th.t, k)
	for at := 0; at < len(code); at++ {
		switch i := code[at]; {
		case i.guard != "" && th.regs[i.guard] == 0:
		case i.op == "ret":
			return
		case i.op == "bra":
			at = labels[i.args[0]] - 1
		default:
			th.step(i.op, i.args)
		}
	}
}

// value reads an operand: a register or a number.
func (th *thread) value(operand string) uint64 {
	if operand[0] == '%' {
		return th.regs[operand]
	}
	n, err := strconv.ParseUint(operand, 0, 64)
	if err != nil {
		th.t.Fatalf("operand %q: %v", operand, err)
	}
	return n
}

func asFloat(word uint64) float32 { return math.Float32frombits(uint32(word)) }
func asWord(x float32) uint64     { return uint64(math.Float32bits(x)) }
func trim(op string) (base, typ string) {
	i := strings.LastIndexByte(op, '.')
	return op[:i], op[i+1:]
}

// step executes one instruction.
func (th *thread) step(op string, args []string) {
	base, typ := trim(op)
	if strings.HasPrefix(base, "ld.") || strings.HasPrefix(base, "st.") || strings.HasPrefix(base, "red.") {
		th.access(base, args)
		return
	}
	var v [4]uint64
	for i, a := range args[1:] {
		v[i] = th.value(a)
	}
	var out uint64
	switch base {
	case "mov", "cvt.u64", "cvt.u32":
		out = v[0]
	case "add":
		out = v[0] + v[1]
	case "sub":
		out = v[0] - v[1]
	case "mul.lo", "mul.wide":
		out = v[0] * v[1]
	case "mad.lo":
		out = v[0]*v[1] + v[2]
	case "shl":
		out = v[0] << v[1]
	case "shr":
		out = v[0] >> v[1]
	case "xor":
		out = v[0] ^ v[1]
	case "and":
		out = v[0] & v[1]
	case "or":
		out = v[0] | v[1]
	case "neg":
		out = asWord(-asFloat(v[0]))
	case "fma.rn":
		out = asWord(float32(math.FMA(float64(asFloat(v[0])), float64(asFloat(v[1])), float64(asFloat(v[2])))))
		if th.onFMA != nil {
			th.onFMA(args[0], uint32(out))
		}
	case "setp.ge":
		out = map[bool]uint64{true: 1}[v[0] >= v[1]]
	case "setp.ne":
		out = map[bool]uint64{true: 1}[v[0] != v[1]]
	default:
		th.t.Fatalf("instruction %q is unknown to the interpreter", op)
	}
	if strings.HasSuffix(typ, "32") && base != "mul.wide" && base != "cvt.u64" || base == "cvt.u32" {
		out &= math.MaxUint32
	}
	th.regs[args[0]] = out
}

// access executes a load or a store.
func (th *thread) access(base string, args []string) {
	if strings.HasPrefix(base, "ld.param") {
		th.regs[args[0]] = th.params[strings.Trim(args[1], "[]")]
		return
	}
	store := !strings.HasPrefix(base, "ld.")
	where, what := args[len(args)-1], args[:len(args)-1]
	if store {
		where, what = args[0], args[1:]
	}
	at := th.value(strings.Trim(where, "[]"))
	for i, a := range what {
		a = strings.Trim(a, "{}")
		p := th.memory[at+uint64(4*i):]
		switch {
		case strings.HasPrefix(base, "red."):
			binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)+th.value(a))
		case store:
			binary.LittleEndian.PutUint32(p, uint32(th.value(a)))
		default:
			th.regs[a] = uint64(binary.LittleEndian.Uint32(p))
		}
	}
}

// launch runs the threads of one block, one after the other, on the memory.
func launch(t *testing.T, k kernel, memory []byte, threads int, params map[string]uint64) {
	t.Helper()
	for id := range threads {
		th := thread{t: t, params: params, memory: memory, regs: map[string]uint64{"%tid.x": uint64(id), "%ntid.x": uint64(threads), "%nctaid.x": 1}}
		th.run(k)
	}
}

func ffma() kernel { all := computeKernels(); return all[len(all)-1] }

// spin runs the FFMA kernel's first thread.
func spin(t *testing.T, iterations, id uint64, onFMA func(string, uint32)) uint32 {
	t.Helper()
	th := thread{t: t, memory: make([]byte, 4096), onFMA: onFMA, params: map[string]uint64{"iters": iterations, "seed": seed},
		regs: map[string]uint64{"%tid.x": id, "%ntid.x": 256}}
	th.run(ffma())
	return binary.LittleEndian.Uint32(th.memory[4*id:])
}

// The values of FFMA neither converge nor overflow. About half of the bits of their
// fractions keep changing, and threads differ.
func TestFFMAKeepsChanging(t *testing.T) {
	t.Parallel()
	last := map[string]uint32{}
	toggled, steps := 0, 0
	spin(t, 400, 7, func(register string, now uint32) {
		if x := math.Abs(float64(math.Float32frombits(now))); !(x < 8) {
			t.Fatalf("%s is %v", register, x)
		}
		if before, ok := last[register]; ok {
			toggled, steps = toggled+bits.OnesCount32(before^now), steps+1
		}
		last[register] = now
	})
	if mean := float64(toggled) / float64(steps); mean < 10 {
		t.Errorf("%.1f bits of a value change with each instruction, want at least 10", mean)
	}
	if steps < 400*128-32 {
		t.Errorf("%d instructions in 400 iterations, want %d", steps+32, 400*128)
	}
	seen := map[uint32]bool{}
	for id := range uint64(16) {
		seen[spin(t, 45, id, nil)] = true
	}
	if len(seen) != 16 {
		t.Errorf("16 threads give %d results", len(seen))
	}
}

// A one-bit error shows in the result however long ago it happened, unless the next
// rounding removes it. Converging values would forget every error.
func TestFFMARemembersAnError(t *testing.T) {
	t.Parallel()
	const iterations = 60
	good := spin(t, iterations, 3, nil)
	for bit := 3; bit < 23; bit++ {
		k := ffma()
		// The fault: one bit of the first point's coordinate is flipped when the loop begins.
		k.ptx = []byte(strings.Replace(string(k.ptx), "\nL:", fmt.Sprintf("\n mov.b32 %%r7,%%x0; xor.b32 %%r7,%%r7,%d; mov.b32 %%x0,%%r7;\nL:", 1<<bit), 1))
		th := thread{t: t, memory: make([]byte, 64), params: map[string]uint64{"iters": iterations, "seed": seed}, regs: map[string]uint64{"%tid.x": 3, "%ntid.x": 256}}
		th.run(k)
		if binary.LittleEndian.Uint32(th.memory[12:]) == good {
			t.Errorf("an error in bit %d is forgotten", bit)
		}
	}
}

// Buffers get random words, or floats of ordinary size if they are added up. Each seed
// gives other words.
func TestFill(t *testing.T) {
	t.Parallel()
	const n = 1024
	fill := func(c content, from uint64) []byte {
		memory := make([]byte, n)
		launch(t, dataKernel(idFill), memory, 8, map[string]uint64{"n16": n / 16, "keep": uint64(c.keep), "set": uint64(c.set), "seed": from})
		return memory
	}
	words := fill(randomWords, 1)
	ones, distinct := 0, map[uint32]bool{}
	for i := 0; i < n; i += 4 {
		w := binary.LittleEndian.Uint32(words[i:])
		ones, distinct[w] = ones+bits.OnesCount32(w), true
	}
	if share := float64(ones) / (8 * n); share < 0.48 || share > 0.52 || len(distinct) != n/4 {
		t.Errorf("%.3f of the bits are set, %d of %d words are distinct", share, len(distinct), n/4)
	}
	if string(fill(randomWords, 2)) == string(words) {
		t.Error("another seed fills the same")
	}
	for floats, i := fill(randomFloats, 1), 0; i < n; i += 4 {
		if x := math.Abs(float64(math.Float32frombits(binary.LittleEndian.Uint32(floats[i:])))); !(x >= 0.5 && x < 1) {
			t.Fatalf("float %d is ±%v", i/4, x)
		}
	}
}

// The checksum changes with every changed bit and every exchange. It does not depend on how
// many threads share the work.
func TestSum(t *testing.T) {
	t.Parallel()
	const n = 256
	memory := make([]byte, 16+n)
	launch(t, dataKernel(idFill), memory, 4, map[string]uint64{"data": 16, "n16": n / 16, "keep": math.MaxUint32, "seed": 9})
	sum := func(threads int) uint64 {
		clear(memory[:16])
		launch(t, dataKernel(idSum), memory, threads, map[string]uint64{"data": 16, "n16": n / 16})
		return binary.LittleEndian.Uint64(memory)
	}
	good := sum(4)
	if good == 0 || sum(1) != good || sum(32) != good {
		t.Errorf("sums by 4, 1 and 32 threads: %x, %x, %x", good, sum(1), sum(32))
	}
	for bit := 0; bit < 8*n; bit += 7 {
		memory[16+bit/8] ^= 1 << (bit % 8)
		if sum(4) == good {
			t.Errorf("bit %d is not seen", bit)
		}
		memory[16+bit/8] ^= 1 << (bit % 8)
	}
	for i := range 16 {
		memory[16+i], memory[32+i] = memory[32+i], memory[16+i]
	}
	if sum(4) == good {
		t.Error("an exchange is not seen")
	}
}

// Triad and gather do the work that their rates are computed from.
func TestTriadAndGather(t *testing.T) {
	t.Parallel()
	const n, threads = 16 * 4 * 4, 4 // bytes per buffer: each thread does four steps of 16
	memory := make([]byte, 3*n)
	for i := range 2 {
		launch(t, dataKernel(idFill), memory, 4, map[string]uint64{"data": uint64((i + 1) * n), "n16": n / 16, "keep": uint64(randomFloats.keep), "set": uint64(randomFloats.set), "seed": uint64(i)})
	}
	launch(t, triadKernel(), memory, threads, map[string]uint64{"a": 0, "b": n, "c": 2 * n, "n16": n / 16, "k": asWord(2)})
	at := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(memory[i:])) }
	for i := 0; i < n; i += 4 {
		if got, want := at(i), at(n+i)+2*at(2*n+i); got != want {
			t.Errorf("a[%d] = %v, want %v", i/4, got, want)
		}
	}
	data := make([]byte, 1024+64) // the results follow the data
	launch(t, dataKernel(idFill), data, 4, map[string]uint64{"n16": 64, "keep": math.MaxUint32, "seed": 3})
	launch(t, gatherKernel(), data, 16, map[string]uint64{"out": 1024, "data": 0, "mask": 1024 - 4, "iters": 3, "seed": seed})
	seen := map[uint32]bool{}
	for i := 1024; i < len(data); i += 4 {
		seen[binary.LittleEndian.Uint32(data[i:])] = true
	}
	if len(seen) != 16 {
		t.Errorf("16 threads gather %d results", len(seen))
	}
}

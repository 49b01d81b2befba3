// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/cuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal"
)

//go:embed ptx/wgmma.ptx
var ptxWGMMA []byte

//go:embed ptx/mma.ptx
var ptxMMA []byte

//go:embed ptx/ffma.ptx
var ptxFFMA []byte

//go:embed ptx/triad.ptx
var ptxTriad []byte

//go:embed ptx/gather.ptx
var ptxGather []byte

//go:embed ptx/data.ptx
var ptxData []byte

// kernel is one of our PTX kernels. If you change a kernel so that its time changes, change
// the version in its id.
type kernel struct {
	id, entry string
	ptx       []byte
	// blocks is the number of thread blocks of a launch for each SM. threads is the number of
	// threads of a block. shared is a block's dynamic shared memory, in bytes.
	blocks, threads, shared uint32
	// work is the amount of work of a thread in one iteration, in FLOP or loads. If a warp or
	// warpgroup works together, its work is divided among its threads.
	work float64
	// suits reports whether the hardware can run this compute kernel. The driver can still refuse
	// the kernel. If suits is nil, every measured GPU can run the kernel.
	suits func(cuda.Device) bool
	// peak returns the maximum rate of the hardware at this SM clock, in FLOP, bytes or loads per
	// second; 0 if unknown.
	peak func(d cuda.Device, clockMHz float64) float64
	unit string // unit of a rate, after dividing by scale
	// scale converts work into unit.
	scale float64
	// expected is the share of the peak, at the largest clock, that a healthy GPU reaches. The
	// amount of work per unit follows from this share.
	expected float64
}

// The kernels' ids.
const (
	idWGMMA  = "wgmma1"
	idMMA    = "mma1"
	idFFMA   = "ffma1"
	idTriad  = "triad1"
	idGather = "gather1"
	idFill   = "fill" // not measured: fills memory with random data
	idSum    = "sum"  // not measured: a checksum of the output
)

// supports returns an error if this package cannot measure GPUs of a compute capability.
func supports(major, minor int) error {
	if major < 7 {
		return fmt.Errorf("compute capability %d.%d is too old: the kernels need 7.0 or later", major, minor)
	}
	return nil
}

// Supported returns nil if GPUs like the device can be measured, or if their compute
// capability is unknown.
func Supported(d gpu.Device) error {
	if d.Chip.Virtual {
		return errors.New("a virtual GPU: its speed depends on other virtual machines, and measuring would slow them down")
	}
	if d.Chip.ComputeMajor == 0 {
		return nil
	}
	return supports(d.Chip.ComputeMajor, d.Chip.ComputeMinor)
}

// computeKernels returns the kernels of class A, the strongest first. The first kernel that the GPU
// can run is used, because a kernel that does not reach the power cap measures nothing.
func computeKernels() []kernel {
	return []kernel{
		{id: idWGMMA, entry: "pal_wgmma", ptx: ptxWGMMA, blocks: 1, threads: computeThread, shared: 49152, work: iterFLOPWG / warpgroup,
			unit: "TFLOP/s", scale: 1e12, expected: 0.7,
			suits: func(d cuda.Device) bool { return d.Major == 9 && d.Minor == 0 }, peak: tensorPeak},
		mmaKernel(0.5, func(d cuda.Device) bool { return d.Major == 8 || d.Major == 9 || d.Major == 12 }),
		mmaKernel(0.2, onlyTcgen05IsFast),
		{id: idFFMA, entry: "pal_ffma", ptx: ptxFFMA, blocks: 4, threads: computeThread, work: 256,
			unit: "TFLOP/s", scale: 1e12, expected: 0.8,
			suits: func(d cuda.Device) bool { return d.Major >= 7 }, peak: fp32Peak},
	}
}

// mmaKernel returns the kernel with the instruction mma.sync, which every GPU since compute
// capability 8.0 executes.
func mmaKernel(expected float64, suits func(cuda.Device) bool) kernel {
	return kernel{id: idMMA, entry: "pal_mma", ptx: ptxMMA, blocks: 2, threads: computeThread, work: iterFLOPMMA / warp,
		unit: "TFLOP/s", scale: 1e12, expected: expected, suits: suits, peak: tensorPeak}
}

// onlyTcgen05IsFast reports whether only the instruction tcgen05 uses all of the tensor cores, as
// on data-center Blackwell (10.0 and 10.3). mma.sync may then stay below the power cap.
func onlyTcgen05IsFast(d cuda.Device) bool { return d.Major > 9 && d.Major != 12 }

func triadKernel() kernel {
	return kernel{id: idTriad, entry: "pal_triad", ptx: ptxTriad, blocks: 4, threads: 512, unit: "GB/s", scale: 1e9, expected: 0.8,
		peak: memoryPeak}
}

func gatherKernel() kernel {
	return kernel{id: idGather, entry: "pal_gather", ptx: ptxGather, blocks: 8, threads: computeThread, work: 8, unit: "Gload/s", scale: 1e9, expected: 0.1,
		peak: func(d cuda.Device, clock float64) float64 { return memoryPeak(d, clock) / sectorBytes }}
}

// sectorBytes is the minimum number of bytes that one scattered load moves.
const sectorBytes = 32

// dataKernel returns a kernel that fills or checks memory, and is not measured.
func dataKernel(id string) kernel {
	return kernel{id: id, entry: "pal_" + id, ptx: ptxData, blocks: 8, threads: computeThread}
}

// tensorPeak returns the dense bf16 rate with fp32 accumulation. FLOP per clock and SM follow from
// the vendor's published peaks, in TFLOP/s: A100 312 at 1410 MHz on 108 SMs, L40S 362 at 2520 on
// 142, H100 SXM 989 at 1830 on 132. Blackwell: B200 2,250 at 1856 on 148, RTX PRO 6000 503.8 at
// 2617 on 188. Jetson AGX Orin (8.7): 42.5 at 1300 on 16. The rate is lower for models that the
// vendor sells with a reduced tensor rate.
func tensorPeak(d cuda.Device, clockMHz float64) float64 {
	perClock := reducedTensor(d.Name)
	switch {
	case perClock > 0:
	case d.Major == 8 && (d.Minor == 0 || d.Minor == 7):
		perClock = 2048
	case d.Major == 8, d.Major == 12:
		perClock = 1024
	case d.Major == 9:
		perClock = 4096
	case d.Major > 9:
		perClock = 8192
	}
	return perClock * float64(d.SMs) * clockMHz * 1e6
}

// reducedTensor returns FLOP per clock and SM of a model that the vendor sells with fewer tensor cores
// than its architecture has; 0 for others.
func reducedTensor(model string) float64 {
	rates := map[string]float64{"H20": 1024, "A10G": 512, "L40": 512, "L20": 512}
	for word := range strings.FieldsFuncSeq(model, func(r rune) bool { return strings.ContainsRune(" -_", r) }) {
		if rate, ok := rates[word]; ok {
			return rate
		}
	}
	return 0
}

// fp32Peak returns the peak fp32 rate: two FLOP per lane and clock. An SM has 64 lanes on compute
// capability 7.x and 8.0, 128 on others.
func fp32Peak(d cuda.Device, clockMHz float64) float64 {
	lanes := 128.0
	if d.Major == 7 || d.Major == 8 && d.Minor == 0 {
		lanes = 64
	}
	return 2 * lanes * float64(d.SMs) * clockMHz * 1e6
}

// memoryPeak returns the peak bandwidth in bytes per second: two transfers per memory clock and bus
// bit. The SM clock has no effect. memoryPeak returns 0 if the driver does not report the memory
// clock, and for memory that the GPU shares with the CPU. For shared memory, CUDA reports another
// clock: the transfer rate on GB10, and the clock of the SMs on Jetson Orin.
func memoryPeak(d cuda.Device, _ float64) float64 {
	if d.Integrated {
		return 0
	}
	return 2 * float64(d.MemClockMHz) * 1e6 * float64(d.BusBits) / 8
}

// Amounts of work. On a healthy GPU, a unit takes about unitMs: short enough to stop quickly, long
// enough that the launch time does not matter.
const (
	unitMs        = 80.0
	mixPartMs     = 5.0 // each half of a pair in the mixed class
	mixPairs      = 8
	triadBytes    = 2 << 30 // size of each of three buffers
	gatherBytes   = 4 << 30
	iterFLOPMMA   = 65536   // FLOP per warp and iteration
	iterFLOPWG    = 4194304 // FLOP per warpgroup and iteration
	warp          = 32
	warpgroup     = 128
	triadUnroll   = 4
	computeThread = 256
)

// grid returns the kernel's launch shape on a GPU.
func (k kernel) grid(d cuda.Device) cuda.Grid {
	return cuda.Grid{Blocks: k.blocks * uint32(d.SMs), Threads: k.threads, SharedBytes: k.shared}
}

// workPerIteration returns the work that all threads of a launch do in one iteration. For triad, it
// returns the bytes moved per 16-byte element.
func (k kernel) workPerIteration(d cuda.Device) float64 {
	if k.id == idTriad {
		return 3 * 16
	}
	g := k.grid(d)
	return float64(g.Blocks) * float64(g.Threads) * k.work
}

// usualRate estimates the rate of a healthy GPU of this model. The rate determines the amount of
// work per unit. If the peak of the memory is unknown, usualRate assumes memory that the GPU shares
// with the CPU, with 273 GB/s as on GB10 and Jetson Thor.
func (k kernel) usualRate(d cuda.Device) float64 {
	peak := k.peak(d, float64(d.ClockMHz))
	if peak == 0 {
		d.Integrated = false
		d.MemClockMHz = 4266
		d.BusBits = 256
		peak = k.peak(d, float64(d.ClockMHz))
	}
	return peak * k.expected
}

// iterations returns how many iterations a launch needs to take about ms milliseconds on a healthy
// GPU of this model. The number depends only on the model and is rounded to two digits, so that all
// GPUs of a model do the same work.
func (k kernel) iterations(d cuda.Device, ms float64) uint32 {
	n := k.usualRate(d) * ms / 1e3 / k.workPerIteration(d)
	return uint32(math.Max(1, twoDigits(n)))
}

func twoDigits(x float64) float64 {
	if x < 1 {
		return 1
	}
	f := math.Pow10(int(math.Floor(math.Log10(x))) - 1)
	return math.Round(x/f) * f
}

// bufferBytes halves want until the buffer is at most 1/share of the GPU's memory, and returns this
// size.
func bufferBytes(d cuda.Device, want, share uint64) uint64 {
	for want > d.MemoryBytes/share {
		want /= 2
	}
	return want
}

// triadSteps returns n16 for the triad kernel: the number of 16-byte elements of one
// buffer, a multiple of the number of threads.
func triadSteps(d cuda.Device) uint64 {
	g := triadKernel().grid(d)
	round := uint64(g.Blocks) * uint64(g.Threads) * triadUnroll
	n := bufferBytes(d, triadBytes, 12) / 16
	return n / round * round
}

// triadLaunches returns the number of launches that take about ms milliseconds.
func triadLaunches(d cuda.Device, ms float64) int {
	k := triadKernel()
	bytes := k.workPerIteration(d) * float64(triadSteps(d))
	return max(1, int(math.Round(k.usualRate(d)*ms/1e3/bytes)))
}

// describe returns a description of one unit of the class's work on a GPU of this model. The
// description is a part of the comparability key: two GPUs with equal descriptions do equal work.
func describe(d cuda.Device, class pal.AppClass, compute kernel) string {
	switch class {
	case pal.ClassA:
		return fmt.Sprintf("%s*%d", compute.id, compute.iterations(d, unitMs))
	case pal.ClassB:
		return fmt.Sprintf("%d*(%s*%d,%s*%d*%d)", mixPairs, compute.id, compute.iterations(d, mixPartMs),
			idTriad, triadSteps(d), triadLaunches(d, mixPartMs))
	case pal.ClassC:
		return fmt.Sprintf("%s*%d*%d", idTriad, triadSteps(d), triadLaunches(d, unitMs))
	default:
		return fmt.Sprintf("%s*%d/%d", idGather, gatherKernel().iterations(d, unitMs), bufferBytes(d, gatherBytes, 8))
	}
}

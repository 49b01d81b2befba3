// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package pyrandom reimplements the functions of Python's random module that the PAL artifact uses:
// MT19937 seeded from an integer, random, randbelow (and so choice and randint) and sample. The
// package draws exactly the same numbers as CPython 3.11.
package pyrandom

const (
	stateLen = 624
	shiftLen = 397
)

// Rand is a generator. A Rand is not safe for concurrent use.
type Rand struct {
	mt  [stateLen]uint32
	pos int
}

// New seeds a generator like random.seed(seed), for 0 ≤ seed < 2³².
func New(seed uint32) *Rand {
	r := &Rand{}
	r.seedByArray([]uint32{seed})
	return r
}

func (r *Rand) seedByArray(key []uint32) {
	mt := &r.mt
	mt[0] = 19650218
	for i := 1; i < stateLen; i++ {
		mt[i] = 1812433253*(mt[i-1]^mt[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	next := func() {
		if i++; i >= stateLen {
			mt[0] = mt[stateLen-1]
			i = 1
		}
	}
	for range max(stateLen, len(key)) {
		mt[i] = (mt[i] ^ (mt[i-1]^mt[i-1]>>30)*1664525) + key[j] + uint32(j)
		next()
		j = (j + 1) % len(key)
	}
	for range stateLen - 1 {
		mt[i] = (mt[i] ^ (mt[i-1]^mt[i-1]>>30)*1566083941) - uint32(i)
		next()
	}
	mt[0] = 1 << 31
	r.pos = stateLen
}

// Uint32 is getrandbits(32).
func (r *Rand) Uint32() uint32 {
	if r.pos == stateLen {
		r.twist()
	}
	y := r.mt[r.pos]
	r.pos++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

func (r *Rand) twist() {
	for i := range stateLen {
		y := r.mt[i]&(1<<31) | r.mt[(i+1)%stateLen]&(1<<31-1)
		v := r.mt[(i+shiftLen)%stateLen] ^ y>>1
		if y&1 != 0 {
			v ^= 0x9908b0df
		}
		r.mt[i] = v
	}
	r.pos = 0
}

// Float64 is random(): 53 bits, 0 ≤ x < 1.
func (r *Rand) Float64() float64 {
	a, b := r.Uint32()>>5, r.Uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

// Below is _randbelow(n), which choice uses for its index; n > 0.
func (r *Rand) Below(n int) int {
	k := 0
	for m := n; m > 0; m >>= 1 {
		k++
	}
	for {
		if v := int(r.Uint32() >> (32 - k)); v < n {
			return v
		}
	}
}

// Sample is sample(range(n), k): k distinct numbers below n, 0 ≤ k ≤ n.
func (r *Rand) Sample(n, k int) []int {
	out := make([]int, k)
	setSize := 21
	if k > 5 {
		for p := 1; ; p *= 4 { // 4**ceil(log4(3k))
			if p >= 3*k {
				setSize += p
				break
			}
		}
	}
	if n <= setSize {
		pool := make([]int, n)
		for i := range pool {
			pool[i] = i
		}
		for i := range out {
			j := r.Below(n - i)
			out[i], pool[j] = pool[j], pool[n-i-1]
		}
		return out
	}
	taken := make(map[int]bool, k)
	for i := range out {
		j := r.Below(n)
		for taken[j] {
			j = r.Below(n)
		}
		taken[j] = true
		out[i] = j
	}
	return out
}

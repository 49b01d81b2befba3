// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package artifact

import "math/bits"

// stableUpTo is the number of nodes up to which numpy sorts stably. With at most this number of
// nodes, the first node with the most GPUs comes first, as in pal.Place.
const stableUpTo = 16

// numpyOrder is the order in which the artifact tries nodes, most free GPUs first. This order is
// that of pandas' sort_values(ascending=False), which is numpy 1.24's argsort of the reversed
// counts, reversed again. Up to 16 nodes, this sort is stable. With more nodes, numpy's quicksort
// has its own order of ties, which decides between equal nodes. Without this order, 3 of 39 jobs of
// a 64-node run have other times.
func numpyOrder(counts []int) []int {
	m := len(counts)
	v, t := make([]int, m), make([]int, m)
	for i, c := range counts {
		v[m-1-i] = c
		t[i] = i
	}
	argsort(v, t)
	order := make([]int, m)
	for i, at := range t {
		order[m-1-i] = m - 1 - at
	}
	return order
}

// argsort permutes t so that v[t[·]] ascends, as numpy's introsort does. At the depth limit,
// 2·log2(m), numpy changes to heapsort. Counts of free GPUs never reach this limit, so here the
// limit only guards the loop.
func argsort(v, t []int) {
	type span struct{ left, right int }
	stack := []span{{0, len(t) - 1}}
	limit := 64 * (bits.Len(uint(len(t))) + 1)
	for len(stack) > 0 && limit > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for left, right := s.left, s.right; ; {
			if right-left <= 15 {
				insertionSort(v, t[left:max(left, right+1)])
				break
			}
			i := partition(v, t, left, right)
			if i-left < right-i {
				stack = append(stack, span{i + 1, right})
				right = i - 1
			} else {
				stack = append(stack, span{left, i - 1})
				left = i + 1
			}
		}
	}
}

func insertionSort(v, t []int) {
	for i := 1; i < len(t); i++ {
		at, j := t[i], i
		for ; j > 0 && v[at] < v[t[j-1]]; j-- {
			t[j] = t[j-1]
		}
		t[j] = at
	}
}

// partition partitions by the median of three, and returns the position of this median.
func partition(v, t []int, left, right int) int {
	mid := left + (right-left)/2
	for _, p := range [3][2]int{{left, mid}, {mid, right}, {left, mid}} {
		if v[t[p[1]]] < v[t[p[0]]] {
			t[p[0]], t[p[1]] = t[p[1]], t[p[0]]
		}
	}
	pivot := v[t[mid]]
	i, j := left, right-1
	t[mid], t[j] = t[j], t[mid]
	for {
		for i++; v[t[i]] < pivot; i++ {
		}
		for j--; pivot < v[t[j]]; j-- {
		}
		if i >= j {
			break
		}
		t[i], t[j] = t[j], t[i]
	}
	t[i], t[right-1] = t[right-1], t[i]
	return i
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"slices"

	"github.com/nomad-pal/nomad-pal/pal"
)

// ballot holds the results of one GPU. GPUs with the same key do the same work on the same data, so
// all of them must have the same checksum for a class.
type ballot struct {
	gpu, key string
	sums     map[pal.AppClass]string
}

// ballotOf returns a session's ballot.
func ballotOf(r Result) ballot {
	b := ballot{r.GPU, r.Key, map[pal.AppClass]string{}}
	for _, a := range r.Apps {
		if a.Sum != "" {
			b.sums[a.App] = a.Sum
		}
	}
	return b
}

// dissent is a GPU's disagreement with the other GPUs of the same key.
type dissent struct {
	class pal.AppClass
	// wrong means that most of the other GPUs agree on another result. If wrong is false, nobody
	// can tell which GPU is right.
	wrong bool
	text  string
}

// vote returns the GPUs whose results differ from others, in the order of the classes.
func vote(ballots []ballot) map[string][]dissent {
	out := map[string][]dissent{}
	for _, class := range pal.AppClasses() {
		count := map[string]map[string]int{} // number of GPUs by key and checksum
		for _, b := range ballots {
			if s := b.sums[class]; s != "" {
				if count[b.key] == nil {
					count[b.key] = map[string]int{}
				}
				count[b.key][s]++
			}
		}
		for _, b := range ballots {
			if d, ok := compare(class, b.sums[class], count[b.key]); ok {
				out[b.gpu] = append(out[b.gpu], d)
			}
		}
	}
	return out
}

// compare compares a GPU's checksum with the checksums of all GPUs of the same key. count is the
// number of these GPUs, by checksum.
func compare(class pal.AppClass, sum string, count map[string]int) (dissent, bool) {
	if sum == "" || len(count) < 2 {
		return dissent{}, false
	}
	all, most := 0, 0
	for _, n := range count {
		all, most = all+n, max(most, n)
	}
	switch {
	case 2*most > all && count[sum] == most:
		return dissent{}, false
	case 2*most > all:
		return dissent{class, true, fmt.Sprintf("class %s: the result differs from the result of %d of the %d GPUs with its key: this GPU computes wrongly (silent data corruption)", class, most, all)}, true
	}
	return dissent{class, false, fmt.Sprintf("class %s: the %d GPUs with this key compute %d different results: some compute wrongly (silent data corruption), and it is unknown which", class, all, len(count))}, true
}

// crossCheck compares the results within a report. Results that the vote finds wrong do not count.
func crossCheck(results []Result) {
	var ballots []ballot
	for _, r := range results {
		ballots = append(ballots, ballotOf(r))
	}
	found := vote(ballots)
	for i := range results {
		r := &results[i]
		for _, d := range found[r.GPU] {
			r.Warnings = append(r.Warnings, d.text)
			if d.wrong {
				r.Apps = slices.DeleteFunc(r.Apps, func(a App) bool { return a.App == d.class })
			}
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// MaxGPUs is the maximum number of GPUs that a gang can request. MaxGPUs prevents overflows in sums
// and products of a gang's numbers.
const MaxGPUs = 1 << 24

// Gang is a job that starts as a whole or not at all. A gang consists of the allocations of all
// task groups that request GPUs.
type Gang struct {
	ID         string
	Class      AppClass
	MemberSets []MemberSet
	// MaxTier is the job's hard locality limit; 0 means none.
	MaxTier Tier
	// Speeds has the gang's speed on each GPU model; empty means unknown.
	Speeds Speeds
	// Replicas reports whether the members work independently, as the members of a service do: each
	// set is spread evenly over nodes, and distance costs nothing. Replicas have no MaxTier.
	Replicas bool
	// Sharing is how the gang shares GPUs with others; nil means that the gang requests whole GPUs.
	Sharing *Sharing
	// Share is the size of the largest GPU that the gang can get, as a fraction of a whole GPU.
	// Share is less than 1 for parts of shared GPUs; see [Cluster.LargestShare]. 0 means 1.
	Share float64
}

// MemberSet is a set of identical members: the allocations of one task group.
type MemberSet struct {
	Name    string // task group
	Members int    // allocations
	GPUs    int    // per member, all on one node, from one device group
	Need    Resources
	// Limit names what limits the members on a node to Need.PerNode, such as a static port.
	Limit string
	// Eligible says, for each device group of the cluster (see [Cluster.Groups]), whether the group
	// can serve a member. If Eligible is nil, all groups can.
	Eligible []bool
	// Prefer lists subsets of Eligible to try first, in this order. The subsets come from the
	// user's preferences (Nomad's affinities).
	Prefer [][]bool
	// Spreads are the attributes over which to spread the members, as far as possible.
	Spreads []SpreadOver
}

// GPUs returns the number of GPUs that the gang needs, at most math.MaxInt.
func (g Gang) GPUs() int {
	n := 0
	for _, s := range g.MemberSets {
		n = plus(n, times(s.Members, s.GPUs))
	}
	return n
}

// Amount converts a number of requested GPUs to whole GPUs: a part of a shared GPU counts as a
// fraction of a GPU.
func (g Gang) Amount(gpus int) float64 { return float64(gpus) * cmp.Or(g.Share, 1) }

// Validate checks the class and the numbers of a gang that comes from outside. [Place] and the
// queue rely on it.
func (g Gang) Validate() error {
	if g.Class.Index() < 0 {
		return fmt.Errorf("application class %q is unknown; it must be one of A, B, C, D", g.Class)
	}
	for _, s := range g.MemberSets {
		if s.Members < 0 || s.GPUs < 0 {
			return fmt.Errorf("group %q asks for %d members of %d GPUs: neither may be negative", s.Name, s.Members, s.GPUs)
		}
		n := s.Need
		if n.CPU < 0 || n.MemoryMB < 0 || n.DiskMB < 0 {
			return fmt.Errorf("group %q asks for CPU %d, memory %d MB, disk %d MB: none may be negative", s.Name, n.CPU, n.MemoryMB, n.DiskMB)
		}
	}
	if g.GPUs() > MaxGPUs {
		return fmt.Errorf("the gang asks for more than %d GPUs", MaxGPUs)
	}
	return nil
}

// times returns a × b. A negative factor gives 0; overflow gives math.MaxInt.
func times(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

// plus adds numbers that are not negative, up to math.MaxInt.
func plus(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// SingleGPUs is a gang of n one-GPU members. PAL models each job as a gang of one-GPU members.
func SingleGPUs(id string, class AppClass, n int) Gang {
	return Gang{ID: id, Class: class, MemberSets: []MemberSet{{Members: n, GPUs: 1}}}
}

// Demand returns a text with everything that decides whether a waiting gang fits, except its class
// and MaxTier. If two gangs have the same text and MaxTier, they fit in the same places. The text
// contains the addresses of the lists of eligible and preferred device groups. Therefore, equal
// gangs must share these lists.
func (g Gang) Demand() string {
	var b strings.Builder
	if g.Replicas {
		b.WriteString("replicas ")
	}
	if g.Sharing != nil { // its neighbours decide whether it fits
		fmt.Fprintf(&b, "%s %v ", g.Class, *g.Sharing)
	}
	for _, s := range g.MemberSets {
		var eligible *bool
		if len(s.Eligible) > 0 {
			eligible = &s.Eligible[0]
		}
		fmt.Fprintf(&b, "%d×%d %v %p", s.Members, s.GPUs, s.Need, eligible)
		for _, set := range s.Prefer {
			fmt.Fprintf(&b, ">%p", &set[0])
		}
		b.WriteByte(';')
	}
	b.WriteString(g.Speeds.text())
	return b.String()
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import "github.com/nomad-pal/nomad-pal/pal/reason"

// Placement contains the GPUs on which a gang runs, as indices into the cluster: see [Cluster.GPU].
type Placement struct {
	Members []Member
	// Tier is the smallest tier in use that holds all GPUs.
	Tier Tier
	// PMScore is the score of the slowest GPU. A GPU that was never measured has the score 1.
	PMScore PMScore
	// Penalty is the locality penalty of Tier for the gang's class.
	Penalty float64
	// Speed is the gang's speed on the slowest of its GPU models, see [Speeds]; 0 if unknown.
	Speed float64
	// Model is the device group's name (vendor/type/name) of all members; "" if there are several.
	Model string
	// Amount is the size of the placement in whole GPUs: a part of a shared GPU counts as a
	// fraction of a GPU. 0 means unknown.
	Amount float64
}

// GPUs returns the indices of all GPUs, member by member.
func (p Placement) GPUs() []int {
	var all []int
	for _, m := range p.Members {
		all = append(all, m.GPUs...)
	}
	return all
}

// Member is one allocation of a gang.
type Member struct {
	MemberSet int   // index into Gang.MemberSets
	Group     int   // index of the device group
	GPUs      []int // ascending
}

// Decision is the result of placing one gang on one cluster, with its reasons. `nomad-pal explain`
// shows decisions, so a Decision contains names instead of indices.
type Decision struct {
	Gang   string   `json:"gang"`   // the job, as namespace/id
	Class  AppClass `json:"class"`  // application class of the gang
	Policy string   `json:"policy"` // placement policy, such as pal
	Demand int      `json:"gpus"`   // number of GPUs that the gang has or needs
	// Replicas reports whether the members work independently (see [Gang]).
	Replicas bool `json:"replicas,omitempty"`
	// Placed reports whether the gang fits now. If the gang does not fit, Reason says why.
	// Impossible reports whether the gang would not fit even if all GPUs were free and healthy.
	Placed     bool          `json:"placed"`
	Impossible bool          `json:"impossible,omitempty"`
	Reason     reason.Reason `json:"reason,omitzero"`

	// Chosen is the placement that the gang has or would get; nil if the gang does not fit.
	Chosen *Choice `json:"chosen,omitempty"`
	// Packed is the placement that the packed policy would choose on the same snapshot.
	Packed *Choice `json:"packed,omitempty"`

	// Candidates counts the GPUs of the cluster at the time of this decision. All counts are 0 if
	// they are not recorded.
	Candidates Candidates `json:"candidates"`
	// Walk lists the entries of the L×V matrix that were tried, in order. A long walk is cut to its
	// first and last entries. WalkOmitted is the number of omitted entries.
	Walk        []Entry `json:"walk,omitempty"`
	WalkOmitted int     `json:"walk_omitted,omitempty"`
	// Models lists the GPU models for which the gang's speed is known, the fastest first. If fewer
	// than two speeds are known, Models is empty.
	Models []OnModel `json:"models,omitempty"`
}

// OnModel describes the placement of a gang on one GPU model.
type OnModel struct {
	Device string  `json:"device"` // device group
	Speed  float64 `json:"speed"`  // the gang's speed on this model; 1 is the speed on its fastest model
	// Fits reports whether the gang fits on free GPUs of the model. Cost is the predicted slowdown
	// on these GPUs.
	Fits   bool    `json:"fits"`
	Cost   float64 `json:"cost,omitempty"`
	Chosen bool    `json:"chosen,omitempty"` // the gang has GPUs of the model, or would get them
}

// walkShown is the maximum number of entries in [Decision.Walk]. Each outlier makes its own bin, so
// a large cluster has thousands of entries.
const walkShown = 64

// Choice is a placement that contains names of nodes and ids of GPUs instead of their indices.
type Choice struct {
	// Members are the gang's allocations. If the record would be too large for Nomad, some or all
	// members are missing.
	Members []ChosenMember `json:"members"`
	Nodes   int            `json:"nodes"` // number of nodes on which the members are
	// Tier is the smallest tier in use that contains all GPUs. For replicas, Tier is the smallest
	// tier that contains all GPUs of each member.
	Tier Tier `json:"tier"`
	// PMScore is the score of the slowest GPU. A GPU that was never measured has the score 1.
	PMScore PMScore `json:"pm_score"`
	// Penalty is the factor by which the distance of Tier slows the gang's class; 1 means no
	// slowdown.
	Penalty float64 `json:"locality_penalty"`
	// Cost is the predicted slowdown: PMScore × Penalty, divided by the speed of the GPU model if
	// the speed is known.
	Cost float64 `json:"cost"`
}

// Slowest returns the slowest GPU model (device group) that was chosen, or "" if no speeds are
// known. The result `mixed` reports whether several models were chosen. Replicas can use several
// models, and so can task groups that request different models.
func (d *Decision) Slowest() (device string, mixed bool) {
	for _, m := range d.Models { // the fastest first
		if m.Chosen {
			device, mixed = m.Device, device != ""
		}
	}
	return device, mixed
}

// Spread returns the reason why the replicas of a choice are on these nodes. With only one replica,
// it returns the zero reason.
func (c *Choice) Spread() reason.Reason {
	if len(c.Members) < 2 {
		return reason.Reason{}
	}
	on, most := map[[2]string]int{}, 0
	for _, m := range c.Members {
		k := [2]string{m.NodeID, m.Group}
		on[k]++
		most = max(most, on[k])
	}
	return reason.Reason{Kind: reason.SpreadOut, Members: len(c.Members), Nodes: c.Nodes, Room: most}
}

// SlowestClass returns the variability class of the slowest GPU, or 0 if the class of a GPU is
// unknown.
func (c *Choice) SlowestClass() (slowest int) {
	for _, m := range c.Members {
		for _, u := range m.GPUs {
			if u.Class == 0 {
				return 0
			}
			slowest = max(slowest, int(u.Class))
		}
	}
	return slowest
}

// GPUIDs lists the ids of all GPUs, member by member.
func (c *Choice) GPUIDs() (ids []string) {
	for _, m := range c.Members {
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// ChosenMember is one allocation of a Choice.
type ChosenMember struct {
	Group  string      `json:"group"`   // task group
	Node   string      `json:"node"`    // the node's name
	NodeID string      `json:"node_id"` // the node's id in Nomad
	Device string      `json:"device"`  // device group
	GPUs   []ChosenGPU `json:"gpus"`    // the member's GPUs
	// Neighbours are the gangs that share the member's GPU.
	Neighbours []Neighbour `json:"neighbours,omitempty"`
}

// ChosenGPU is one GPU of a Choice, with its data for the gang's application class.
type ChosenGPU struct {
	ID      string  `json:"id"`       // the GPU's id
	PMScore PMScore `json:"pm_score"` // its PM score; 0: not measured
	Class   uint8   `json:"class"`    // its variability class, 1 the fastest; 0: none
	// Degraded is why the GPU counts as degraded; "" if it does not.
	Degraded string `json:"degraded,omitempty"`
}

// Candidates counts the GPUs that could be chosen. Candidates also counts the other GPUs of the
// cluster, by the reason why they could not be chosen.
type Candidates struct {
	Total       int `json:"total"`                 // all GPUs; each part of a shared GPU counts as one; 0: unknown
	Ineligible  int `json:"ineligible"`            // excluded by the job's GPU model or constraints, or the node is not ready
	Unhealthy   int `json:"unhealthy"`             // eligible, but unhealthy
	Quarantined int `json:"quarantined"`           // eligible and healthy, but in quarantine
	Unavailable int `json:"unavailable,omitempty"` // eligible, but the node accepts no jobs, or unreported tasks may still run
	Allocated   int `json:"allocated"`             // eligible, but allocated to jobs or promised to them
	Free        int `json:"free"`                  // eligible and free, not counting Outliers and Kept
	// Outliers is the number of free GPUs that the policy excludes because they are too slow.
	Outliers int `json:"outliers,omitempty"`
	// Kept is the number of free GPUs that are reserved by a window that excludes the gang.
	Kept int `json:"kept,omitempty"`
}

// Entry is one entry of the L×V matrix.
type Entry struct {
	Bin PMScore `json:"bin"` // PM score that stands for the bin; GPUs of lower bins count, too
	// Lowest and Highest are the lowest and the highest PM score of the bin. All GPUs in a bin
	// count as equally fast.
	Lowest  PMScore `json:"lowest"`
	Highest PMScore `json:"highest"`
	Tier    Tier    `json:"tier"`    // tier within which all GPUs must lie
	Product float64 `json:"product"` // bin × the tier's locality penalty
	Free    int     `json:"free"`    // eligible free GPUs in this bin and in bins with lower PM scores
	Taken   bool    `json:"taken"`   // the gang was placed by this entry
	// PassedOver is set if the gang would also fit on GPUs of this entry, but only on a node with
	// more free GPUs than the chosen node, or on more nodes. PAL leaves the GPUs of such an entry
	// to wider gangs.
	PassedOver bool `json:"passed_over,omitempty"`
}

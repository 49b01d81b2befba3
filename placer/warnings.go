// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"slices"

	"github.com/hashicorp/go-version"

	"github.com/nomad-pal/nomad-pal/placer/model"
)

// warnOfQueues says once which queues of Nomad's own are in the way.
func (p *Placer) warnOfQueues() {
	warnings := p.m.State.Queues.Warnings()
	if slices.Equal(warnings, p.warnings) {
		return
	}
	p.warnings = warnings
	for _, w := range warnings {
		p.log.Warn(w)
	}
	if len(warnings) == 0 {
		p.log.Info("no batch queue of Nomad's own is in the way any more")
	}
}

// warnOfNodes says once what of the nodes' own data is left out.
func (p *Placer) warnOfNodes() {
	warnings := p.m.State.NodeWarnings()
	if slices.Equal(warnings, p.ofNodes) {
		return
	}
	for _, w := range warnings {
		if !slices.Contains(p.ofNodes, w) {
			p.log.Warn("a node's data is left out", "why", w)
		}
	}
	if len(warnings) == 0 {
		p.log.Info("no node's data is left out any more")
	}
	p.ofNodes = warnings
}

// warnOfOldNomad says once what an old Nomad does to gangs.
func (p *Placer) warnOfOldNomad() {
	low := model.OldestNomad(p.m.State)
	if p.warned || low == nil || !low.LessThan(version.Must(version.NewVersion(model.ExactPins))) {
		return
	}
	p.warned = true
	p.log.Warn("this Nomad may start members with fewer GPUs than they ask for (hashicorp/nomad#18364); such gangs are requeued and tried again",
		"version", low, "mended_in", model.ExactPins)
}

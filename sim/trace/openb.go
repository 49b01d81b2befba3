// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"fmt"
	"io"
)

// openbDefault is the pod list that the lists without times were made from.
const openbDefault = "openb_pod_list_default.csv"

// openbTimes are the times of the pods of openb_pod_list_default.csv. The
// multigpu lists hold the same pods under the same names and more pods after
// them, all without times: those take the times of the pods of the same number
// of GPUs, in turn.
type openbTimes struct {
	byName map[string]Job
	byGPUs map[int][]Job
	never  map[string]bool // pods that never started, or have no GPU
	turn   map[int]int
}

// podTimes reads openb_pod_list_default.csv beside the list.
func podTimes(list string, siblings func(string) (io.ReadCloser, error)) (*openbTimes, error) {
	if siblings == nil {
		return nil, fmt.Errorf("%s:1: the list has no times; they are in %s, which must lie beside it", list, openbDefault)
	}
	f, err := siblings(openbDefault)
	if err != nil {
		return nil, fmt.Errorf("%s:1: the list has no times; read them from %s beside it: %w", list, openbDefault, err)
	}
	defer f.Close()
	p := &openbTimes{byName: map[string]Job{}, byGPUs: map[int][]Job{}, never: map[string]bool{}, turn: map[int]int{}}
	tb, err := openTable(openbDefault, f, nil, "name", "num_gpu", "creation_time", "deletion_time", "scheduled_time")
	if err != nil {
		return nil, err
	}
	return p, tb.each(p.read)
}

func (p *openbTimes) read(tb *table) {
	var one Trace
	one.addPod(tb)
	if len(one.Jobs) == 0 {
		p.never[tb.text("name")] = true
		return
	}
	j := one.Jobs[0]
	p.byName[j.ID] = j
	p.byGPUs[j.GPUs] = append(p.byGPUs[j.GPUs], j)
}

// add adds a row of a list without times to the trace.
func (p *openbTimes) add(t *Trace, tb *table) {
	gpus, name := tb.int("num_gpu", 0), tb.text("name")
	j, ok := p.byName[name]
	switch like := p.byGPUs[gpus]; {
	case gpus == 0 || p.never[name]:
		t.Skip("no GPU or never started")
		return
	case !ok && len(like) == 0:
		t.Skip("no pod of its size has times")
		return
	case !ok:
		j = like[p.turn[gpus]%len(like)]
		p.turn[gpus]++
	}
	j.ID, j.GPUs, j.MemberGPUs, j.Line = name, gpus, gpus, tb.line
	t.Jobs = append(t.Jobs, j)
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"bufio"
	"fmt"
)

// openbDefault is the pod list, with times, from which Alibaba made the lists without times.
const openbDefault = "openb_pod_list_default.csv"

// podTimes are the times of the pods of openb_pod_list_default.csv, for the multigpu lists, which
// have no times. A multigpu list has the same pods under the same names, followed by more pods. An
// additional pod gets the times of a pod with the same number of GPUs; several such pods are used
// in turn.
type podTimes struct {
	byName  map[string]Job
	byGPUs  map[int][]Job
	leftOut map[string]string // reasons by name
	turn    map[int]int
}

// timesBeside reads openb_pod_list_default.csv in the directory of the list.
func timesBeside(list string) (*podTimes, error) {
	f, err := beside(list, openbDefault)
	if err != nil {
		return nil, fmt.Errorf("%s:1: the list has no times; read them from %s beside it: %w", list, openbDefault, err)
	}
	defer f.Close()
	rs, err := openRows(openbDefault, bufio.NewReader(f), unnamed)
	if err != nil {
		return nil, err
	}
	tb, err := newTable(rs)
	if err != nil {
		return nil, err
	}
	if !tb.has("creation_time") || !tb.has("deletion_time") {
		return nil, fmt.Errorf("%s:1: the list has no times", openbDefault)
	}
	b, t := newBook(openbDefault), Trace{}
	if err := tb.read(b); err != nil {
		return nil, err
	}
	b.close(&t)
	p := &podTimes{byName: map[string]Job{}, byGPUs: map[int][]Job{}, leftOut: map[string]string{}, turn: map[int]int{}}
	for _, l := range t.LeftOut {
		p.leftOut[l.ID] = l.Reason
	}
	for _, j := range t.Jobs {
		p.byName[j.ID] = j
		p.byGPUs[j.GPUs] = append(p.byGPUs[j.GPUs], j)
	}
	return p, nil
}

// fill sets the times of a row from the pod with the same name or, without such a pod, from a pod
// with the same number of GPUs.
func (p *podTimes) fill(r *row) {
	gpus := int(r.each.v)
	like := p.byGPUs[gpus]
	j, ok := p.byName[r.ID]
	switch {
	case gpus == 0:
		r.leftOut = noGPU
	case p.leftOut[r.ID] != "":
		r.leftOut = p.leftOut[r.ID]
	case !ok && len(like) == 0:
		r.leftOut = "no pod of its size has times"
	case !ok:
		j = like[p.turn[gpus]%len(like)]
		p.turn[gpus]++
	}
	r.Name, r.submit, r.lasted = j.Name, opt{j.SubmitS, true}, opt{j.WorkS(), true}
}

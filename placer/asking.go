// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package placer

import (
	"time"
)

// Nomad is asked what became of a gang that is late at most asksPerSecond
// times a second in all, and for one gang after 1 s, 2 s, … slowestAsk: a Nomad
// that is slow is not to be made slower.
const (
	asksPerSecond = 20
	slowestAsk    = 8 * time.Second
)

// asking is how often Nomad was asked within the second from since on.
type asking struct {
	since time.Time
	asks  int
}

// asked is when Nomad was asked last about a job as it was committed then, and
// how often in all.
type asked struct {
	index uint64
	at    time.Time
	times int
}

// mayAsk says whether Nomad may be asked about the job now, and notes that it
// is.
func (p *Placer) mayAsk(t *tracked, now time.Time) bool {
	index := *t.Job.JobModifyIndex
	if t.asked.index != index {
		t.asked = asked{index: index}
	}
	if a := t.asked; a.times > 0 && now.Sub(a.at) < min(time.Second<<min(a.times-1, 10), slowestAsk) {
		return false
	}
	if now.Sub(p.asking.since) >= time.Second {
		p.asking = asking{since: now}
	}
	if p.asking.asks == asksPerSecond {
		return false
	}
	p.asking.asks++
	t.asked.at, t.asked.times = now, t.asked.times+1
	return true
}

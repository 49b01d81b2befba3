// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rank

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// Rank is one process of a gang.
type Rank struct {
	Rendezvous string // address of the rendezvous
	Job        string
	Group      string
	Index      int
	Node       string
	GPUs       []string
	Speeds     Speeds
}

// Run takes part in the gang until the gang ends, and returns the exit code.
func (r Rank) Run(ctx context.Context) (int, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", r.Rendezvous)
	if err != nil {
		return ExitLost, fmt.Errorf("reaching rendezvous %q: %w", r.Rendezvous, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	if err := out.Encode(hello{r.Job, r.Group, r.Index, r.Node, r.GPUs}); err != nil {
		return ExitLost, fmt.Errorf("greeting rendezvous: %w", err)
	}
	var iteration time.Duration
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return ExitLost, fmt.Errorf("listening to rendezvous: %w", err)
		}
		switch o.Do {
		case "exit":
			return o.Code, nil
		case "start":
			score, err := r.slowest(o.Class)
			if err != nil {
				return ExitRefused, err
			}
			iteration = time.Duration(float64(o.Iteration) * score)
			pause(ctx, o.Restart)
		case "iterate":
			pause(ctx, iteration-o.Late)
		}
		if err := out.Encode(done{iteration}); err != nil {
			return ExitLost, fmt.Errorf("answering rendezvous: %w", err)
		}
	}
}

// slowest returns the score of the rank's slowest GPU.
func (r Rank) slowest(class string) (float64, error) {
	worst := 0.0
	for _, id := range r.GPUs {
		s, ok := r.Speeds[id][class]
		if !ok {
			return 0, fmt.Errorf("there is no speed for GPU %q and class %q", id, class)
		}
		worst = max(worst, s)
	}
	if worst == 0 {
		return 0, fmt.Errorf("rank %d of %q has no GPU", r.Index, r.Job)
	}
	return worst, nil
}

// pause waits for as long as the work of an iteration takes.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rank

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

var speeds = Speeds{"g0": {"A": 1}, "g1": {"A": 2}}

func listen(t *testing.T, wait time.Duration) *Rendezvous {
	t.Helper()
	r, err := Listen(wait)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// launch runs ranks i, each on GPU g<i> of node n<i>, and returns their exit codes.
func launch(ctx context.Context, r *Rendezvous, ranks ...int) []int {
	codes := make([]int, len(ranks))
	var wg sync.WaitGroup
	for i, index := range ranks {
		wg.Go(func() {
			codes[i], _ = Rank{Rendezvous: r.Addr(), Job: "j", Group: "g", Index: index, Node: fmt.Sprint("n", index), GPUs: []string{fmt.Sprint("g", index)}, Speeds: speeds}.Run(ctx)
		})
	}
	wg.Wait()
	return codes
}

// A gang across nodes runs at the pace of its slowest GPU times the penalty.
func TestGangRunsAtThePaceOfItsSlowest(t *testing.T) {
	r := listen(t, time.Minute)
	r.Expect(Gang{Job: "j", Ranks: 2, Iterations: 3, Iteration: 10 * time.Millisecond, Class: "A", Penalty: 1.5})
	codes := launch(t.Context(), r, 0, 1)
	rep := r.Report("j")
	if codes[0] != ExitDone || codes[1] != ExitDone || rep.Progress != 3 || len(rep.Attempts) != 1 {
		t.Fatalf("codes %v, report %+v", codes, rep)
	}
	if took := rep.Finished.Sub(rep.Attempts[0].Start); took < 90*time.Millisecond {
		t.Errorf("took %v, three iterations at 10 ms × 2 × 1.5 take 90 ms", took)
	}
	if n := len(rep.Attempts[0].GPUs); n != 2 {
		t.Errorf("ran on %d nodes", n)
	}
}

// Half a gang gives up and reports that. It holds its GPUs until then.
func TestHalfAGangGivesUp(t *testing.T) {
	r := listen(t, 20*time.Millisecond)
	r.Expect(Gang{Job: "j", Ranks: 2, Iterations: 1, Iteration: time.Millisecond, Class: "A", Penalty: 1})
	if codes := launch(t.Context(), r, 1); codes[0] != ExitGaveUp {
		t.Fatalf("codes %v", codes)
	}
	if rep := r.Report("j"); rep.GaveUp != 1 || rep.Waited < 20*time.Millisecond || !rep.Finished.IsZero() {
		t.Errorf("report %+v", rep)
	}
}

// When one rank is stopped, the others notice. The gang continues from its checkpoint and pays for
// the restart.
func TestGangResumesFromItsCheckpoint(t *testing.T) {
	r := listen(t, time.Minute)
	r.Expect(Gang{Job: "j", Ranks: 2, Iterations: 20, Iteration: 30 * time.Millisecond, Class: "A", Penalty: 1, Restart: 50 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { launch(ctx, r, 0) })
	wg.Go(func() {
		defer stop()
		waits := func(context.Context) (string, error) {
			if states := r.States(); len(states) == 0 || !states[0].Running {
				return "it does not run", nil
			}
			return "", nil
		}
		if patience.Until(t.Context(), patience.Long, "the gang runs", waits) == nil {
			<-time.After(300 * time.Millisecond) // long enough for some iterations, which make up for delays
		}
	})
	if codes := launch(t.Context(), r, 1); codes[0] != ExitLost {
		t.Fatalf("the remaining rank ended with %v", codes)
	}
	wg.Wait()
	before := r.Report("j")
	if before.Progress == 0 || before.Progress == 20 {
		t.Fatalf("stopped after %d iterations", before.Progress)
	}
	launch(t.Context(), r, 0, 1)
	after := r.Report("j")
	if len(after.Attempts) != 2 || after.Progress != 20 || !after.Attempts[1].Finished {
		t.Fatalf("report %+v", after)
	}
	least := 50*time.Millisecond + time.Duration(20-before.Progress)*60*time.Millisecond
	if took := after.Attempts[1].End.Sub(after.Attempts[1].Start); took < least {
		t.Errorf("the second attempt took %v, restart and the rest take %v", took, least)
	}
}

// Ranks of unknown jobs, and GPUs of unknown speed, are refused.
func TestRefusals(t *testing.T) {
	r := listen(t, time.Minute)
	if codes := launch(t.Context(), r, 0); codes[0] != ExitRefused {
		t.Errorf("unknown job: %v", codes)
	}
	r.Expect(Gang{Job: "j", Ranks: 1, Iterations: 1, Class: "B"})
	if codes := launch(t.Context(), r, 0); codes[0] != ExitRefused {
		t.Errorf("unknown speed: %v", codes)
	}
}

// If a rank comes back before the attempt that it left has ended, it waits for the next attempt. It
// never takes part in two.
func TestAGangRunsOnceAtATime(t *testing.T) {
	r := listen(t, time.Minute)
	r.Expect(Gang{Job: "j", Ranks: 2, Iterations: 2, Iteration: 50 * time.Millisecond, Class: "A", Penalty: 1})
	var wg sync.WaitGroup
	wg.Go(func() { launch(t.Context(), r, 0, 1) })
	var s State
	until(t, func() bool { s = r.States()[0]; return s.Running || s.Finished }) // a starved test may see only the end
	if s.Running && (s.GPUs != 2 || s.Present != 2) {
		t.Errorf("%+v while both run", s)
	}
	wg.Go(func() { launch(t.Context(), r, 1) }) // replaces the earlier one
	wg.Wait()
	rep := r.Report("j")
	for i := 1; i < len(rep.Attempts); i++ {
		if rep.Attempts[i].Start.Before(rep.Attempts[i-1].End) {
			t.Errorf("two attempts at the same time: %+v", rep.Attempts)
		}
	}
	if rep.Progress != 2 {
		t.Errorf("progress %d of 2", rep.Progress)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	patience.Eventually(t, "it happens", ok)
}

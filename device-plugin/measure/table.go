// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

func writeTable(w io.Writer, r Report) error {
	tw := tabwriter.NewWriter(w, 2, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\tModel\tClass\tTime\t± 95 %\tRate\tOf peak\tLimited by\tWindows")
	for _, res := range r.Results {
		for _, a := range res.Apps {
			rate, share := a.RateText()
			note := ""
			if a.Slow {
				note = "  SLOW"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%.3f ms\t%.2f %%\t%s\t%s\t%s\t%d of %d%s\n", res.GPU, res.Model, a.App, a.Ms, 100*a.CI,
				rate, share, a.LimitedBy, len(kept(a.Windows)), len(a.Windows), note)
		}
		if len(res.Apps) == 0 {
			fmt.Fprintf(tw, "%s\t%s\t-\tnot measured\n", res.GPU, res.Model)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		for _, text := range res.Warnings {
			fmt.Fprintf(w, "%s: %s\n", res.GPU, text)
		}
		if res.Partial {
			fmt.Fprintf(w, "%s: partial: %s\n", res.GPU, res.Problem)
		}
	}
	return nil
}

// RateText returns a class's rate, and its share of the hardware's peak, for display.
func (a App) RateText() (rate, share string) {
	rate, share = "-", "-"
	if a.Rate > 0 {
		rate = fmt.Sprintf("%.4g %s", a.Rate, a.Unit)
	}
	if a.Share > 0 {
		share = fmt.Sprintf("%.0f %%", 100*a.Share)
	}
	return rate, share
}

// board prints one line for each new step of a session.
type board struct {
	w     io.Writer
	mu    sync.Mutex
	doing map[string]string // the step of each GPU
}

func (b *board) show(p Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.doing[p.GPU] != p.Doing {
		b.doing[p.GPU] = p.Doing
		fmt.Fprintf(b.w, "%s: %s (%s of at most %s)\n", p.GPU, p.Doing, p.Done.Round(time.Second), p.Limit)
	}
}

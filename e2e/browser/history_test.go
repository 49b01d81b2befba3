// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/accounting"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// The page lists the last runs. "Show more" lists four times as many each time, until it has listed
// all.
func TestMoreRuns(t *testing.T) {
	browser := chromium(t)
	w := startWith(t, 1, nil, func(file string) {
		db, _, err := accounting.Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var b accounting.Batch
		for n := range 210 {
			at := time.Now().Add(-time.Duration(n+1) * time.Hour)
			b.Runs = append(b.Runs, palapi.Run{Namespace: "default", Job: "llama-eval", Family: "llama-eval", GPUs: 8, MemberGPUs: 8, Submitted: at, Started: at, Whole: at, Ended: at.Add(time.Hour), State: palapi.RunComplete})
		}
		if err := db.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	})
	p := open(t, browser, w.url, "#/usage?span=30d")
	p.shows("These are the last 50.")
	rows := `[...document.querySelectorAll("main table")].at(-1).querySelectorAll("tbody tr").length`
	if n := is[int](p, rows); n != 50 {
		t.Errorf("%d runs at first", n)
	}
	p.clicks(`main p.row.soft button`)
	p.shows("These are the last 200.")
	if n := is[int](p, rows); n != 200 {
		t.Errorf("%d runs after Show more", n)
	}
	p.checked()
}

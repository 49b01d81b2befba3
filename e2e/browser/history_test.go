// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"testing"
	"time"
)

// The page lists the last runs. "Show more" lists four times as many each time, until it has listed
// all.
func TestMoreRuns(t *testing.T) {
	browser := chromium(t)
	runs := inventedMonth(time.Now())
	w := startWith(t, 16, nil, func(file string) { kept(t, file, runs) })
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

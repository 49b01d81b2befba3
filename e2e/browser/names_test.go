// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Names of jobs and users can be long, with or without hyphens. No page becomes wider than the
// screen, no name covers other text, and the reason of a waiting job stays on the screen.
func TestLongNames(t *testing.T) {
	browser := chromium(t)
	w := start(t, 2, nil)
	long, solid, user := strings.Repeat("very-long-experiment-name-", 8)+"end", strings.Repeat("W", 120), strings.Repeat("anna.", 20)
	hint := map[string]string{"pal_duration": "3h", "pal_user": user}
	w.submit(t, bed.Gang{Name: long, GPUs: gpusPerNode, Meta: hint}, bed.Gang{Name: solid, GPUs: gpusPerNode, Meta: hint})
	for _, name := range []string{long, solid} {
		until(t, "it runs", func() bool { return len(w.nomad.Members(nomadtest.Key{Namespace: "default", ID: name})) == 1 })
	}
	w.submit(t, bed.Gang{Name: long + "-waits", GPUs: gpusPerNode, Meta: hint}, bed.Gang{Name: "short", GPUs: 1, Meta: hint})
	until(t, "the history has the runs", func() bool { return strings.Contains(w.get(t, "/v1/runs"), long+"-waits") })
	routes := map[string]string{"#/": "Who waits, and why", "#/jobs": "short", "#/timeline": "One line for each GPU", "#/usage": "Runs, the last", "#/history": "What nomad-pal did",
		"#/job/default/" + solid: "Allocations", "#/job/default/" + long + "-waits": "Who holds the GPUs"}
	// A name that leaves its cell or card covers what is beside it.
	const astray = `[...document.querySelectorAll("main a")].filter(a => a.innerText && a.getBoundingClientRect().right > a.closest("td, li, .card, main").getBoundingClientRect().right + 1).map(a => a.innerText.slice(0, 30))`
	p := open(t, browser, w.url, "")
	for _, width := range []int64{390, 700, 1280} {
		p.run(emulation.SetDeviceMetricsOverride(width, 900, 1, width < 600))
		for route, text := range routes {
			p.goTo(route)
			p.shows(text)
			if n := is[int](p, "document.documentElement.scrollWidth"); n > int(width) {
				t.Errorf("at %d pixels, %.30s is %d pixels wide", width, route, n)
			}
			if names := is[[]string](p, astray); len(names) > 0 {
				t.Errorf("at %d pixels, names on %.30s leave their places: %q", width, route, names)
			}
			p.shot(fmt.Sprintf("long-%d-%s", width, strings.NewReplacer("#/", "", "/", "-").Replace(route)[:min(20, len(route)-2)]))
		}
		p.goTo("#/")
		p.shows("short")
		if is[bool](p, `/\b1 GPUs/.test(document.body.innerText)`) {
			t.Error("the overview says 1 GPUs")
		}
		p.goTo("#/jobs")
		p.shows("short")
		if right := is[float64](p, `document.querySelector("main tbody td[data-label=Reason]").getBoundingClientRect().right`); right > float64(width) {
			t.Errorf("at %d pixels the reason ends at %.0f", width, right)
		}
	}
	p.checked()
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// does opens an action's dialog, gives the reason, and confirms.
func (p *tab) does(action, reason string) {
	p.t.Helper()
	p.clicks(`main .actions button[title^="` + action + `: "]`)
	if reason != "" {
		p.run(chromedp.SendKeys(`dialog[open] input`, reason))
	}
	p.clicks(`dialog[open] button.go`)
}

// enter gives the page a token.
func (p *tab) enter(token string) {
	p.t.Helper()
	p.waits("the dialog is open", `document.getElementById("token").open || document.getElementById("login").click()`)
	p.run(chromedp.SetValue("#secret", token))
	p.clicks(`#token button[value=save]`)
}

// A reader with the right to submit jobs holds, requeues and cancels them. A reader without it sees the
// agent's error. Each dialog shows the command. No address has a token.
func TestActionsOnJobs(t *testing.T) {
	browser := chromium(t)
	w := start(t, 2, map[string]nomadtest.Token{
		"secret-reader": {Nodes: true, Namespaces: map[string][]string{"default": {"list-jobs", "read-job"}}},
		"secret-author": {Nodes: true, Namespaces: map[string][]string{"default": {"list-jobs", "read-job", "submit-job"}}},
	})
	w.submit(t, bed.Gang{Name: "runs", Members: 2, GPUs: gpusPerNode})
	until(t, "it runs", func() bool { return len(w.nomad.Members(nomadtest.Key{Namespace: "default", ID: "runs"})) == 2 })
	w.submit(t, bed.Gang{Name: "waits", GPUs: gpusPerNode})
	p := open(t, browser, w.url, "#/job/default/waits")
	p.enter("secret-reader")
	p.shows("Job waits", "waits has waited")
	p.does("Hold", "it's late")
	p.shows(`nomad-pal hold -reason 'it'\''s late' waits`, `permission denied: the token lacks the capability "submit-job" in namespace "default"`)
	for _, v := range p.axe() {
		t.Error(v)
	}
	p.shot("refused")
	p.clicks(`dialog[open] .copy`)
	p.waits("the command is copied", `/Copied|Selected/.test(document.querySelector("dialog .copy").innerText)`)
	p.clicks(`dialog[open] .buttons button[type=button]`)
	p.clicks("#login")
	p.enter("secret-author")
	p.shows("waits has waited")
	p.does("Hold", "it's late")
	p.shows("Held waits.", "it's late", "nomad-pal hold -lift waits")
	p.shot("held")
	p.does("Lift hold", "")
	p.shows("Lifted the hold on waits.")
	p.goTo("#/job/default/runs")
	p.shows("Job runs")
	if is[bool](p, `document.body.innerText.includes("Lifted the hold")`) {
		t.Error("the result of an action is still there on another page")
	}
	p.does("Requeue", "")
	p.shows("Requeued runs.")
	p.does("Cancel", "")
	p.shows("Cancelled default/runs.")
	p.checked()
	for _, a := range p.asked {
		if strings.Contains(a, "secret") {
			t.Errorf("the address %s has a token", a)
		}
	}
}

// An operator puts a GPU in quarantine and lifts it; a reader may not.
func TestQuarantineOnThePage(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, map[string]nomadtest.Token{
		"reader": {Nodes: true, Namespaces: map[string][]string{"default": {"list-jobs", "read-job"}}},
	})
	p := open(t, browser, w.url, "#/gpu/"+gpuID(0, 3))
	p.enter("reader")
	p.shows("On node gpu-00000")
	p.does("Quarantine", "the fan is loud")
	p.shows("permission denied: the token lacks the capability \"write\" of the variables")
	p.clicks(`dialog[open] .buttons button[type=button]`)
	p.clicks("#login")
	p.enter("agent")
	p.shows("On node gpu-00000")
	p.does("Quarantine", "the fan is loud")
	p.shows("In quarantine: "+gpuID(0, 3), "quarantined until an operator lifts it: the fan is loud")
	p.shot("quarantined")
	p.does("Lift quarantine", "")
	p.shows("Lifted the quarantine of " + gpuID(0, 3))
	p.waits("it is free", `document.querySelector("main td .badge")?.innerText.includes("free")`)
	p.checked()
}

// The map shows the speed for the chosen application class, or why GPUs are not usable. The choice stays
// on the next page.
func TestColoursOfTheMap(t *testing.T) {
	browser := chromium(t)
	w := start(t, 2, nil)
	w.nomad.SetHealth(false, gpuID(1, 2))
	p := open(t, browser, w.url, "")
	p.drawn()
	cell := func(node, gpu int, what string) string {
		return `document.querySelectorAll(".map .node")[` + string(rune('0'+node)) + `].querySelectorAll(".cell")[` + string(rune('0'+gpu)) + `].` + what
	}
	p.waits("the unhealthy GPU stands out", cell(1, 2, `classList.contains("bad")`))
	speeds := `[...document.querySelectorAll(".map .cell")].map(c => c.innerText).join("")`
	a := is[string](p, speeds)
	p.clicks(`.switch button[title="Colour by speed for application class B"]`)
	if b := is[string](p, speeds); a == b || strings.Count(b, "×") != 1 || strings.Trim(b, "12345×") != "" {
		t.Errorf("class A %q, class B %q", a, b)
	}
	p.clicks(`.switch button[title="Colour by why not usable"]`)
	p.waits("only the unhealthy GPU has a mark", speeds+` === "×"`)
	p.waits("usable GPUs look alike", cell(0, 0, `classList.contains("fine")`))
	p.goTo("#/gpus")
	p.waits("the choice stays", `document.querySelector(".switch [aria-pressed=true]")?.innerText === "Why not usable"`)
	w.nomad.SetEligible(measuredNode(0).ID, false)
	p.waits("a node that is away says so", `document.querySelector(".map .node").ariaLabel.startsWith("gpu-00000: the node is not eligible for scheduling")`)
	p.waits("its GPUs are not usable", cell(0, 0, `classList.contains("away")`))
	p.checked()
}

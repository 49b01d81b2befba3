// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func addScript(ctx context.Context, script string) error {
	_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
	return err
}

const hostileName = `<img src=x onerror=alert(1)>"'&amp;`

// busy submits jobs of all kinds: some run, one waits, one can never run, and the name
// of one contains markup.
func busy(t *testing.T, w *world, gangs int) {
	t.Helper()
	var all []bed.Gang
	for i := range gangs {
		all = append(all, bed.Gang{Name: fmt.Sprintf("train-%03d", i), Members: 2 + i%7, GPUs: 8 - i%3*2, Meta: map[string]string{"pal_class": string("ABCD"[i%4]), "pal_duration": "3h"}})
	}
	w.submit(t, append(all, bed.Gang{Name: "never", GPUs: 2 * gpusPerNode}, bed.Gang{Name: hostileName})...)
	until(t, "the gangs run", func() bool { return len(w.nomad.Members(nomadtest.Key{Namespace: "default", ID: hostileName})) == 1 })
}

// pages has one route of each kind, with a text that the page must show.
func pages() map[string]string {
	return map[string]string{
		"#/":                         "Who waits, and why",
		"#/gpus":                     "Racks",
		"#/timeline":                 "One line for each GPU",
		"#/rack/dc1/rack-001":        "Rack rack-001",
		"#/node/gpu-00001":           "Who had which GPU",
		"#/jobs":                     "train-000",
		"#/jobs?state=unschedulable": "never",
		"#/job/default/train-000":    "Locality × variability",
		"#/job/default/never":        "unschedulable",
		"#/failures":                 "XID 79",
		"#/history":                  "What nomad-pal did",
		"#/usage":                    "Runs, the last submitted first",
		"#/usage?by=model&span=30d":  "NVIDIA",
		"#/usage?user=nobody":        "no matching run in this time",
		"#/tenants":                  "its recent GPU hours",
		"#/nothing":                  "There is no such page",
		"#/node/none":                "There is no such node",
		"#/job/default/none":         "no job",
	}
}

// One cluster of 8,000 GPUs; each subtest checks another aspect of the page.
func TestPage(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1000, nil)
	busy(t, w, 20)

	t.Run("draws little", func(t *testing.T) {
		p := open(t, browser, w.url, "")
		p.drawn()
		p.shows("8,000 GPUs in 32 racks", "and at least ")
		if n := is[int](p, `document.querySelectorAll("*").length`); n > 1000 {
			t.Errorf("%d elements for 8,000 GPUs", n)
		}
		if n := p.received(); n > 120_000 { // 78,000 are the page's files; a slow browser also receives changes
			t.Errorf("%d bytes for the first draw", n)
		}
		unhealthy := `[...document.querySelectorAll("a.tile")].find(d => d.innerText.includes("In trouble")).querySelector("b").innerText`
		before := is[string](p, unhealthy)
		w.nomad.SetHealth(false, fmt.Sprintf("GPU-%05x-0-4a1c-9e77-c0ffee%06x", 5, 5*gpusPerNode))
		p.waits("a change arrives by itself", unhealthy+" !== "+quoted(before))
		if n := p.received(); n > 10_000 {
			t.Errorf("%d bytes for one GPU", n)
		}
		p.shot("overview")
		p.checked()
	})

	t.Run("each thing has its page", func(t *testing.T) {
		p := open(t, browser, w.url, "")
		for route, text := range pages() {
			p.goTo(route)
			p.shows(text)
			if said := is[string](p, `document.body.innerText.match(/\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b.*|\d:\d\d [AP]M/)?.[0] ?? ""`); said != "" {
				t.Errorf("%s shows a time in another format: %q", route, said)
			}
		}
		p.goTo("#/node/gpu-00001")
		p.shows("GPU 7")
		p.shows("* measured below the power limit")
		if n := is[int](p, `document.querySelectorAll("main table tbody tr").length`); n < gpusPerNode {
			t.Errorf("%d rows for %d GPUs", n, gpusPerNode)
		}
		p.clicks(`main tbody a[href^="#/gpu/"]`)
		p.shows("On node gpu-00001")
		p.goTo("#/job/default/train-000")
		p.shows("the map highlights them")
		p.clicks("table.lv button.chosen")
		p.shows("this was chosen")
		p.checked()
	})

	t.Run("a job has one colour", func(t *testing.T) {
		p := open(t, browser, w.url, "#/job/default/train-000")
		const colours = `import("/ui/dom.js").then(({colourOf}) => {
			const ctx = document.createElement("canvas").getContext("2d"), linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4, all = new Map();
			for (let i = 0; i < 500; i++) {
				ctx.fillStyle = colourOf("default/job-" + i); ctx.fillRect(0, 0, 1, 1);
				const [r, g, b] = [...ctx.getImageData(0, 0, 1, 1).data].map(v => linear(v / 255));
				all.set(ctx.fillStyle, 1.05 / (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05));
			}
			return [all.size, Math.min(...all.values())];
		})`
		if n := is[[]float64](p, colours); n[0] != 24 || n[1] < 4.5 {
			t.Errorf("%.0f colours, on which white has a contrast of %.2f at least", n[0], n[1])
		}
		const bar = `[...document.querySelectorAll(".gantt rect")].find(r => r.textContent.includes("train-000"))`
		p.waits("a bar", bar)
		p.waits("a line for now", `document.querySelector(".gantt line.now")`)
		p.shows("to now, ")
		colour := is[string](p, "getComputedStyle("+bar+").fill")
		node := is[string](p, `document.querySelector('main td a[href^="#/node/"]').getAttribute("href")`)
		for route, of := range map[string]string{node: "getComputedStyle(" + bar + ").fill", "#/jobs?search=train-000": `getComputedStyle(document.querySelector("tbody .job-mark")).backgroundColor`} {
			p.goTo(route)
			p.shows("train-000")
			p.waits("it is drawn", fmt.Sprintf("(() => { try { return %s; } catch { return false; } })()", of))
			if got := is[string](p, of); got != colour {
				t.Errorf("%s shows the job in colour %s, the job's own page in %s", route, got, colour)
			}
		}
		p.checked()
	})

	t.Run("names are text", func(t *testing.T) {
		p := open(t, browser, w.url, "#/jobs?search="+"onerror")
		p.shows(hostileName)
		p.clicks(`main tbody a`)
		p.shows("Job "+hostileName, hostileName+" runs on 1 GPU")
		if n := is[int](p, `document.querySelectorAll("img").length`); n > 0 {
			t.Errorf("%d images", n)
		}
		p.checked()
	})

	t.Run("jobs are sorted, filtered and paged", func(t *testing.T) {
		p := open(t, browser, w.url, "#/jobs")
		p.shows("train-000")
		p.clicks(`th button[title="Sort by gpus"]`)
		p.clicks(`th[aria-sort=ascending] button[title="Sort by gpus"]`)
		p.waits("the largest is first", `location.hash.includes("order=desc") && document.querySelector("main th[aria-sort=descending]") && document.querySelector("main tbody tr").innerText.includes("64")`)
		p.run(chromedp.SendKeys(`main input[type=search]`, "nev"))
		p.shows("1 match")
		if !is[bool](p, `document.activeElement.value === "nev" && location.hash.includes("search=nev")`) {
			t.Error("the filter loses the focus, or its address")
		}
		p.run(chromedp.SendKeys(`main input[type=search]`, "x"))
		p.shows("No job matches")
		p.goTo("#/usage")
		p.shows("Runs, the last submitted first")
		p.run(chromedp.SendKeys(`main form input`, "nobody"))
		p.shows("no matching run in this time")
		p.checked()
	})

	t.Run("keyboard", func(t *testing.T) {
		p := open(t, browser, w.url, "")
		p.drawn()
		p.run(chromedp.KeyEvent(kb.Tab))
		if got := is[string](p, "document.activeElement.className"); got != "skip" {
			t.Errorf("first comes %q", got)
		}
		for range 40 {
			if is[bool](p, `document.activeElement.matches(".map *")`) {
				break
			}
			p.run(chromedp.KeyEvent(kb.Tab))
		}
		if said := is[string](p, "document.activeElement.ariaLabel"); !strings.HasPrefix(said, "Rack rack-000: 256 GPUs, ") {
			t.Errorf("the first rack is called %q", said)
		}
		p.run(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
		p.waits("Enter opens the rack", `location.hash === "#/rack/dc1/rack-001"`)
		p.drawn()
		p.waits("a node says what its cells show", `document.querySelector(".map .node")?.ariaLabel.startsWith("gpu-00032: 8 GPUs, ")`)
		p.run(chromedp.Evaluate(`document.querySelectorAll(".map .node")[1].focus()`, nil))
		w.nomad.SetHealth(false, gpuID(33, 1))
		p.waits("a change of the map keeps the focus", `document.activeElement.ariaLabel?.startsWith("gpu-00033: ") && document.activeElement.ariaLabel.includes("unhealthy")`)
		p.run(chromedp.KeyEvent(kb.Enter))
		p.waits("Enter opens the node", `location.hash === "#/node/gpu-00033"`)
		p.shows("Node gpu-00033")
		p.checked()
	})

	t.Run("narrow", func(t *testing.T) {
		p := open(t, browser, w.url, "")
		p.run(emulation.SetDeviceMetricsOverride(390, 800, 2, true))
		for route, text := range pages() {
			p.goTo(route)
			p.shows(text)
			if n := is[int](p, "document.documentElement.scrollWidth"); n > 390 {
				t.Errorf("%s is %d pixels wide", route, n)
			}
			p.shot("narrow-" + strings.NewReplacer("#/", "", "/", "-", "?", "-").Replace(route))
		}
		// The name on a bar of the timeline moves along when the bar's left end is
		// scrolled out of sight.
		const names = `import("/ui/gantt.js").then(async ({gantt}) => {
			const at = hours => new Date(Date.now() - hours * 3600e3).toISOString();
			const all = gantt([{row: "a", text: "a-long-name", from: at(23.9), to: at(16)}, {row: "b", text: "another-name", from: at(20), to: at(1)}], "bars");
			document.querySelector("main").replaceChildren(all);
			await new Promise(done => setTimeout(done, 500));
			const host = all.querySelector(".scroll"), cut = new Set();
			let shown = 0;
			for (let x = 0; x <= host.scrollWidth - host.clientWidth; x++) {
				host.scrollLeft = x; host.onscroll();
				for (const t of all.querySelectorAll(".bar-text")) {
					if (getComputedStyle(t).visibility === "hidden") continue;
					shown++;
					if (t.getBoundingClientRect().left < host.getBoundingClientRect().left - .5) cut.add(t.textContent + " at " + x);
				}
			}
			return [shown > 0 ? "" : "no names", host.scrollWidth > host.clientWidth + 60 ? "" : "it does not scroll", ...cut].filter(Boolean);
		})`
		if cut := is[[]string](p, names); len(cut) > 0 {
			t.Errorf("names that are cut on the left: %v", cut)
		}
	})

	// Why a job waits is the question of most readers: the answer is on the screen,
	// however narrow the screen is.
	t.Run("the reason is seen", func(t *testing.T) {
		p := open(t, browser, w.url, "#/jobs?state=unschedulable")
		for _, width := range []int64{390, 500, 700, 900, 1400} {
			p.run(emulation.SetDeviceMetricsOverride(width, 800, 1, width < 600))
			p.shows("needs 16 GPUs of one model on one node")
			const reason = `document.querySelector("main td[data-label=Reason]").getBoundingClientRect()`
			if right := is[float64](p, reason+".right"); right > float64(width) {
				t.Errorf("at %d pixels the reason ends at %.0f", width, right)
			}
			if wide := is[float64](p, reason+".width"); wide < 150 {
				t.Errorf("at %d pixels the reason is %.0f wide", width, wide)
			}
			p.shot(fmt.Sprintf("reason-%d", width))
		}
		// If the column heads are hidden, a list offers the sort order.
		p.run(emulation.SetDeviceMetricsOverride(390, 800, 1, true))
		p.goTo("#/jobs")
		p.shows("Sorted by")
		p.waits("there is a list", `(e => { if (!e) return false; e.value = "gpus desc"; e.onchange({target: e}); return true; })([...document.querySelectorAll("main select")].at(-1))`)
		p.waits("the largest is first", `document.querySelector("main tbody td[data-label=GPUs]")?.innerText.includes("64")`)
		p.checked()
	})

	for _, scheme := range []string{"light", "dark"} {
		t.Run("axe "+scheme, func(t *testing.T) {
			p := open(t, browser, w.url, "")
			p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for route, text := range pages() {
				p.goTo(route)
				p.shows(text)
				for _, v := range p.axe() {
					t.Errorf("%s: %s", route, v)
				}
				p.shot(scheme + "-" + strings.NewReplacer("#/", "", "/", "-", "?", "-").Replace(route))
			}
		})
	}
}

// The page of a waiting job whose run time is unknown asks for an estimate. The page of a job with
// an estimate does not.
func TestEstimateIsAskedFor(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	w.submit(t, bed.Gang{Name: "runs", GPUs: gpusPerNode - 1, Meta: map[string]string{"pal_duration": "3h"}})
	until(t, "it runs", func() bool { return len(w.nomad.Members(nomadtest.Key{Namespace: "default", ID: "runs"})) == 1 })
	w.submit(t, bed.Gang{Name: "silent", GPUs: gpusPerNode}, bed.Gang{Name: "honest", GPUs: gpusPerNode, Meta: map[string]string{"pal_duration": "1h"}})
	p := open(t, browser, w.url, "#/job/default/silent")
	p.shows("silent has waited for", "Next", "Set the job's expected run time (pal_duration)")
	for _, v := range p.axe() {
		t.Error(v)
	}
	p.shot("estimate")
	p.goTo("#/job/default/honest")
	p.shows("Job honest", "Submitted")
	if is[bool](p, `document.querySelector("main").innerText.includes("Set the job's expected run time")`) {
		t.Error("a job with an estimate is asked for one")
	}
	p.checked()
}

// Without the right to read, the page asks for a token and says which right it lacks. With a token
// it shows what that token may see.
func TestToken(t *testing.T) {
	browser := chromium(t)
	w := start(t, 4, map[string]nomadtest.Token{
		"reader": {Nodes: true, Namespaces: map[string][]string{"default": {"list-jobs", "read-job"}}},
		"tenant": {Namespaces: map[string][]string{"research": {"list-jobs", "read-job"}}},
	})
	p := open(t, browser, w.url, "")
	p.waits("the dialog opens by itself", `document.getElementById("token").open`)
	p.shows("permission denied", "list-jobs")
	for _, v := range p.axe() {
		t.Errorf("dialog: %s", v)
	}
	p.shot("token")
	p.enter("reader")
	p.drawn()
	p.clicks("#login")
	p.enter("tenant")
	p.shows("This token may not read nodes")
	p.goTo("#/jobs")
	p.shows("This token sees no job with GPUs")
	if kept := is[string](p, `JSON.stringify(localStorage)`); strings.Contains(kept, "tenant") {
		t.Errorf("the token stays: %s", kept)
	}
}

// On a cluster without GPUs, and without an agent, the page says what to do.
func TestNothingThere(t *testing.T) {
	browser := chromium(t)
	w := start(t, 0, nil)
	p := open(t, browser, w.url, "")
	p.shows("Install the device plugin", "nomad-pal doctor")
	p.goTo("#/failures")
	p.shows("No GPU is unhealthy")
	w.stop()
	p.shows("The agent does not answer")
}

// The lists of GPUs in trouble and of failures show a new reason although no GPU changes its state.
func TestNewReasonIsShown(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	c, err := nomad.NewClient(w.nomad.Config("operator", ""), "default")
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, browser, w.url, "")
	for _, route := range []string{"#/failures", "#/node/gpu-00000"} {
		p.goTo(route)
		for _, why := range []string{"the fan is loud", "the fan is replaced"} {
			if err := placer.PutInQuarantine(t.Context(), c, time.Hour, why, gpuID(0, 3)); err != nil {
				t.Fatal(err)
			}
			p.shows(why)
		}
	}
}

// An unhealthy GPU that a job holds counts only as unhealthy, on the page as in the metrics.
func TestEachGPUCountsOnce(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	w.submit(t, bed.Gang{Name: "runs", GPUs: gpusPerNode - 2})
	key := nomadtest.Key{Namespace: "default", ID: "runs"}
	until(t, "it runs", func() bool { return len(w.nomad.Members(key)) == 1 })
	p := open(t, browser, w.url, "#/gpus")
	p.waits("its GPUs are allocated", allocated(gpusPerNode-2))
	w.nomad.SetHealth(false, w.nomad.Members(key)[0].GPUs[0])
	p.waits("one of them is unhealthy", allocated(gpusPerNode-3))
	const figures = `JSON.stringify(Object.fromEntries([...document.querySelectorAll(".figures div")].map(d => [d.querySelector("dt").innerText.toLowerCase(), +d.querySelector("dd").innerText])))`
	if is, want := is[string](p, figures), `{"gpus":8,"allocated":5,"free":2,"unhealthy":1,"quarantined":0,"unavailable":0,"degraded":0}`; is != want {
		t.Errorf("the page says %s, want %s", is, want)
	}
}

// The overview reads its lists again when a reason changes, and when a request has failed. Times
// relative to now move on without a request. The test shortens the page's pauses of a minute.
func TestOverviewStaysCurrent(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	ail := func(why string) {
		node := measuredNode(0)
		gpu := node.NodeResources.Devices[0].Instances[0]
		gpu.Healthy, gpu.HealthDescription = false, why
		w.nomad.AddNode(node)
	}
	ail("XID 79")
	p := newTab(t, browser, w.url)
	p.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return addScript(ctx, `const after = setTimeout, ask = fetch;
			setTimeout = (f, ms, ...more) => after(f, ms === 60e3 ? 300 : ms, ...more);
			fetch = (url, how) => window.broken && url.startsWith("/v1/failures") ? Promise.reject(new TypeError("no network")) : ask(url, how);
			window.broken = true;`)
	}))
	p.load("")
	p.shows("XID 79", "no network")
	time.Sleep(6 * time.Second) // until the page has read everything twice, because the stream's first message is a change
	is[bool](p, "!(window.broken = false)")
	p.waits("the failed request is repeated", `!document.body.innerText.includes("no network")`)
	ail("XID 48")
	p.shows("XID 48")
	const ago = `import("/ui/dom.js").then(({time, range, keepUp}) => {
		const now = Date.now, at = s => new Date(now() + s * 1000).toISOString(), all = [time(at(-300)), range(at(1500), at(1800))];
		document.body.append(...all);
		Date.now = () => now() + 600e3;
		keepUp();
		Date.now = now;
		return all.map(e => e.textContent).join(", ");
	})`
	if got, want := is[string](p, ago), "15m ago, in 15m–20m"; got != want {
		t.Errorf("ten minutes later the page shows %q, want %q", got, want)
	}
}

// allocated is an expression that is true if the page shows n GPUs as
// allocated.
func allocated(n int) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".figures div")].some(d => /^allocated$/i.test(d.querySelector("dt").innerText) && d.querySelector("dd").innerText === "%d")`, n)
}

// All tabs show all changes. A hidden tab leaves the stream, because a browser allows six connections
// to the agent; once it is visible again, it catches up.
func TestTabs(t *testing.T) {
	browser := chromium(t)
	w := start(t, 4, nil)
	var tabs []*tab
	for range 3 {
		p := newTab(t, browser, w.url)
		const seen = `window.unseen = false; Object.defineProperty(document, "hidden", {get: () => window.unseen})`
		p.run(chromedp.ActionFunc(func(ctx context.Context) error { return addScript(ctx, seen) }))
		p.load("#/gpus")
		tabs = append(tabs, p)
	}
	for _, p := range tabs {
		p.waits("no GPU is allocated", allocated(0))
	}
	hide := func(unseen bool) {
		tabs[0].run(chromedp.Evaluate(fmt.Sprintf(`window.unseen = %t; document.dispatchEvent(new Event("visibilitychange"))`, unseen), nil))
	}
	hide(true)
	w.submit(t, bed.Gang{Name: "holds", GPUs: 5})
	for _, p := range tabs[1:] {
		p.waits("5 GPUs are allocated", allocated(5))
	}
	if !is[bool](tabs[0], allocated(0)) {
		t.Error("a hidden tab follows the stream")
	}
	hide(false)
	for _, p := range tabs {
		p.waits("5 GPUs are allocated", allocated(5))
		p.goTo("#/jobs")
		p.shows("holds")
		p.checked()
	}
}

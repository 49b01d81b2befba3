// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a tab of a headless Chromium, with a record of its requests and
// errors.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu        sync.Mutex
	asked     []string // requested addresses
	bytes     int      // received, as transferred
	complaint []string // exceptions, errors on the console, violations of the content security policy
}

// chromium starts a browser, which ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		without(t, "there is no Chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) }) // waits for its end, unlike a cancel function
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	return ctx
}

// open opens a page of the agent in a tab of its own.
func open(t *testing.T, browser context.Context, url, route string) *tab {
	t.Helper()
	p := newTab(t, browser, url)
	p.load(route)
	return p
}

func newTab(t *testing.T, browser context.Context, url string) *tab {
	p := &tab{t: t, url: url}
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	p.ctx = ctx
	chromedp.ListenTarget(ctx, p.note)
	return p
}

func (p *tab) load(route string) {
	p.t.Helper()
	const watch = `window.long = []; new PerformanceObserver(l => { for (const e of l.getEntries()) long.push(e.duration); }).observe({type: "longtask", buffered: true});`
	p.run(network.Enable(), log.Enable(), chromedp.ActionFunc(func(ctx context.Context) error { return addScript(ctx, watch) }),
		emulation.SetDeviceMetricsOverride(1400, 900, 1, false), chromedp.Navigate(p.url+"/ui/"+route))
}

func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	case *network.EventDataReceived:
		p.bytes += int(e.EncodedDataLength)
	case *runtime.EventExceptionThrown:
		p.complaint = append(p.complaint, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if answer := e.Entry.Source == log.SourceNetwork; e.Entry.Level == log.LevelError && !answer { // some pages request things that do not exist
			p.complaint = append(p.complaint, e.Entry.Text)
		}
	}
}

// received is the number of bytes received since its last call.
func (p *tab) received() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.bytes
	p.bytes = 0
	return n
}

func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// is evaluates an expression in the page.
func is[T any](p *tab, expression string) (v T) {
	p.t.Helper()
	p.run(chromedp.Evaluate(expression, &v, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return v
}

// waits polls until an expression is true.
func (p *tab) waits(what, expression string) {
	p.t.Helper()
	until(p.t, what, func() bool { return is[bool](p, "!!("+expression+")") })
}

// shows waits until the page shows each text.
func (p *tab) shows(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.waits("the page shows "+text, "document.body?.innerText.includes("+quoted(text)+")")
	}
}

func (p *tab) drawn() {
	p.t.Helper()
	p.waits("the map is drawn", `document.querySelector(".map .node, .map .rack")`)
}

// clicks clicks an element as soon as it exists: lists are redrawn when
// something changes.
func (p *tab) clicks(selector string) {
	p.t.Helper()
	p.waits("there is "+selector, `(e => { e?.click(); return e; })(document.querySelector(`+quoted(selector)+`))`)
}

func (p *tab) goTo(route string) {
	p.t.Helper()
	p.run(chromedp.Evaluate("location.hash = "+quoted(route), nil))
}

// checked fails the test if the page had errors, or sent requests to anything
// but the agent.
func (p *tab) checked() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.complaint {
		p.t.Errorf("the browser complains: %s", c)
	}
	for _, a := range p.asked {
		if !strings.HasPrefix(a, p.url+"/") && !strings.HasPrefix(a, "data:") {
			p.t.Errorf("the page asks %s", a)
		}
	}
}

// axe returns the rules of axe-core that the page breaks, each with the
// element.
func (p *tab) axe() []string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "build", "browser", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		without(p.t, "axe-core is not there: "+err.Error())
	}
	p.run(chromedp.Evaluate(string(text)+"; true", nil))
	return is[[]string](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + (n.any[0]?.message ?? ""))))`)
}

// shot saves a screenshot for people to look at, if PAGE_SHOTS names a folder.
func (p *tab) shot(name string) {
	p.t.Helper()
	dir := os.Getenv("PAGE_SHOTS")
	if dir == "" {
		return
	}
	var png []byte
	p.run(chromedp.Sleep(500*time.Millisecond), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

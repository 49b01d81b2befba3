// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// The agent restarts while somebody reads the pages. A page that is opened meanwhile says that the
// agent does not answer. Once the agent answers again, the page shows its content without a reload.
func TestPagesRecover(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	w.submit(t, bed.Gang{Name: "runs", GPUs: 1})
	var down atomic.Bool
	front := inFront(t, w.url, func(http.ResponseWriter, *http.Request) bool {
		if down.Load() {
			panic(http.ErrAbortHandler) // closes the connection, as the end of a process does
		}
		return false
	})
	for route, text := range map[string]string{"#/tenants": "its recent GPU hours", "#/usage": "Runs, the last submitted first", "#/jobs": "runs"} {
		p := open(t, browser, front.URL, "#/nothing")
		p.waits("the page is live", `document.getElementById("state").innerText.startsWith("Live")`)
		down.Store(true)
		front.CloseClientConnections()
		p.waits("the page is not up to date", `document.getElementById("state").innerText === "Not up to date"`)
		p.goTo(route)
		p.waits(route+" says that the agent did not answer", `document.querySelector("main .alert")?.innerText.startsWith("The agent did not answer")`)
		down.Store(false)
		p.waits(route+" recovers", `!document.querySelector("main .alert")`)
		p.shows(text)
	}
}

// An agent stands by since another one became active. The page goes to the active agent, and keeps
// its view.
func TestPageGoesToActiveAgent(t *testing.T) {
	browser := chromium(t)
	w := start(t, 1, nil)
	w.submit(t, bed.Gang{Name: "runs", GPUs: 1})
	var standby atomic.Bool
	front := inFront(t, w.url, func(to http.ResponseWriter, r *http.Request) bool {
		itself := r.URL.Path != "/ui/" && strings.HasPrefix(r.URL.Path, "/ui/")
		if !standby.Load() || itself {
			return false
		}
		http.Redirect(to, r, w.url+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		return true
	})
	p := open(t, browser, front.URL, "#/jobs")
	p.waits("the page is live", `document.getElementById("state")?.innerText.startsWith("Live")`)
	standby.Store(true)
	front.CloseClientConnections()
	p.waits("the page is the active agent's", fmt.Sprintf(`location.href === %q`, w.url+"/ui/#/jobs"))
	p.waits("the page is live again", `document.getElementById("state")?.innerText.startsWith("Live")`)
	p.shows("runs")
}

// inFront is a server in front of an agent. It passes on the requests that answers does not answer.
func inFront(t *testing.T, agent string, answers func(http.ResponseWriter, *http.Request) bool) *httptest.Server {
	t.Helper()
	to, err := url.Parse(agent)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front
}

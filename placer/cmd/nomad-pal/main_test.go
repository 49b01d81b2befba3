// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"nomad-pal": main,
	})
}

// TestScripts plays the stories of testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// Ctrl-C ends a command, which then prints no error: nothing has failed. The exit code lets scripts
// stop, too.
func TestInterrupted(t *testing.T) {
	c := newCluster(t)
	reached := make(chan struct{}, 100)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(hangs.Close)
	interrupted := func(want string, out io.Writer, when <-chan struct{}, args ...string) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		var errs bytes.Buffer
		code := make(chan int)
		go func() { code <- run(ctx, args, streams{strings.NewReader(""), out, &errs, false}) }()
		<-when
		stop()
		if got := <-code; got != exitInterrupted || errs.String() != want {
			t.Errorf("%v: exit code %d: %s", args, got, errs.String())
		}
	}
	for _, args := range []string{"queue", "cancel train", "hold train", "classify train"} {
		interrupted("Interrupted.\n", io.Discard, reached, slices.Insert(strings.Fields(args), 1, "-address="+hangs.URL)...)
	}
	c.agent("", atAnyPort)
	for _, name := range []string{"fills", "more"} {
		c.must("run", c.job("default", name, 4))
	}
	const stays = "Interrupted. The job stays registered: see nomad-pal explain train\n"
	says := &firstWrite{done: make(chan struct{})}
	interrupted(stays, says, says.done, "run", c.job("default", "train", 4))
	for len(reached) > 0 {
		<-reached
	}
	interrupted(stays, io.Discard, reached, "run", "-pal-address="+hangs.URL, c.job("default", "train", 4)) // before the agent answers
}

// firstWrite closes done when something is written to it.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.done) })
	return len(b), nil
}

// A busy agent can still answer with the ended job that a registration has just replaced. run follows
// the new job.
func TestRunAfterAnEndedJob(t *testing.T) {
	c := newCluster(t)
	target, err := url.Parse(c.agent("", atAnyPort))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/explain") && !asked.Swap(true) {
			_, _ = io.WriteString(w, `{"job": "train", "namespace": "default", "state": "ended"}`)
			return
		}
		r.Host = target.Host
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(old.Close)
	code, out, said := c.does("run", "-pal-address="+old.URL, c.job("default", "train", 4))
	if !asked.Load() || code != 0 || !strings.Contains(out, "running") {
		t.Errorf("exit code %d: %s%s", code, out, said)
	}
}

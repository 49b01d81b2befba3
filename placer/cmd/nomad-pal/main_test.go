// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
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
	interrupted := func(want string, when <-chan struct{}, args ...string) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		var out, errs bytes.Buffer
		code := make(chan int)
		go func() { code <- run(ctx, args, streams{strings.NewReader(""), &out, &errs, false}) }()
		<-when
		stop()
		if got := <-code; got != exitInterrupted || errs.String() != want {
			t.Errorf("%v: exit code %d: %s", args, got, errs.String())
		}
	}
	for _, args := range []string{"queue", "cancel train", "hold train", "classify train"} {
		interrupted("Interrupted.\n", reached, slices.Insert(strings.Fields(args), 1, "-address="+hangs.URL)...)
	}
	c.agent("", atAnyPort)
	for _, name := range []string{"fills", "more"} {
		if code, out, said := c.does("run", c.job("default", name, 4)); code != 0 {
			t.Fatal(code, out, said)
		}
	}
	waits := make(chan struct{})
	go func() {
		c.until("the job waits", func() bool { _, out, _ := c.does("queue"); return strings.Contains(out, "train") })
		close(waits)
	}()
	const stays = "Interrupted. The job stays registered: see nomad-pal explain train\n"
	interrupted(stays, waits, "run", c.job("default", "train", 4))
	for len(reached) > 0 {
		<-reached
	}
	interrupted(stays, reached, "run", "-pal-address="+hangs.URL, c.job("default", "train", 4)) // before the agent answers
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// full accepts no bytes, like a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// If a command cannot write its output, that is an error, with the command's exit code for
// errors.
func TestUnwrittenAnswer(t *testing.T) {
	c := newCluster(t)
	c.agent("", atAnyPort)
	job := c.job("default", "train", 1)
	for _, x := range []struct {
		args []string
		want int
	}{{[]string{"status"}, 1}, {[]string{"gpus", "-json"}, 1}, {[]string{"version"}, 1}, {[]string{"-help"}, 1}, {[]string{"plan", job}, 255}} {
		var err bytes.Buffer
		args := x.args
		if len(args) > 0 && args[0] != "version" && args[0] != "-help" {
			args = append([]string{args[0], "-address=" + c.url}, args[1:]...)
		}
		code := run(t.Context(), args, streams{in: strings.NewReader(""), out: full{}, err: &err})
		if code != x.want || strings.Count(err.String(), "no space left on device") != 1 {
			t.Errorf("%v: exit code %d, want %d: %s", x.args, code, x.want, &err)
		}
	}
}

// If an address is invalid or another program's, the error says so, and not only what failed.
func TestWrongAddress(t *testing.T) {
	c := newCluster(t)
	agent := c.agent("", "http {\n  bind_port = 0\n}\n")
	for address, want := range map[string]string{
		"nonsense":       `"nonsense" of Nomad (NOMAD_ADDR) is not a URL; example: http://127.0.0.1:4646`,
		"127.0.0.1:4646": `"127.0.0.1:4646" of Nomad (NOMAD_ADDR) is not a URL; example: http://127.0.0.1:4646`,
		agent:            agent + " answers, but is not Nomad's HTTP API",
	} {
		if code, _, err := c.does("status", "-address="+address); code != 1 || !strings.Contains(err, want) || !strings.Contains(err, "NOMAD_ADDR") {
			t.Errorf("%s: %d %s", address, code, err)
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// palAgent is an agent with a configuration and an environment of its own.
type palAgent struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	conf string
	http *http.Client
}

// startPal starts `nomad-pal agent`. env is all that it gets of the
// environment. It ends with the test.
func (b *bed) startPal(t *testing.T, config string, env []string) *palAgent {
	t.Helper()
	dir := t.TempDir()
	a := &palAgent{t: t, log: filepath.Join(dir, "agent.log"), conf: filepath.Join(dir, "agent.hcl"), http: &http.Client{}}
	a.configure(config)
	log, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a.cmd = exec.Command(filepath.Join(b.bin, "nomad-pal"), "agent", "-config", a.conf, "-log-level", "debug")
	a.cmd.Env = env
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.stop()
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.text())
		}
	})
	return a
}

func (a *palAgent) configure(config string) {
	a.t.Helper()
	if err := os.WriteFile(a.conf, []byte(config), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

// stop ends the agent and waits for it.
func (a *palAgent) stop() {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		_ = a.cmd.Wait()
	}
}

func (a *palAgent) text() string {
	text, _ := os.ReadFile(a.log)
	return string(text)
}

// address is host:port of its HTTP API, the newest one; "" where it is not up.
func (a *palAgent) address() string {
	all := regexp.MustCompile(`HTTP API: address=(\S+)`).FindAllStringSubmatch(a.text(), -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// trust makes requests use TLS with this authority.
func (a *palAgent) trust(ca string) {
	a.t.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	a.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}
}

// ask sends a GET with a token and returns status and body.
func (a *palAgent) ask(path, token string) (int, string) {
	a.t.Helper()
	return a.send(http.MethodGet, path, token, "")
}

func (a *palAgent) send(method, path, token, body string) (int, string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 10*time.Second)
	defer cancel()
	scheme := "http"
	if a.http.Transport != nil {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s://%s%s", scheme, a.address(), path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if token != "" {
		req.Header.Set("X-Nomad-Token", token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// untilReady waits until the agent places, and commands know.
func (b *bed) untilReady(a *palAgent) {
	b.t.Helper()
	b.until("the agent is ready", func() string {
		if status, body := a.ask("/v1/health", ""); status != http.StatusOK || !strings.Contains(body, `"ready": true`) {
			return body
		}
		if _, body := a.ask("/v1/agent", ""); !strings.Contains(body, `"working": true`) {
			return "no heartbeat: " + body
		}
		return ""
	})
}

// palAs runs one of our commands with an environment of its own.
func (b *bed) palAs(env []string, args ...string) (string, int) {
	b.t.Helper()
	cmd := exec.Command(filepath.Join(b.bin, "nomad-pal"), args...)
	cmd.Env = env
	out, err := output(cmd)
	if err != nil && cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return out, cmd.ProcessState.ExitCode()
}

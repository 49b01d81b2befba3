// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// PlacerOptions describes how to run a placer. The zero value is `nomad-pal agent` with its
// defaults.
type PlacerOptions struct {
	// Binary is the program's name in Options.Bin; empty: nomad-pal.
	Binary string
	// Host is the name of the placer's host in a cluster with [Options.Apart]: an earlier placer's
	// host, or a new one, which StartPlacer creates.
	Host string
	// Config is the placer's configuration file, in HCL.
	Config string
	// Flags are added to `agent -config FILE`.
	Flags []string
	// Env has all environment variables of the placer; nil: those of this process and
	// [Cluster.Env].
	Env []string
}

// Placer is one process of `nomad-pal agent`. When the cluster ends, the process ends, too.
type Placer struct {
	// Dir holds agent.hcl and agent.log.
	Dir string
	// HTTP is the client for the placer's API.
	HTTP *http.Client

	tls bool // the placer's API uses TLS: see Trust
	run *running
}

// HostIP returns the address of a host of a cluster with [Options.Apart], and creates the host if
// it is new. In other clusters, every host has this machine's address.
func (c *Cluster) HostIP(name string) (string, error) { return c.network.host(name) }

// StartPlacer starts a placer and returns at once: see [Placer.Serves].
func (c *Cluster) StartPlacer(o PlacerOptions) (*Placer, error) {
	dir, err := os.MkdirTemp(c.Dir, "placer-")
	if err != nil {
		return nil, fmt.Errorf("making the placer's directory: %w", err)
	}
	p := &Placer{Dir: dir, HTTP: c.network.client(o.Host)}
	if err := os.WriteFile(p.config(), []byte(o.Config), 0o600); err != nil {
		return nil, err
	}
	if _, err := c.network.host(o.Host); err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Program(cmp.Or(o.Binary, "nomad-pal")), append([]string{"agent", "-config", p.config()}, o.Flags...)...)
	cmd.Env = append(os.Environ(), c.Env()...)
	if o.Env != nil {
		cmd.Env = append(o.Env, mark(c.Dir))
	}
	if p.run, err = c.spawn("the placer", o.Host, cmd, p.LogPath()); err != nil {
		return nil, err
	}
	c.placers = append(c.placers, p)
	return p, nil
}

func (p *Placer) config() string { return filepath.Join(p.Dir, "agent.hcl") }

// LogPath returns the path of the placer's log.
func (p *Placer) LogPath() string { return filepath.Join(p.Dir, "agent.log") }

// Log returns the placer's log so far.
func (p *Placer) Log() string { return readFrom(p.LogPath(), 0) }

// LogTail returns the last n lines of the log.
func (p *Placer) LogTail(n int) string { return tail(p.Log(), n) }

// PID returns the placer's process id, 0 if the placer has ended.
func (p *Placer) PID() int { return p.run.pid() }

// Signal sends the placer a signal.
func (p *Placer) Signal(sig syscall.Signal) error { return p.run.signal(sig) }

// Stop ends the placer as an operator does, and waits for its end. If the placer does not
// end, Stop kills it.
func (p *Placer) Stop() error {
	ctx, cancel := p.patient(context.Background())
	defer cancel()
	if err := p.run.end(ctx, syscall.SIGTERM); err != nil {
		return errors.Join(fmt.Errorf("it was killed: %w", err), p.Kill())
	}
	return nil
}

// patient returns a context that lasts as long as a placer may take to end.
func (p *Placer) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return patience.Context(ctx, 2*time.Minute)
}

// Kill ends the placer with SIGKILL and waits for its end.
func (p *Placer) Kill() error { return p.run.end(context.Background(), syscall.SIGKILL) }

// Wait waits until the placer ends by itself.
func (p *Placer) Wait(ctx context.Context) error { return p.run.wait(ctx) }

var listens = regexp.MustCompile(`HTTP API: address=(\S+)`)

// Address returns host:port of the placer's HTTP API, "" before the API listens.
func (p *Placer) Address() string {
	all := listens.FindAllStringSubmatch(p.Log(), -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// URL returns the URL of the placer's HTTP API, "" before the API listens.
func (p *Placer) URL() string {
	address := p.Address()
	switch {
	case address == "":
		return ""
	case p.tls:
		return "https://" + address
	}
	return "http://" + address
}

// Serves waits until the placer's HTTP API listens; it fails if the placer ends or stops logging.
func (p *Placer) Serves(ctx context.Context) error {
	ctx, cancel := p.patient(ctx)
	defer cancel()
	return Until(ctx, "the placer has an address", func(context.Context) (string, error) {
		switch {
		case p.Address() != "":
			return "", nil
		case p.PID() == 0:
			return "", Fatal(fmt.Errorf("it ended; the end of its log:\n%s", p.LogTail(15)))
		}
		return "its log names no address", nil
	})
}

// Trust makes requests use TLS, with the certificate authority in this file.
func (p *Placer) Trust(ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	p.tls = true
	p.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}}}
	return nil
}

// Request sends a request to the placer's HTTP API.
func (p *Placer) Request(ctx context.Context, method, path, token, body string) (status int, text string, err error) {
	return Request(ctx, p.HTTP, method, p.URL()+path, token, body)
}

// Request sends a request to an HTTP API of ours or Nomad's. It adds the token and the JSON body if
// they are not empty.
func Request(ctx context.Context, by *http.Client, method, url, token, body string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("X-Nomad-Token", token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := by.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// Program returns the path of one of our binaries, or of "nomad".
func (c *Cluster) Program(name string) string {
	if name == "nomad" {
		return c.options.Nomad
	}
	return filepath.Join(c.options.Bin, name)
}

// Command returns a command that runs one of our binaries, or "nomad", with all rights in the
// cluster.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Program(name), args...)
	if c.network != nil {
		cmd = exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", c.network.Namespace(c.asked().Name), c.Program(name)}, args...)...)
	}
	cmd.Env = append(os.Environ(), c.Env()...)
	return cmd
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// TestAdmission: jobs registered through the real Nomad Admission Control
// Proxy are held for the placer by our endpoint.
func TestAdmission(t *testing.T) {
	t.Parallel()
	binaries(t)
	proxy := buildProxy(t)
	b := newBed(t, placerScores[:2], cluster.Options{})
	agent := b.startPal(t, `
gang_ready_timeout = "2s"
default_class = "D"
http {
  bind_port = 0
}
admission {
  meta = {
    pal_class = "A"
  }
}
`, b.Env())
	b.untilReady(agent)
	through := b.startProxy(proxy, agent.Address())

	b.scene("batch with GPUs", func(t *testing.T, b *bed) {
		b.register(through, gang("held", 1, 2).hcl(), "")
		got := b.untilGPUs("held", 2)
		b.untilExplained("held", got)
		if info := b.info("held"); info.Meta["pal_class"] != "A" {
			t.Errorf("meta %v", info.Meta)
		}
		// Registered again, the job gets its gate again and keeps its GPUs.
		b.register(through, gang("held", 1, 2).hcl(), "")
		b.holds("the same GPUs", func() string {
			if now := strings.Join(b.gpusOf("held"), " "); now != strings.Join(got, " ") {
				return now
			}
			return ""
		})
		b.purge("held")
	})
	b.scene("left alone", func(t *testing.T, b *bed) {
		service := gang("serve", 1, 1)
		service.kind = "service"
		b.register(through, service.hcl(), "")
		b.untilGPUs("serve", 1)
		if info := b.info("serve"); len(info.Constraints) > 0 || info.Meta["pal_class"] != "" {
			t.Errorf("the service, which has no GPU, was changed: %v %v", info.Constraints, info.Meta)
		}
		b.purge("serve")
	})
	b.scene("refused", func(t *testing.T, b *bed) {
		b.register(through, parameterized("pay", "required").hcl(), "which Nomad would discard")
		bad := gang("bad", 1, 1)
		bad.meta = `pal_class = "Z"`
		b.register(through, bad.hcl(), `pal_class = "Z"`)
		if _, _, err := b.API().Jobs().Info("pay", nil); err == nil {
			t.Error("the refused job was registered")
		}
	})
}

// buildProxy builds the proxy from its module, or uses NACP_BIN.
func buildProxy(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("NACP_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "nacp")
	out, err := exec.Command("go", "build", "-C", "nacp", "-o", path, "github.com/mxab/nacp/cmd/nacp").CombinedOutput()
	if err != nil {
		t.Skipf("the proxy cannot be built here (%v), and NACP_BIN names none:\n%s", err, out)
	}
	return path
}

// freeAddress is a loopback address at which nobody listens now.
func (b *bed) freeAddress() string {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startProxy starts the proxy in front of the cluster and returns a client
// that goes through it.
func (b *bed) startProxy(binary, agent string) *api.Client {
	b.t.Helper()
	address := b.freeAddress()
	host, port, _ := strings.Cut(address, ":")
	config := fmt.Sprintf(`
bind = %q
port = %s

nomad {
  address = %q
}

mutator "json_patch_webhook" "nomad-pal" {
  webhook {
    endpoint = "http://%s/v1/admission"
    method   = "POST"
  }
}

validator "webhook" "nomad-pal" {
  webhook {
    endpoint = "http://%s/v1/admission"
    method   = "POST"
  }
}
`, host, port, b.Servers()[0].HTTPAddr(), agent, agent)
	path := filepath.Join(b.dir, "nacp.hcl")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		b.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(b.dir, "nacp.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(binary, "-config", path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	log.Close()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if b.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.t.Logf("log of the proxy:\n%s", text)
		}
	})
	client, err := api.NewClient(&api.Config{Address: "http://" + address})
	if err != nil {
		b.t.Fatal(err)
	}
	b.untilServes("http://" + address + "/v1/status/leader")
	return client
}

// untilServes waits until a URL answers with status 200.
func (b *bed) untilServes(url string) {
	b.t.Helper()
	b.until(url+" answers", func() string {
		ctx, cancel := patience.Context(b.t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err.Error()
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
}

// register registers a job through a client, as `nomad job run` does. refused
// is part of the expected error, "" if none.
func (b *bed) register(client *api.Client, hcl, refused string) {
	b.t.Helper()
	job, err := jobspec2.Parse("job.hcl", strings.NewReader(hcl))
	if err != nil {
		b.t.Fatal(err)
	}
	_, _, err = client.Jobs().Register(job, nil)
	switch {
	case refused == "" && err != nil:
		b.t.Fatal(err)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		b.t.Errorf("registering %q: got %v, want %q", *job.ID, err, refused)
	}
}

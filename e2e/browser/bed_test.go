// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/patience"
	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

const (
	gpusPerNode  = 8
	nodesPerRack = 32
)

// measuredNode is the n-th node. The speed of its GPUs varies as on real ones: one in 64
// is an outlier for class B, and one in 500 is unhealthy. The first GPU of node 1 stayed below its
// power limit.
func measuredNode(n int) *api.Node {
	node := nomadtest.GPUNode(n, gpusPerNode)
	node.Name = fmt.Sprintf("gpu-%05d", n)
	node.Meta["rack"] = fmt.Sprintf("rack-%03d", n/nodesPerRack)
	d := node.NodeResources.Devices[0]
	var ms []attr.Measurement
	indexes := map[string]int{}
	for k, in := range d.Instances {
		i := n*gpusPerNode + k
		in.ID = gpuID(n, k)
		indexes[in.ID] = k
		if i%500 == 99 {
			in.Healthy, in.HealthDescription = false, "XID 79"
		}
		m := attr.Measurement{GPU: in.ID, Times: map[pal.AppClass]float64{}}
		for c, class := range pal.AppClasses() {
			m.Times[class] = 1 + float64(i*(2*c+7)%97)/1000*float64(4-c)
		}
		if i%64 == 21 {
			m.Times[pal.ClassB] = 2
		}
		ms = append(ms, m)
	}
	text := attr.FormatMeasurements(ms)
	numbers := attr.FormatIndexes(indexes)
	d.Attributes[attr.Raw], d.Attributes[attr.Indexes] = &api.Attribute{StringVal: &text}, &api.Attribute{StringVal: &numbers}
	if n == 1 {
		accounts := attr.FormatAccounts(map[string]attr.Account{gpuID(n, 0): {Uncapped: true}})
		d.Attributes[attr.Measuring] = &api.Attribute{StringVal: &accounts}
	}
	return node
}

// without skips the test because something that it needs is missing. In CI it
// fails the test instead.
func without(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("BROWSER_REQUIRED") != "" {
		t.Fatal(what)
	}
	t.Skip("skipped: " + what + " (see make browser)")
}

// world is an agent process (nomad-pal agent), connected to a simulated Nomad.
type world struct {
	nomad *nomadtest.Server
	url   string // of the agent
	pid   int
	stop  func() // stops the agent
}

// start starts both. With tokens, the agent gets one of its own.
func start(t *testing.T, nodes int, tokens map[string]nomadtest.Token) *world {
	t.Helper()
	return startWith(t, nodes, tokens, func(string) {})
}

// startWith is like start, but fill writes the agent's history first.
func startWith(t *testing.T, nodes int, tokens map[string]nomadtest.Token, fill func(file string)) *world {
	t.Helper()
	bin := os.Getenv("E2E_BIN")
	if bin == "" {
		without(t, "E2E_BIN is not set to the folder of our binaries")
	}
	w := &world{nomad: nomadtest.New(nomadtest.Options{Seed: 1})}
	t.Cleanup(w.nomad.Close)
	for n := range nodes {
		w.nomad.AddNode(measuredNode(n))
	}
	if tokens != nil {
		tokens["agent"] = nomadtest.Token{Management: true}
		w.nomad.SetTokens(tokens)
	}
	server := httptest.NewServer(w.nomad)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	file, history := filepath.Join(t.TempDir(), "agent.hcl"), filepath.Join(t.TempDir(), "history.db")
	fill(history)
	config := fmt.Sprintf("nomad {\n  address = %q\n  token = \"agent\"\n}\nhttp {\n  bind_port = 0\n}\nhistory {\n  database = %q\n}\n", server.URL, history)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "nomad-pal"), "agent", "-config", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	log := &output{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.stop = sync.OnceFunc(func() { cancel(); _ = cmd.Wait() })
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			text := log.String()
			t.Logf("the last of the agent's log:\n%s", text[max(0, len(text)-4000):])
		}
	})
	w.pid = cmd.Process.Pid
	found := regexp.MustCompile(`HTTP API: address=(\S+)`)
	until(t, "the agent listens", func() bool {
		m := found.FindStringSubmatch(log.String())
		if m != nil {
			w.url = "http://" + m[1]
		}
		return m != nil
	})
	until(t, "the agent is ready", func() bool {
		r, err := http.Get(w.url + "/v1/health")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return w
}

func (w *world) submit(t *testing.T, gangs ...bed.Gang) {
	t.Helper()
	c, err := api.NewClient(w.nomad.Config("author", ""))
	if err != nil {
		t.Fatal(err)
	}
	author := &api.WriteOptions{AuthToken: "agent"}
	for _, g := range gangs {
		if _, _, err := c.Jobs().Register(g.Job(), author); err != nil {
			t.Fatal(err)
		}
	}
}

// output keeps what a process prints.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// until polls until done returns true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	patience.Eventually(t, what, done)
}

func gpuID(n, k int) string {
	return fmt.Sprintf("GPU-%05x-%d-4a1c-9e77-c0ffee%06x", n, k, n*gpusPerNode+k)
}

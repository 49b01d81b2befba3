// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/nomad-pal/nomad-pal/internal/patience"
)

// Cluster is a running Nomad cluster. One goroutine at a time may start, stop or add agents.
type Cluster struct {
	// Dir is the cluster's own directory, which Close removes.
	Dir string
	// Token is the management token of a cluster with ACLs, empty without ACLs.
	Token string

	options Options
	tls     *certificates // nil if there is no TLS
	guard   *guard
	network *Network     // nil unless the cluster is Apart
	front   atomic.Int32 // index of the server to ask
	servers []*Agent
	clients []*Agent
	placers []*Placer
	reapers sync.WaitGroup

	closing sync.Once
	closed  error
}

// Start starts a cluster and returns when the servers have a leader and every client's node is
// ready. If Start fails or ctx ends first, Start removes everything that it started. After Start
// has returned, ctx has no effect, so call Close.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(options.Dir, "pal-")
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // the mount table has real paths
		return nil, err
	}
	c := &Cluster{Dir: dir, options: options}
	if c.guard, err = startGuard(dir, options.KeepDir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if options.Apart {
		if c.network, err = newNetwork(dir, options.Seed); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if c.options.TLS {
		var err error
		if c.tls, err = makeCertificates(c.options.Nomad, c.Dir); err != nil {
			return fmt.Errorf("making certificates: %w", err)
		}
	}
	if err := c.startServers(ctx); err != nil {
		return err
	}
	if c.options.ACL {
		if err := c.bootstrapACL(ctx); err != nil {
			return fmt.Errorf("bootstrapping ACL: %w", err)
		}
	}
	return c.AddClients(ctx, c.options.Clients...)
}

// startServers starts the servers. Several servers must know each other's ports, so startServers
// chooses all ports first. A single server can choose other ports if another program takes its
// ports.
func (c *Cluster) startServers(ctx context.Context) error {
	c.options.Progress(fmt.Sprintf("starting %d Nomad server(s)", c.options.Servers))
	for i := range c.options.Servers {
		a, err := c.newAgent(fmt.Sprintf("s%d", i), nil)
		if err != nil {
			return err
		}
		if err := a.renumber(); err != nil {
			return err
		}
		c.servers = append(c.servers, a)
	}
	alone := len(c.servers) == 1
	for _, a := range c.servers {
		if err := a.configure(c); err != nil {
			return err
		}
		if err := a.launch(ctx, alone); err != nil {
			return err
		}
	}
	for _, a := range c.servers {
		if err := a.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) bootstrapACL(ctx context.Context) error {
	return Until(ctx, "access control is set up", func(ctx context.Context) (string, error) {
		token, _, err := c.API().ACLTokens().Bootstrap((&api.WriteOptions{}).WithContext(ctx))
		if err != nil {
			return "", err
		}
		c.Token = token.SecretID
		for _, a := range c.servers {
			a.api.SetSecretID(c.Token)
		}
		return "", nil
	})
}

// AddClients starts more clients, a few at a time, and returns when all their nodes are ready.
func (c *Cluster) AddClients(ctx context.Context, clients ...Client) error {
	clients, err := completeClients(clients, len(c.clients))
	if err != nil || len(clients) == 0 {
		return err
	}
	agents := make([]*Agent, len(clients))
	for i := range clients {
		if agents[i], err = c.newAgent(clients[i].Name, &clients[i]); err != nil {
			return err
		}
	}
	c.clients = append(c.clients, agents...)
	return c.startAll(ctx, agents)
}

// startAll launches agents in parallel and stops at the first error.
func (c *Cluster) startAll(ctx context.Context, agents []*Agent) error {
	starting, ctx := errgroup.WithContext(ctx)
	starting.SetLimit(runtime.NumCPU())
	var done atomic.Int32
	for _, a := range agents {
		starting.Go(func() error {
			if err := a.launch(ctx, true); err != nil {
				return err
			}
			if err := a.ready(ctx); err != nil {
				return err
			}
			c.options.Progress(fmt.Sprintf("client %s is ready (%d of %d)", a.Name, done.Add(1), len(agents)))
			return nil
		})
	}
	return starting.Wait()
}

func (c *Cluster) newAgent(name string, client *Client) (*Agent, error) {
	a := &Agent{Name: name, Dir: filepath.Join(c.Dir, name), cluster: c, client: client}
	if err := os.Mkdir(a.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of %s: %w", name, err)
	}
	var err error
	if a.ip, err = c.network.host(name); err != nil {
		return nil, err
	}
	if client != nil && client.Inventory != "" {
		return a, a.emulate()
	}
	if client == nil && c.options.ServerDisk > 0 {
		return a, a.mountDisk(c.options.ServerDisk)
	}
	return a, nil
}

// ready waits until a server follows a leader and has the root key, or until a client's node is
// ready with its emulated GPUs.
func (a *Agent) ready(ctx context.Context) error {
	if a.client == nil {
		if err := Until(ctx, a.Name+" has a leader", a.hasLeader); err != nil {
			return err
		}
		return Until(ctx, a.Name+" has the root key", a.hasKey)
	}
	return Until(ctx, "node "+a.Name+" is ready", a.nodeReady)
}

// nodeReady is a condition for [Until]: the servers regard the node as ready. A new client sends
// its first heartbeat after a random time of up to 10 s (client.go, initialHeartbeatStagger), but
// at once when one of its RPCs succeeds (rpc.go, fireRpcRetryWatcher). So nodeReady makes the
// client forward a harmless request.
func (a *Agent) nodeReady(ctx context.Context) (string, error) {
	if !a.current().alive() {
		return "", Fatal(fmt.Errorf("%s ended; the end of its log:\n%s", a.Name, a.LogTail(15)))
	}
	node, err := a.cluster.node(ctx, a.Name)
	if err != nil || node == nil {
		return "not registered", err
	}
	if node.Status == api.NodeStatusReady {
		if a.client.Inventory == "" {
			return "", nil
		}
		return a.hasGPUs(ctx, node.ID)
	}
	_, err = a.hasLeader(ctx)
	return "status " + node.Status, err
}

func (a *Agent) hasLeader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var leader string
	_, err := a.api.Raw().Query("/v1/status/leader", &leader, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || leader == "" {
		return "no leader", err
	}
	return "", nil
}

// hasKey is a condition for [Until]: the leader has made the root key, and this server can read the
// key. Without the key, nobody can write Variables, and clients cannot register ("keyring has not
// been initialized yet") and retry only after 15 to 30 s.
func (a *Agent) hasKey(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var set struct{ Keys []struct{} }
	_, err := a.api.Raw().Query("/.well-known/jwks.json", &set, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || len(set.Keys) == 0 {
		return "no key", err
	}
	return "", nil
}

// node returns the servers' entry for the node of this name, or nil. A client that was reinstalled
// has two entries. For such a client, node returns the newer entry.
func (c *Cluster) node(ctx context.Context, name string) (*api.NodeListStub, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes, _, err := c.API().Nodes().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var newest *api.NodeListStub
	for _, n := range nodes {
		if n.Name == name && (newest == nil || n.CreateIndex > newest.CreateIndex) {
			newest = n
		}
	}
	return newest, nil
}

// NodeID returns the node id of the client of this name, as soon as a server answers.
func (c *Cluster) NodeID(ctx context.Context, name string) (string, error) {
	var id string
	ctx, cancel := patience.Context(ctx, patience.Long)
	defer cancel()
	err := Until(ctx, "the servers answer", func(ctx context.Context) (string, error) {
		n, err := c.node(ctx, name)
		if err == nil && n == nil {
			err = Fatal(fmt.Errorf("node %q is not registered", name))
		}
		if err == nil {
			id = n.ID
		}
		return "", err
	})
	return id, err
}

// Servers returns the server agents, s0 first.
func (c *Cluster) Servers() []*Agent { return c.servers }

// Clients returns the client agents, in the order in which they were added.
func (c *Cluster) Clients() []*Agent { return c.clients }

// Placers returns all placers that were started, in order.
func (c *Cluster) Placers() []*Placer { return c.placers }

// API returns a client for the HTTP API of the first server, or of the server that [Cluster.Ask]
// chose.
func (c *Cluster) API() *api.Client { return c.asked().api }

func (c *Cluster) asked() *Agent { return c.servers[c.front.Load()] }

// Ask makes API, Env and Command use server k, because other servers may be cut off.
func (c *Cluster) Ask(k int) { c.front.Store(int32(k)) }

// Network returns the network of a cluster with [Options.Apart], nil for other clusters.
func (c *Cluster) Network() *Network { return c.network }

func (c *Cluster) newAPI(address, host string) (*api.Client, error) {
	config := &api.Config{Address: address, SecretID: c.Token}
	if c.network != nil {
		config.HttpClient = c.network.client(host)
	}
	if c.tls != nil {
		config.TLSConfig = c.tls.apiConfig()
	}
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("API client for %s: %w", address, err)
	}
	return client, nil
}

// Env returns the environment variables with which Nomad's CLI and ours reach this cluster with all
// rights. A process with these variables ends with the cluster, because they include the mark by
// which Close finds processes.
func (c *Cluster) Env() []string {
	env := []string{mark(c.Dir), "NOMAD_ADDR=" + c.asked().HTTPAddr()}
	if c.Token != "" {
		env = append(env, "NOMAD_TOKEN="+c.Token)
	}
	if c.tls != nil {
		env = append(env, c.tls.env()...)
	}
	return env
}

// environment returns an agent's environment variables, without variables of the owner that could
// change what Nomad does. The mark among the variables lets the guard find all descendants of the
// agent (raw_exec tasks inherit the mark).
func (c *Cluster) environment() []string {
	env := []string{mark(c.Dir), "TMPDIR=" + c.Dir, "HOME=" + c.Dir}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "TMPDIR", name == "HOME", name == markName:
		case strings.HasPrefix(name, "NOMAD_"), strings.HasPrefix(name, "CONSUL_"), strings.HasPrefix(name, "VAULT_"):
		default:
			env = append(env, kv)
		}
	}
	return env
}

// Close ends every process of the cluster, tasks included, and removes its files. Close may be
// called twice, and from another goroutine; the second call returns the result of the first.
func (c *Cluster) Close() error {
	c.closing.Do(func() {
		c.options.Progress("stopping the cluster")
		if c.closed = c.guard.clean(); c.closed == nil { // if the cleanup failed, something may still run
			c.reapers.Wait()
		}
		for _, a := range slices.Concat(c.servers, c.clients) {
			if a.api != nil {
				a.api.Close()
			}
			c.closed = errors.Join(c.closed, a.ports.close())
		}
		c.closed = errors.Join(c.closed, c.network.close())
	})
	return c.closed
}

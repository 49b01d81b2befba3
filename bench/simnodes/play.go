// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/helper/pool"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"
)

const (
	// registrations is how many nodes register at the same time. More registrations would only
	// queue in the server.
	registrations = 64
	// nodesPerConn limits the nodes per connection. All nodes can query at once, and a server's
	// yamux accepts 256 new streams at a time from one connection and resets the others.
	nodesPerConn = 128
)

// wire is a set of connections to the server, shared by the nodes.
type wire struct {
	addr  net.Addr
	pools []*pool.ConnPool
}

// region is Nomad's default region.
const region = "global"

func dial(server string, nodes int) (*wire, error) {
	addr, err := net.ResolveTCPAddr("tcp", server)
	if err != nil {
		return nil, fmt.Errorf("address of the server %q: %w", server, err)
	}
	w := &wire{addr: addr}
	conf := yamux.DefaultConfig()
	conf.StreamOpenTimeout = 0
	conf.ConnectionWriteTimeout = time.Minute
	for range (nodes + nodesPerConn - 1) / nodesPerConn {
		quiet := hclog.New(&hclog.LoggerOptions{Output: io.Discard})
		w.pools = append(w.pools, pool.NewPool(quiet, time.Hour, 256, nil, conf))
	}
	return w, nil
}

// call makes an RPC on the i-th node's connection.
func (w *wire) call(i int, method string, args, reply any) error {
	return w.pools[i%len(w.pools)].RPC(region, w.addr, method, args, reply)
}

func (w *wire) close() {
	for _, p := range w.pools {
		_ = p.Shutdown()
	}
}

// play registers the nodes and plays their clients until ctx ends.
func play(ctx context.Context, server string, nodes []*structs.Node, stdout io.Writer) error {
	w, err := dial(server, len(nodes))
	if err != nil {
		return err
	}
	var counts counts
	reporter := startReporter(stdout, &counts, len(nodes))
	players, err := register(ctx, w, nodes, &counts)
	if err != nil {
		reporter.stop("failed")
		w.close()
		return err
	}
	reporter.phase("playing")
	var all sync.WaitGroup
	for _, p := range players {
		all.Go(func() { p.heartbeat(ctx) })
		all.Go(func() { p.watch(ctx) })
	}
	<-ctx.Done()
	w.close() // ends the blocking queries
	all.Wait()
	reporter.stop("ended")
	return nil
}

// register registers all nodes and returns a player for each. The players do not keep their nodes,
// because 10,000 nodes need much memory.
func register(ctx context.Context, w *wire, nodes []*structs.Node, counts *counts) ([]*player, error) {
	players := make([]*player, len(nodes))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(registrations)
	for i := range nodes {
		all.Go(func() (err error) {
			if players[i], err = patiently(ctx, func() (*player, error) { return newPlayer(w, i, nodes[i], counts) }); err != nil {
				return fmt.Errorf("registering node %q: %w", nodes[i].Name, err)
			}
			nodes[i] = nil
			return ctx.Err()
		})
	}
	return players, all.Wait()
}

// patiently retries for up to ten seconds. A server that has just started refuses nodes until it
// has a leader and a root key.
func patiently(ctx context.Context, try func() (*player, error)) (*player, error) {
	const tries = 40
	for n := 1; ; n++ {
		p, err := try()
		if err == nil || n == tries || !sleep(ctx, 250*time.Millisecond) {
			return p, err
		}
	}
}

func newPlayer(w *wire, i int, n *structs.Node, counts *counts) (*player, error) {
	req := structs.NodeRegisterRequest{Node: n, WriteRequest: structs.WriteRequest{Region: region}}
	var resp structs.NodeUpdateResponse
	if err := w.call(i, "Node.Register", &req, &resp); err != nil {
		return nil, err
	}
	p := &player{wire: w, index: i, id: n.ID, secret: n.SecretID, counts: counts, ttl: resp.HeartbeatTTL, tasks: map[string]*playedAlloc{}}
	// If an earlier simnodes process registered the node, the node may be down. Only a heartbeat
	// makes the node ready.
	if err := p.beat(); err != nil {
		return nil, err
	}
	counts.registered.Add(1)
	return p, nil
}

// beat reports the node as ready, and records the server's time limit for the next heartbeat.
func (p *player) beat() error {
	req := structs.NodeUpdateStatusRequest{
		NodeID: p.id, Status: structs.NodeStatusReady,
		WriteRequest: structs.WriteRequest{Region: region, AuthToken: p.secret},
	}
	var resp structs.NodeUpdateResponse
	if err := p.wire.call(p.index, "Node.UpdateStatus", &req, &resp); err != nil {
		return err
	}
	if resp.HeartbeatTTL <= 0 {
		return errors.New("the server's answer has no heartbeat TTL")
	}
	p.ttl = resp.HeartbeatTTL
	p.counts.heartbeats.Add(1)
	return nil
}

// heartbeat sends heartbeats until ctx ends, well before the server's time limit.
func (p *player) heartbeat(ctx context.Context) {
	for sleep(ctx, p.ttl*2/3) {
		for {
			err := p.beat()
			if err == nil {
				break
			}
			p.counts.failed(ctx, err)
			if !sleep(ctx, time.Second) {
				return
			}
		}
	}
}

// sleep waits for d and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
)

// An agent keeps its ports while it is down, because other agents know it by its ports. So no other
// program on the machine may take these ports. These ports are below Nomad's dynamic ports (20000
// to 32000), and below the ports that Linux gives to outgoing connections (32768 to 60999,
// net.ipv4.ip_local_port_range). Ports of such connections stay in use for a minute after the
// connections' end.
const firstPort, lastPort = 10000, 19999

// ports are the ports of one agent. Clients use only http, but Nomad requires all three.
type ports struct {
	http, rpc, serf int
	kept            []io.Closer
}

// freePorts reserves ports that no program uses now, until the reservations are closed. A program
// outside our clusters can still take a port before the agent does. The agent then logs this, and
// Agent.launch tries again with other ports.
func freePorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.http, &p.rpc, &p.serf} {
		n, kept, err := freePort(firstPort, lastPort)
		if err != nil {
			return ports{}, errors.Join(err, p.close())
		}
		*port, p.kept = n, append(p.kept, kept)
	}
	return p, nil
}

func (p *ports) close() error {
	var errs []error
	for _, k := range p.kept {
		errs = append(errs, k.Close())
	}
	p.kept = nil
	return errors.Join(errs...)
}

func freePort(from, to int) (int, io.Closer, error) {
	var last error
	for _, i := range rand.Perm(to - from + 1) {
		port := from + i
		kept, err := keepPort(port)
		if err == nil {
			return port, kept, nil
		}
		last = err
	}
	return 0, nil, fmt.Errorf("finding a free port from %d to %d: %w", from, to, last)
}

// keepPort reserves a port for this process. Other clusters do not use the port while this process
// has an abstract Unix socket open whose name contains the port's number. An abstract socket has no
// file and ends with the process.
func keepPort(port int) (io.Closer, error) {
	kept, err := net.Listen("unix", fmt.Sprintf("@nomad-pal-port-%d", port))
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	t, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	u, err := net.ListenPacket("udp4", address) // Nomad's gossip uses UDP, too
	if err != nil {
		return nil, errors.Join(err, t.Close(), kept.Close())
	}
	if err := errors.Join(u.Close(), t.Close()); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	return kept, nil
}

// portTaken reports whether an agent's log says that another program has taken its
// port.
func portTaken(log string) bool { return strings.Contains(log, "address already in use") }

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"net"
	"strings"
)

// ports are an agent's; clients use only http, but Nomad wants all three set.
type ports struct{ http, rpc, serf int }

// freePorts asks the system for ports that nobody uses now. Somebody else may take one before the agent does, which
// the agent then says in its log: Agent.launch tries again with others.
func freePorts() (ports, error) {
	var last error
	for range 10 {
		p, err := tryPorts()
		if err == nil {
			return p, nil
		}
		last = err
	}
	return ports{}, fmt.Errorf("ask for free ports: %w", last)
}

func tryPorts() (ports, error) {
	var p ports
	for _, port := range []*int{&p.http, &p.rpc, &p.serf} {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return p, err
		}
		defer l.Close() // at the end, so that the three differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	// Gossip needs its number for UDP as well.
	u, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", p.serf))
	if err != nil {
		return p, err
	}
	return p, u.Close()
}

// portTaken says whether an agent's log tells that it lost the race for a port.
func portTaken(log string) bool { return strings.Contains(log, "address already in use") }

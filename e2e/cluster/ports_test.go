// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"fmt"
	"os"
	"testing"
)

// A killed server once failed to restart because an outgoing connection of another program had got
// its port.
func TestPortsAreNotThoseOfOutgoingConnections(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(data), &first, &last); err != nil {
		t.Fatal(err)
	}
	if firstPort <= last && first <= lastPort {
		t.Skipf("this machine gives ports %d to %d to outgoing connections", first, last)
	}
	for range 20 {
		p, err := freePorts()
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for _, port := range []int{p.http, p.rpc, p.serf} {
			if first <= port && port <= last {
				t.Errorf("port %d is one of those for outgoing connections, %d to %d", port, first, last)
			}
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
)

// NeverLost is a heartbeat TTL that is long enough for any restart of a client, even on a slow
// machine.
const NeverLost = time.Hour

// Options describes the cluster to start. The zero value is one server without clients.
type Options struct {
	// Nomad is the path of the nomad binary; empty: the path that FindNomad returns.
	Nomad string
	// Bin is the folder of our binaries, which only emulated GPUs and placers need.
	Bin string
	// Dir is the directory in which the cluster creates its own directory; empty: os.TempDir().
	// Keep the path short, because Nomad creates Unix sockets deep below it, and a socket's path is
	// limited to 108 bytes.
	Dir string
	// Servers is the number of servers: 1 (also if 0), 3 or 5.
	Servers int
	// Clients are started after the servers have a leader, in this order, a few at a time.
	Clients []Client
	// ACL switches access control on. Cluster.Token is then the bootstrap management token.
	ACL bool
	// TLS makes HTTP and RPC mutually authenticated with certificates made for this cluster
	// (Cluster.TLS).
	TLS bool
	// HeartbeatTTL is the time between two heartbeats of a client. A client that sends no
	// heartbeats is down after twice this time. 0 means 10 s, so that an overloaded machine loses
	// no nodes. Use 1 s in tests of lost nodes, and [NeverLost] if tasks must survive a client's
	// restart.
	HeartbeatTTL time.Duration

	// OwnMounts gives each agent its own mount namespace, if the owner is root. For each
	// allocation, Nomad mounts two directories and reads the whole mount table. With many clients
	// on one machine, these reads are half of the load. A client with its own namespace loses its
	// mounts when it is restarted.
	OwnMounts bool
	// Apart makes each agent and each placer a host of a [Network], with its own network namespace.
	// Apart needs root and Linux's `ip`, and cannot be combined with TLS. Seed determines which
	// packets are lost.
	Apart bool
	Seed  uint64
	// ServerDisk is the size in bytes of a separate disk for each server's data; 0: no separate
	// disk. It needs root.
	ServerDisk int64
	// ServerHCL is appended to each server's agent configuration.
	ServerHCL string
	// KeepDir keeps configuration, data and logs after Close.
	KeepDir bool
	// Progress receives one line for each step; it may be nil. Several goroutines may call it.
	Progress func(line string)
}

// Client describes one client agent.
type Client struct {
	// Name is the node name; empty means c00, c01 and so on.
	Name string
	// Datacenter is the client's datacenter; empty: dc1.
	Datacenter string
	// NodePool is the client's node pool; empty: Nomad's default pool. Nomad creates a pool that
	// does not exist.
	NodePool string
	// NodeClass is Nomad's node_class.
	NodeClass string
	// Meta is the node's static meta.
	Meta map[string]string
	// Inventory is the inventory of emulated GPUs, in HCL, for nomad-device-pal of Options.Bin;
	// empty: no GPUs.
	Inventory string
	// Profile is nomad-device-pal's profile file, in JSON; empty: none.
	Profile string
	// PluginHCL is added to nomad-device-pal's configuration.
	PluginHCL string
	// Plugins are further external plugins that this client loads.
	Plugins []Plugin
	// CPUMHz and MemoryMB are the resources that the node reports; 0 means 64,000 and 65,536.
	// Nothing enforces them.
	CPUMHz, MemoryMB int
	// HCL is appended to this client's agent configuration.
	HCL string
}

// Plugin is an external Nomad plugin of a client.
type Plugin struct {
	// Path is the executable.
	Path string
	// Name is the label of the plugin block; empty: the executable's file name.
	Name string
	// Config is the HCL inside the plugin's config block.
	Config string
}

func (p Plugin) name() string { return cmp.Or(p.Name, filepath.Base(p.Path)) }

// withDefaults checks o and returns a copy with all defaults filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Nomad == "" {
		path, err := FindNomad()
		if err != nil {
			return o, err
		}
		o.Nomad = path
	}
	if o.Bin != "" {
		bin, err := filepath.Abs(o.Bin)
		if err != nil {
			return o, err
		}
		o.Bin = bin
	}
	o.Servers, o.HeartbeatTTL = cmp.Or(o.Servers, 1), cmp.Or(o.HeartbeatTTL, 10*time.Second)
	if o.Servers < 0 || o.Servers%2 == 0 {
		return o, fmt.Errorf("%d servers: a cluster needs an odd number of servers", o.Servers)
	}
	if o.Apart && o.TLS {
		return o, errors.New("a cluster with the option Apart has no TLS, because requests to this cluster begin in other network namespaces")
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, nil
}

// completeClients fills in names and defaults of clients for a cluster that already has the given
// number of clients.
func completeClients(clients []Client, before int) ([]Client, error) {
	out := make([]Client, len(clients))
	for i, c := range clients {
		c.Name = cmp.Or(c.Name, fmt.Sprintf("c%02d", before+i))
		if c.Name != filepath.Base(c.Name) {
			return nil, fmt.Errorf("client name %q is not a directory name, but each client has a directory with its name", c.Name)
		}
		c.Datacenter, c.CPUMHz, c.MemoryMB = cmp.Or(c.Datacenter, "dc1"), cmp.Or(c.CPUMHz, 64_000), cmp.Or(c.MemoryMB, 65_536)
		out[i] = c
	}
	return out, nil
}

// ErrNoNomad is in FindNomad's error if there is no Nomad.
var ErrNoNomad = errors.New("no nomad binary: run `make nomad` and set NOMAD_BIN to the path it prints")

// FindNomad returns the path of the Nomad to run: $NOMAD_BIN, a nomad on PATH, or the newest in the
// cache of e2e/nomad/build.sh. It does not check the version; build.sh does.
func FindNomad() (string, error) {
	if path := os.Getenv("NOMAD_BIN"); path != "" {
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("nomad"); err == nil {
		return filepath.Abs(path)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (%v)", ErrNoNomad, err)
	}
	built, err := filepath.Glob(filepath.Join(cache, "nomad-pal", "nomad-*[0-9]"))
	if err != nil || len(built) == 0 {
		return "", ErrNoNomad
	}
	return slices.MaxFunc(built, byVersion), nil
}

// byVersion compares two paths that end with "nomad-" and a version, so that 1.11 is newer than
// 1.9.
func byVersion(a, b string) int {
	number := func(path string) *version.Version {
		v, err := version.NewVersion(strings.TrimPrefix(filepath.Base(path), "nomad-"))
		if err != nil {
			return version.Must(version.NewVersion("0"))
		}
		return v
	}
	return number(a).Compare(number(b))
}

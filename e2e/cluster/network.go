// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoNamespaces is in Start's error if the machine cannot run a cluster with [Options.Apart].
var ErrNoNamespaces = errors.New("network namespaces need root, `ip` (iproute2) and /dev/net/tun")

// Network connects the hosts of a cluster with [Options.Apart]. Each agent and each placer is a
// host, in its own network namespace. A host's only connection is a TUN device whose other end is
// this process. This process passes packets on to the host of their address, drops or delays
// packets according to the rules, and drops packets for unknown addresses. So no packet leaves the
// machine, no other program can interfere, and the network ends with this process. (Linux has netem
// for this purpose, but not in every kernel. Bridges and addresses on the machine itself would
// disturb other clusters.)
type Network struct {
	prefix string // prefix of the namespaces' names

	mu    sync.Mutex
	hosts []*host // host k has the address 10.99.0.(k+1)
	rules []*Rule
	rng   *rand.Rand // decides which packets are lost
}

// Rule drops or delays packets between hosts.
type Rule struct {
	// From and To are the names of hosts; empty means all.
	From, To []string
	// Cut drops all packets. Loss is the share of packets to drop.
	Cut  bool
	Loss float64
	// Delay is added to the time that a packet takes.
	Delay time.Duration
}

type host struct {
	name string
	wire *os.File // the other end of the host's TUN device

	mu    sync.Mutex
	later []late // delayed packets to this host, soonest first
	timer *time.Timer
}

type late struct {
	due    time.Time
	packet []byte
}

// mtu is large, so that this process has to handle few packets.
const mtu = 32 << 10

func newNetwork(dir string, seed uint64) (*Network, error) {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		return nil, ErrNoNamespaces
	}
	return &Network{prefix: filepath.Base(dir) + "-", rng: rand.New(rand.NewPCG(seed, 7))}, nil
}

// host returns the address of a host, and creates the host if it is new. On a nil network, every
// host has this machine's address.
func (n *Network) host(name string) (string, error) {
	if n == nil {
		return loopback, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	k := slices.IndexFunc(n.hosts, func(h *host) bool { return h.name == name })
	if k >= 0 {
		return address(k), nil
	}
	k = len(n.hosts)
	h := &host{name: name}
	if err := n.open(h, address(k)); err != nil {
		return "", fmt.Errorf("making the network namespace of %s: %w", name, err)
	}
	n.hosts = append(n.hosts, h)
	go n.pass(k, h)
	return address(k), nil
}

const loopback = "127.0.0.1"

func address(k int) string { return fmt.Sprintf("10.99.0.%d", k+1) }

// Namespace returns the name of a host's network namespace, for ip netns exec.
func (n *Network) Namespace(name string) string { return n.prefix + name }

// open creates a host's namespace and the device in the namespace.
func (n *Network) open(h *host, at string) error {
	ns := n.Namespace(h.name)
	if err := ip("netns", "add", ns); err != nil {
		return fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	err := n.within(h.name, func() (err error) {
		h.wire, err = openTUN("pal0")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoNamespaces, err)
	}
	return errors.Join(
		ip("-n", ns, "link", "set", "lo", "up"),
		ip("-n", ns, "addr", "add", at+"/24", "dev", "pal0"),
		ip("-n", ns, "link", "set", "pal0", "mtu", fmt.Sprint(mtu), "up"),
		ip("-n", ns, "route", "add", "default", "via", address(253)), // nobody has this address, but Nomad takes the device of the default route
	)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a TUN device: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// within runs a function on a thread in a host's namespace. The sockets and processes that the
// function creates stay in this namespace. The thread ends with the function.
func (n *Network) within(name string, do func() error) error {
	if n == nil {
		return do()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked, so that the thread ends with the goroutine
		ns, err := os.Open("/run/netns/" + n.Namespace(name))
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// client returns an HTTP client whose requests start on this host, so that no rule affects requests
// to the host itself.
func (n *Network) client(name string) *http.Client {
	if n == nil {
		return &http.Client{}
	}
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.within(name, func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 8 * time.Second}
}

// Add applies rules until remove is called.
func (n *Network) Add(rules ...Rule) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var added []*Rule
	for _, r := range rules {
		added = append(added, &r)
	}
	n.rules = append(n.rules, added...)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.rules = slices.DeleteFunc(n.rules, func(r *Rule) bool { return slices.Contains(added, r) })
	}
}

// pass passes on the packets that a host sends.
func (n *Network) pass(from int, h *host) {
	packet := make([]byte, 2*mtu)
	for {
		size, err := h.wire.Read(packet)
		if err != nil {
			return // closed
		}
		const header, destination = 20, 16
		p := packet[:size]
		if size < header || p[0]>>4 != 4 { // IPv6 neighbour discovery
			continue
		}
		if to, delay, passes := n.way(from, p[destination:header]); passes {
			to.send(slices.Clone(p), delay)
		}
	}
}

// way returns the host of an address, and how long a packet takes to reach the host. passes is
// false if the packet is dropped.
func (n *Network) way(from int, at []byte) (to *host, delay time.Duration, passes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := int(at[3]) - 1
	if at[0] != 10 || at[1] != 99 || at[2] != 0 || k < 0 || k >= len(n.hosts) {
		return nil, 0, false
	}
	to = n.hosts[k]
	for _, r := range n.rules {
		if !among(n.hosts[from].name, r.From) || !among(to.name, r.To) {
			continue
		}
		if r.Cut || n.rng.Float64() < r.Loss {
			return nil, 0, false
		}
		delay += r.Delay
	}
	return to, delay, true
}

func among(name string, names []string) bool { return len(names) == 0 || slices.Contains(names, name) }

// send delivers a packet, after a delay. The packet is lost if the host is ending.
func (h *host) send(packet []byte, delay time.Duration) {
	if delay == 0 {
		_, _ = h.wire.Write(packet)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := late{time.Now().Add(delay), packet}
	k, _ := slices.BinarySearchFunc(h.later, p, func(a, b late) int { return cmp.Or(a.due.Compare(b.due), -1) })
	h.later = slices.Insert(h.later, k, p)
	if k == 0 {
		h.wake()
	}
}

// wake sets the timer to the time of the first delayed packet.
func (h *host) wake() {
	if h.timer != nil {
		h.timer.Stop()
	}
	if len(h.later) > 0 {
		h.timer = time.AfterFunc(time.Until(h.later[0].due), h.arrive)
	}
}

func (h *host) arrive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.later) > 0 && !time.Now().Before(h.later[0].due) {
		_, _ = h.wire.Write(h.later[0].packet)
		h.later = h.later[1:]
	}
	h.wake()
}

// close closes the hosts' devices. The guard removes the namespaces.
func (n *Network) close() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.wire.Close())
	}
	return errors.Join(errs...)
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// wires makes a network with hosts a and b, and returns a function that sends a word from a to b
// and waits for its return.
func wires(t *testing.T) (*Network, func(patience time.Duration) error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pal-")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := startGuard(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newNetwork(dir, 1)
	if err == nil {
		_, err = n.host("a")
	}
	t.Cleanup(func() {
		if err := errors.Join(n.close(), guard.clean()); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob("/run/netns/" + filepath.Base(dir) + "-*"); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
	if errors.Is(err, ErrNoNamespaces) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n, echo(t, n)
}

func echo(t *testing.T, n *Network) func(time.Duration) error {
	t.Helper()
	at, err := n.host("b")
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := n.within("b", func() (err error) { l, err = net.Listen("tcp", at+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return func(patience time.Duration) error {
		var c net.Conn
		err := n.within("a", func() (err error) { c, err = net.DialTimeout("tcp", l.Addr().String(), patience); return err })
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience)) // fails on closed connections only
		fmt.Fprintln(c, "word")
		_, err = bufio.NewReader(c).ReadString('\n')
		return err
	}
}

const long = time.Minute

// A cut drops only packets in one direction, and the network works again once the rule is
// removed.
func TestNetworkCuts(t *testing.T) {
	t.Parallel()
	n, word := wires(t)
	for name, r := range map[string]Rule{
		"there": {From: []string{"a"}, To: []string{"b"}, Cut: true}, "back": {From: []string{"b"}, Cut: true}, "all lost": {To: []string{"a"}, Loss: 1},
	} {
		if err := word(long); err != nil {
			t.Fatalf("before %s: %v", name, err)
		}
		mend := n.Add(r)
		var e net.Error
		if err := word(300 * time.Millisecond); !errors.As(err, &e) || !e.Timeout() {
			t.Errorf("%s: %v, want a timeout", name, err)
		}
		mend()
	}
	defer n.Add(Rule{From: []string{"b"}, To: []string{"c"}, Cut: true}, Rule{Loss: 0.3})()
	if err := word(long); err != nil { // TCP retransmits
		t.Error(err)
	}
}

// A word takes two packets in each direction, including those of the connection setup.
func TestNetworkDelays(t *testing.T) {
	t.Parallel()
	n, word := wires(t)
	const each = 100 * time.Millisecond
	defer n.Add(Rule{From: []string{"a"}, Delay: each}, Rule{To: []string{"b"}, Delay: each})()
	began := time.Now()
	if err := word(long); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 4*each {
		t.Errorf("it took %v; the two packets from a to b take %v each", took, 2*each)
	}
}

// No packet leaves the network.
func TestNetworkIsClosed(t *testing.T) {
	t.Parallel()
	n, _ := wires(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, at := range []string{l.Addr().String(), "10.99.0.9:80", "192.0.2.1:80"} {
		err := n.within("a", func() error {
			c, err := net.DialTimeout("tcp", at, 300*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			t.Errorf("%s can be reached", at)
		}
	}
}

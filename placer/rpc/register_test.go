// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"strings"
	"sync"
	"testing"

	msgpackrpc "github.com/hashicorp/net-rpc-msgpackrpc/v2"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
	"github.com/nomad-pal/nomad-pal/placer/nomad"
	"github.com/nomad-pal/nomad-pal/placer/request"
)

// server is a small Nomad server with one job, which accepts registrations.
type server struct {
	address string
	job     map[string]any
	refuse  string // the answer to registrations
	token   string // in the last call
	written map[string]any
	failed  map[string]refusal // the answer to plans
}

// startServer serves connections until the test ends.
func startServer(t *testing.T, s *server) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	methods := rpc.NewServer()
	if err := methods.RegisterName("Job", &jobMethods{s}); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			kind := make([]byte, 1)
			if _, err := c.Read(kind); err != nil || kind[0] != kindNomad {
				c.Close()
				continue
			}
			methods.ServeCodec(msgpackrpc.NewCodecFromHandle(true, true, c, handle()))
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return s
}

// jobMethods are the server's methods, named like Nomad's.
type jobMethods struct{ s *server }

// JobArgs and JobReply are exported because net/rpc requires it.
type JobArgs struct {
	JobID          string
	Job            map[string]any
	EnforceIndex   bool
	JobModifyIndex uint64
	AuthToken      string
}

type JobReply struct {
	Job            map[string]any
	JobModifyIndex uint64
}

func (m *jobMethods) GetJob(args *JobArgs, reply *JobReply) error {
	m.s.token = args.AuthToken
	reply.Job = m.s.job
	return nil
}

func (m *jobMethods) Register(args *JobArgs, reply *JobReply) error {
	if m.s.refuse != "" {
		return errors.New(m.s.refuse)
	}
	if !args.EnforceIndex {
		return errors.New("not a check-and-set")
	}
	m.s.written, reply.JobModifyIndex = args.Job, args.JobModifyIndex+1
	return nil
}

// PlanReply is Nomad's answer to a plan, shortened.
type PlanReply struct{ FailedTGAllocs map[string]refusal }

func (m *jobMethods) Plan(args *JobArgs, reply *PlanReply) error {
	m.s.written = args.Job
	reply.FailedTGAllocs = m.s.failed
	return nil
}

// A dry run sends the job that would be registered, with its dispatch fields
// unchanged.
func TestPlan(t *testing.T) {
	s := startServer(t, &server{job: serverJob(t), failed: map[string]refusal{
		"g": {NodesEvaluated: 2, ConstraintFiltered: map[string]int{"missing host volume": 2}},
	}})
	s.job["JobModifyIndex"] = 7
	job, namespace, index := pinned(), "default", uint64(7)
	job.Namespace, job.JobModifyIndex = &namespace, &index
	resp, err := (&Servers{Addresses: []string{s.address}}).Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if m := resp.FailedTGAllocs["g"]; m == nil || request.Refusal(m) != "missing host volume (2 nodes)" {
		t.Errorf("refusals %+v", resp.FailedTGAllocs)
	}
	if s.written["Dispatched"] != true || s.written["Constraints"] != nil {
		t.Errorf("the planned job was %v", s.written)
	}
}

func TestRegister(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *server)
		want   string // part of the error, "" if none
	}{
		{"placed", func(*server) {}, ""},
		{"changed meanwhile", func(s *server) { s.job["JobModifyIndex"] = 8 }, nomad.ErrConflict.Error()},
		{"purged meanwhile", func(s *server) { s.job = nil }, nomad.ErrConflict.Error()},
		{"changed between read and write", func(s *server) {
			s.refuse = "Enforcing job modify index 7: job exists with conflicting job modify index: 8"
		}, nomad.ErrConflict.Error()},
		{"refused", func(s *server) { s.refuse = "Permission denied" }, `the capability "submit-job"`},
		{"payload", func(s *server) { s.job["Payload"] = "\x05\x10hello" }, cluster.ErrPayload.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{job: serverJob(t)}
			s.job["JobModifyIndex"] = 7
			c.change(s)
			startServer(t, s)
			job, namespace, region := pinned(), "default", "global"
			job.Namespace, job.Region = &namespace, &region
			// The first server is down.
			servers := &Servers{Addresses: []string{dead(t), s.address}, Token: "secret"}
			index, err := servers.Register(t.Context(), job, 7)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				if s.written != nil {
					t.Errorf("the job was written all the same: %v", s.written)
				}
				return
			}
			if err != nil || index != 8 || s.token != "secret" {
				t.Fatalf("index %d, token %q, error %v", index, s.token, err)
			}
			if s.written["ParentID"] != "train" || s.written["Dispatched"] != true || s.written["Payload"] != nil || s.written["Future"] == nil {
				t.Errorf("fields were lost: %v", s.written)
			}
		})
	}
}

// dead is an address at which nobody listens.
func dead(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestNobodyListens(t *testing.T) {
	job, namespace := pinned(), "default"
	job.Namespace = &namespace
	address := dead(t)
	_, err := (&Servers{Addresses: []string{address}}).Register(t.Context(), job, 7)
	want := fmt.Sprintf("connecting to the RPC port of Nomad server %q", address)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A server that does not answer delays the placer no longer than its context.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			b := make([]byte, 1)
			_, _ = c.Read(b)
			cancel()
			_, _ = c.Read(b) // until the other side closes
		}
	}()
	job, namespace := pinned(), "default"
	job.Namespace = &namespace
	if _, err := (&Servers{Addresses: []string{l.Addr().String()}}).Register(ctx, job, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

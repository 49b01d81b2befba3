// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package pal

import (
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestPlacement runs the stories in testdata/placement. A story defines a cluster, one line per
// device group:
//
//	cluster [rack=1.2] [datacenter=…] cluster=1.7
//	node n0 rack=r1 model=V100 scores=1.00,1.02 bins=0.9,0.9 numa=1,1 mem=4096
//	----
//
// then marks GPUs (busy, unhealthy, quarantined, free) and places gangs:
//
//	place class=A gpus=4 [each=2] [mem=…] [policy=pal] [max=node] [group=2x4] [replicas] [beside=(0,1)] [each-node=1]
//	----
//
// Scores and bins apply to every application class.
func TestPlacement(t *testing.T) {
	datadriven.Walk(t, "testdata/placement", func(t *testing.T, path string) {
		var c *Cluster
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				var err error
				if c, err = drawCluster(d); err != nil {
					return "error: " + err.Error()
				}
				return fmt.Sprintf("%d nodes, %d GPUs, %d free", c.NumNodes(), c.NumGPUs(), c.FreeGPUs())
			case "mark":
				return mark(t, c, d)
			case "place":
				return printDecision(Explain(c, gangOf(t, c, d), policyOf(d)))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func drawCluster(d *datadriven.TestData) (*Cluster, error) {
	var l Locality
	for _, a := range d.CmdArgs {
		t, err := ParseTier(a.Key)
		if err != nil {
			return nil, err
		}
		for k := range NumClasses {
			l[t][k], _ = strconv.ParseFloat(a.Vals[0], 64)
		}
	}
	if !l.uses(TierNode) {
		l[TierNode] = [NumClasses]float64{1, 1, 1, 1}
	}
	var nodes []Node
	gpus := 0
	for _, line := range strings.Split(d.Input, "\n") {
		f := strings.Fields(line)
		args := map[string]string{}
		for _, a := range f[2:] {
			k, v, _ := strings.Cut(a, "=")
			args[k] = v
		}
		g := DeviceGroup{Name: args["model"]}
		for i, score := range numbers(args["scores"]) {
			u := GPU{ID: fmt.Sprint(gpus), NUMA: uint16(at(args["numa"], i)), Island: uint16(at(args["island"], i))}
			for k := range NumClasses {
				u.Scores[k], u.Binned[k] = PMScore(score), PMScore(score)
				if args["bins"] != "" {
					u.Binned[k] = PMScore(at(args["bins"], i))
				}
			}
			g.GPUs = append(g.GPUs, u)
			gpus++
		}
		if len(nodes) > 0 && nodes[len(nodes)-1].Name == f[1] {
			nodes[len(nodes)-1].Groups = append(nodes[len(nodes)-1].Groups, g)
			continue
		}
		free := Resources{CPU: 1 << 30, MemoryMB: 1 << 30, DiskMB: 1 << 30}
		if args["mem"] != "" {
			free.MemoryMB = int(at(args["mem"], 0))
		}
		nodes = append(nodes, Node{ID: f[1], Name: f[1], Rack: args["rack"], Datacenter: args["dc"], Free: free, Groups: []DeviceGroup{g}})
	}
	return NewCluster(nodes, l)
}

func numbers(s string) []float64 {
	if s == "" {
		return nil
	}
	var fs []float64
	for _, x := range strings.Split(s, ",") {
		f, err := strconv.ParseFloat(x, 64)
		if err != nil {
			panic(err)
		}
		fs = append(fs, f)
	}
	return fs
}

func at(s string, i int) float64 {
	if fs := numbers(s); i < len(fs) {
		return fs[i]
	}
	return 0
}

func mark(t *testing.T, c *Cluster, d *datadriven.TestData) string {
	for _, a := range d.CmdArgs {
		for _, v := range a.Vals {
			i, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			switch a.Key {
			case "busy":
				c.SetTaken(i, true)
			case "free":
				c.SetTaken(i, false)
			case "unhealthy":
				c.SetHealth(i, Health{Unhealthy: true})
			case "quarantined":
				c.SetHealth(i, Health{Quarantined: true})
			}
		}
	}
	return fmt.Sprintf("%d free", c.FreeGPUs())
}

func gangOf(t *testing.T, c *Cluster, d *datadriven.TestData) Gang {
	g := Gang{ID: "job", Class: ClassA}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "class":
			g.Class = AppClass(a.Vals[0])
		case "replicas":
			g.Replicas = true
		case "max":
			g.MaxTier, _ = ParseTier(a.Vals[0])
		case "group": // group=2x4,1x1 or group=2x4@V100
			for i, v := range a.Vals {
				v, model, _ := strings.Cut(v, "@")
				m, k, _ := strings.Cut(v, "x")
				members, _ := strconv.Atoi(m)
				each, err := strconv.Atoi(k)
				if err != nil {
					t.Fatal(err)
				}
				sh := MemberSet{Name: fmt.Sprintf("g%d", i), Members: members, GPUs: each}
				if model != "" {
					sh.Eligible = make([]bool, c.Groups())
					for gi := range sh.Eligible {
						_, name := c.Group(gi)
						sh.Eligible[gi] = name == model
					}
				}
				g.MemberSets = append(g.MemberSets, sh)
			}
		}
	}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "mem":
			g.MemberSets[0].Need.MemoryMB, _ = strconv.Atoi(a.Vals[0])
		case "each-node":
			g.MemberSets[0].Need.PerNode, _ = strconv.Atoi(a.Vals[0])
		}
	}
	return g
}

func policyOf(d *datadriven.TestData) Policy {
	p := Policy{Name: PAL}
	for _, a := range d.CmdArgs {
		if a.Key == "policy" {
			p.Name = PolicyName(a.Vals[0])
		}
	}
	r := rand.New(rand.NewSource(1))
	p.Sample = func(n, k int) []int { return r.Perm(n)[:k] }
	return p
}

func printDecision(d Decision) string {
	var b strings.Builder
	if d.Placed {
		fmt.Fprintf(&b, "chosen: %s\npacked: %s\n", printChoice(d.Chosen), printChoice(d.Packed))
	} else {
		fmt.Fprintf(&b, "waits (impossible=%v): %s\n", d.Impossible, d.Reason)
	}
	if d.Placed && d.Replicas {
		fmt.Fprintf(&b, "%s\n", d.Chosen.Spread())
	}
	for _, e := range d.Walk {
		fmt.Fprintf(&b, "  bin %.3g within %s: %.3g, %d free, taken=%v\n", e.Bin, e.Tier, e.Product, e.Free, e.Taken)
	}
	return b.String()
}

func printChoice(c *Choice) string {
	if c == nil {
		return "none"
	}
	var ms []string
	for _, m := range c.Members {
		var ids []string
		for _, u := range m.GPUs {
			ids = append(ids, u.ID)
		}
		ms = append(ms, m.Node+":"+strings.Join(ids, "+"))
	}
	return fmt.Sprintf("%s (%s, pm %.3g × %.3g = %.3g)", strings.Join(ms, " "), c.Tier, c.PMScore, c.Penalty, c.Cost)
}

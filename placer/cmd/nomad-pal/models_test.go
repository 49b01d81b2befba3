// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

// On a cluster with two GPU models, the commands show the measurements of both, and their effect
// on a job.
func TestSeveralModels(t *testing.T) {
	c := newCluster(t)
	c.addTwoModels()
	c.agent("", atAnyPort)
	shows := func(want string, args ...string) {
		t.Helper()
		if code, out, said := c.does(args...); code != 0 || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%v: %d, want %s\n%s%s", args, code, want, out, said)
		}
	}
	c.until("a profile exists", func() bool { code, _, _ := c.does("profile", "show"); return code == 0 })
	shows(`(?m)^Tesla T4 +0\.1 \(60\) +- +0\.075 \(300\) +- +4$`, "profile", "show")
	shows(`"rate": 60,\s+"rate_unit": "TFLOP/s",\s+"rated_gpus": 4,\s+"speed": 0\.1`, "profile", "show", "-json")
	shows(`(?m)^GPU-2-0,A,1,Tesla T4,k,0,60$`, "profile", "export", "-csv")

	for name, said := range map[string]string{"measured": "  meta {\n    pal_class = \"A\"\n  }\n", "told": "  meta {\n    pal_speed = \"NVIDIA H200=2,Tesla T4=1\"\n  }\n"} {
		c.runs(c.written(name+".hcl", strings.Replace(jobText("default", name, 1), "  group", said+"  group", 1)), name)
	}
	shows(`(?m)^nvidia/gpu/NVIDIA H200 +1 .* chosen +class A, measured on 8 GPUs$`, "explain", "-verbose", "measured")
	shows(`(?m)^nvidia/gpu/Tesla T4 +0\.1 +10\.000 .* has room +class A, measured on 4 GPUs$`, "explain", "-verbose", "measured")
	shows(`(?m)^nvidia/gpu/Tesla T4 +0\.5 .* pal_speed$`, "explain", "-verbose", "told")
	shows(`With device=nvidia/gpu/Tesla T4: told runs on 1 GPU and now needs different GPUs: .*\n`, "explain", "-what-if", "device=nvidia/gpu/Tesla T4", "told")

	// A gang of eight fits only on the H200s, so it does not wait for the job on a
	// T4.
	c.runs(c.written("small.hcl", strings.Replace(jobText("default", "small", 1), `"nvidia/gpu"`, `"nvidia/gpu/Tesla T4"`, 1)), "small")
	wide := strings.Replace(jobText("default", "wide", 4), "  group \"g\" {", "  group \"g\" {\n    count = 2", 1)
	c.must("run", "-detach", c.written("wide.hcl", wide))
	c.until("wide waits", func() bool {
		_, out, _ := c.does("explain", "wide")
		return strings.Contains(out, "There is enough room for this job when")
	})
	shows(`There is enough room for this job when default/measured and default/told have ended\.`, "explain", "wide")
	shows(`needs 8 GPUs; 9 are free, but no GPU model has more than 6\.`, "explain", "wide")
	shows(`(?m)needs 8 GPUs; 9 are free, but no GPU model has more than 6$`, "queue")
	if _, out, _ := c.does("explain", "wide"); strings.Contains(out, "default/small") {
		t.Errorf("it waits for a job on a model that is too small for it:\n%s", out)
	}

	if _, _, err := c.client("").API().Jobs().Deregister("measured", false, nil); err != nil {
		t.Fatal(err)
	}
	c.until("the job has ended", func() bool {
		_, out, _ := c.does("explain", "-verbose", "measured")
		return strings.Contains(out, "State      = ended")
	})
	shows(`(?m)^GPU model +Speed .* Result$`, "explain", "-verbose", "measured") // the source of the speeds is not recorded
}

// addTwoModels adds two nodes of four H200s, and one of four T4s, which are ten times slower.
func (c *testCluster) addTwoModels() {
	for n, rates := range []string{"A=600 C=4000", "A=600 C=4000", "A=60 C=300"} {
		node := nomadtest.GPUNode(n, 4)
		d := node.NodeResources.Devices[0]
		if n == 2 {
			d.Name = "Tesla T4"
		}
		var told []string
		for _, in := range d.Instances {
			told = append(told, in.ID+" "+rates)
		}
		text := strings.Join(told, ";")
		d.Attributes[attr.Rates] = &api.Attribute{StringVal: &text}
		raw := strings.ReplaceAll(text, " "+rates, " key=k A=1 C=1")
		d.Attributes[attr.Raw] = &api.Attribute{StringVal: &raw}
		c.nomad.AddNode(node)
	}
}

// Replicas may run on several GPU models. Explain marks each of these models as chosen, and names
// the slowest.
func TestReplicasOnSeveralModels(t *testing.T) {
	c := newCluster(t)
	c.addTwoModels()
	c.agent("", atAnyPort)
	c.until("a profile is there", func() bool { code, _, _ := c.does("profile", "show"); return code == 0 })
	service := strings.NewReplacer(`"batch"`, `"service"`, "  group \"g\" {", "  meta {\n    pal_class = \"A\"\n  }\n  group \"g\" {\n    count = 3").Replace(jobText("default", "api", 1))
	path := c.written("api.hcl", service)
	_, plan, _ := c.does("plan", "-verbose", path)
	c.must("run", path)
	_, out, _ := c.does("explain", "-verbose", "api")
	out = plan + out
	for _, want := range []string{
		`of the slowest, on nvidia/gpu/Tesla T4: 10\.00 times`,
		`(?m)^nvidia/gpu/NVIDIA H200 +1 +- .* chosen +class A, measured on 8 GPUs$`,
		`(?m)^nvidia/gpu/Tesla T4 +0\.1 +- .* chosen +class A, measured on 4 GPUs$`,
		`(?m)^Group +Node +Model +GPU +PM score +Class$`,
		`(?m)^g +node-2 +nvidia/gpu/Tesla T4 +GPU-2-`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s\n%s", want, out)
		}
	}
}

// The commands that show scores of class A say how many GPUs stayed below their power limit while
// they were measured.
func TestUncappedScores(t *testing.T) {
	c := newCluster(t)
	for n := range 2 {
		node := nomadtest.GPUNode(n, 4)
		d, accounts := node.NodeResources.Devices[0], map[string]attr.Account{}
		var ms []attr.Measurement
		for _, in := range d.Instances {
			ms = append(ms, attr.Measurement{GPU: in.ID, Key: "k", Times: map[pal.AppClass]float64{pal.ClassA: 1}})
			accounts[in.ID] = attr.Account{Uncapped: n == 1}
		}
		d.Attributes[attr.Raw] = &api.Attribute{StringVal: new(attr.FormatMeasurements(ms))}
		d.Attributes[attr.Measuring] = &api.Attribute{StringVal: new(attr.FormatAccounts(accounts))}
		c.nomad.AddNode(node)
	}
	c.agent("", atAnyPort)
	c.until("a profile is there", func() bool { code, _, _ := c.does("profile", "show"); return code == 0 })
	job := strings.NewReplacer("  group \"g\" {", "  meta {\n    pal_class = \"A\"\n  }\n  group \"g\" {\n    count = 8").Replace(jobText("default", "train", 1))
	path := c.written("train.hcl", job)
	const note = "class A was measured below the power limit on %s, so the PM scores say little about training"
	for _, q := range []struct{ asked, want string }{
		{"plan -verbose " + path, "4 GPUs"}, {"run -verbose " + path, "4 GPUs"}, {"explain -verbose train", "4 GPUs"}, {"gpus", "4 GPUs"}, {"gpus -node node-0", ""}, {"explain node-1", "4 GPUs"}, {"explain GPU-1-0", "1 GPU"}, {"explain GPU-0-0", ""},
	} {
		code, out, said := c.does(strings.Fields(q.asked)...)
		if code > 1 || q.want == "" && strings.Contains(out, "power limit") || q.want != "" && !strings.Contains(strings.Join(strings.Fields(out), " "), fmt.Sprintf(note, q.want)) {
			t.Errorf("%s, want %q: %d\n%s%s", q.asked, q.want, code, out, said)
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/placer/agent"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
)

const a100, v100 = "nvidia/gpu/NVIDIA A100-SXM4-80GB", "nvidia/gpu/Tesla V100-SXM2-32GB"

// plannedJob is a jobspec with additional lines for the job, its group and its task's
// resources.
func plannedJob(id, ofJob, ofGroup, device string) string {
	return fmt.Sprintf("job %q {\n  type = \"batch\"\n%s  group \"g\" {\n%s    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"true\"\n      }\n      resources {\n%s      }\n    }\n  }\n}\n", id, ofJob, ofGroup, device)
}

func constraintOf(of string) string {
	return "constraint {\n" + strings.ReplaceAll(of, ", ", "\n") + "\n}\n"
}

func gpuBlock(name, in string) string { return fmt.Sprintf("device %q {\n%s}\n", name, in) }
func metaOf(of string) string         { return "meta {\n" + of + "\n}\n" }

// withGroup is a job with a second group.
func withGroup(job, name, ofGroup, device string) string {
	other := plannedJob("j", "", ofGroup, device)
	at := strings.Index(other, "  group ")
	return strings.TrimSuffix(job, "}\n") + strings.Replace(other[at:len(other)-len("}\n")], `"g"`, fmt.Sprintf("%q", name), 1) + "}\n"
}

// adviceOnJobs follows plan's advice about jobs that are refused or never start, after which they
// would start.
func adviceOnJobs(t *testing.T, f *advice.Followed) {
	c := mixedCluster(t)
	c.t = t
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", "http {\n  bind_port = 0\n}\napp \"resnet\" {\n  class = \"A\"\n}\n"))
	job, constraint, gpu, meta := plannedJob, constraintOf, gpuBlock, metaOf
	plain := gpu("nvidia/gpu", "")
	gate := constraint(`attribute = "${meta.pal_gate}", value = "open"`)
	elastic := "count = 1\nscaling {\nmin = 1\nmax = 2\n}\n"
	for name, of := range map[string]struct{ wrong, says, right string }{
		"two blocks":      {job("j", "", "", gpu(a100, "")+gpu(a100, "count = 2\n")), "use one block with count = 3", job("j", "", "", gpu(a100, "count = 3\n"))},
		"two models":      {job("j", "", "", gpu(a100, "")+gpu(v100, "")), "write two groups, each with a task and a block of its own", withGroup(job("j", "", "", gpu(a100, "")), "h", "", gpu(v100, ""))},
		"unit":            {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.attr.memory}", operator = ">=", value = "40000"`))), `Write attribute = "${device.attr.memory}", operator = ">=", value = "40000 MiB"`, job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.attr.memory}", operator = ">=", value = "40000 MiB"`)))},
		"device in group": {job("j", "", constraint(`attribute = "${device.model}", value = "Tesla V100-SXM2-32GB"`), plain), "Write the constraint in a block of the device", job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.model}", value = "Tesla V100-SXM2-32GB"`)))},
		"node in device":  {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${meta.rack}", value = "r1"`))), "Write the constraint in a block of the group", job("j", "", constraint(`attribute = "${meta.rack}", value = "r1"`), plain)},
		"one GPU":         {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.attr.uuid}", value = "GPU-0-1"`))), "Leave out this constraint", job("j", "", "", plain)},
		"ids":             {job("j", "", "", gpu("nvidia/gpu", constraint(`attribute = "${device.ids}", operator = "set_contains", value = "GPU-0-1"`))), "remove this constraint", job("j", "", "", plain)},
		"app":             {job("j", meta(`pal_app = "nothing"`), "", plain), "set pal_class instead", job("j", meta(`pal_class = "A"`), "", plain)},
		"app and class":   {job("j", meta("pal_app = \"resnet\"\npal_class = \"B\""), "", plain), "remove one of the two", job("j", meta(`pal_app = "resnet"`), "", plain)},
		"class and app":   {job("j", meta("pal_app = \"resnet\"\npal_class = \"B\""), "", plain), "remove one of the two", job("j", meta(`pal_class = "B"`), "", plain)},
		"elastic pin":     {job("j", meta("pal_elastic = true\npal_pin = \"gpu\""), elastic, plain), "remove pal_pin", job("j", meta("pal_elastic = true"), elastic, plain)},
		"member pin":      {job("j", meta("pal_on_failure = \"member\"\npal_pin = \"gpu\""), "", plain), `remove pal_pin, or set pal_pin to "class"`, job("j", meta("pal_on_failure = \"member\"\npal_pin = \"class\""), "", plain)},
		"no member pin":   {job("j", meta("pal_on_failure = \"member\"\npal_pin = \"gpu\""), "", plain), `remove pal_pin, or set pal_pin to "class"`, job("j", meta("pal_on_failure = \"member\""), "", plain)},
		"hint":            {job("j", meta(`pal_clas = "A"`), "", plain), "did you mean pal_class?", job("j", meta(`pal_class = "A"`), "", plain)},
		"hint's case":     {job("j", meta(`PAL-CLASS = "A"`), "", plain), "the correct spelling is pal_class", job("j", meta(`pal_class = "A"`), "", plain)},
		"id":              {job("a/plan", "", "", plain), "give the job another id", job("a-plan", "", "", plain)},
		"dots":            {job("..", "", "", plain), "give the job another id", job("dots", "", "", plain)},
		"long id":         {job(strings.Repeat("x", 1001), "", "", plain), "give the job another id", job("short", "", "", plain)},
		"checkpoint":      {job("j", meta(`pal_checkpoint = "30m"`), "", plain), `add pal_preempt = "true"`, job("j", meta("pal_checkpoint = \"30m\"\npal_preempt = \"true\""), "", plain)},
		"no checkpoint":   {job("j", meta(`pal_checkpoint = "30m"`), "", plain), "or remove pal_checkpoint", job("j", "", "", plain)},
		"no gate":         {job("j", constraint(`attribute = "${meta.palgate}", value = "open"`), "", plain), "is mistyped: the gate is ${meta.pal_gate} = ", job("j", gate, "", plain)},
		"run's gate":      {job("j", constraint(`attribute = "${meta.palgate}", value = "open"`), "", plain), "nomad-pal run adds the gate to a job without a gate", job("j", "", "", plain)},
		"regions":         {job("j", "multiregion {\n  region \"global\" {}\n}\n"+gate, "", plain), "use a separate job with a gate for each region", job("j", gate, "", plain)},
	} {
		for how, text := range map[string]string{"wrong": of.wrong, "right": of.right} {
			code, out, said := c.reads(text, "plan", "-")
			if how == "wrong" && (!f.Add(out+said, of.says) || code != 2 && code != 255) || how == "right" && (code != 1 || !strings.Contains(out, "would start")) {
				t.Errorf("%s, %s: exit code %d, want advice %q\n%s\n%s%s", name, how, code, of.says, text, out, said)
			}
		}
	}
	for members, says := range []string{"to add members, use nomad job scale", "would start"} {
		if _, out, said := c.reads(job("j", "", fmt.Sprintf("count = %d\n", members), plain), "plan", "-"); !f.Add(out, says) {
			t.Errorf("%d members: want %q\n%s%s", members, says, out, said)
		}
	}
	c.triesChanges(f)
	c.followsOneGPU(f)
	c.follows(f, typed{
		wrong: []string{"explain", "-what-if", "count=1", c.written("groups.nomad.hcl", withGroup(job("j", "", "", plain), "h", "", plain))},
		says:  "use a key such as g.count",
		right: []string{"explain", "-what-if", "g.count=1", c.written("groups.nomad.hcl", withGroup(job("j", "", "", plain), "h", "", plain))},
	})
}

// registers registers a job as nomad job run does.
func (c *testCluster) registers(text string) {
	c.t.Helper()
	b := base{ctx: c.t.Context(), namespace: "default"}
	b.io.in = strings.NewReader(text)
	job, _, err := b.readJob("-", &jobFlags{})
	if err == nil {
		_, _, err = c.client("").API().Jobs().Register(job, nil)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// followsOneGPU requests one GPU by its id, and then as advised, from Nomad
// alone.
func (c *testCluster) followsOneGPU(f *advice.Followed) {
	t := c.t
	wrong := plannedJob("one", "", "", gpuBlock("nvidia/gpu", constraintOf(`attribute = "${device.attr.uuid}", value = "GPU-0-1"`)))
	_, out, said := c.reads(wrong, "plan", "-")
	m := regexp.MustCompile(`To use one GPU by its id, write (.*) and run the job without the placer \(nomad job run\)`).FindStringSubmatch(oneLine(out))
	if m == nil || !f.Add(out, "and run the job without the placer (nomad job run)") {
		t.Fatalf("no advice: %s%s", out, said)
	}
	c.registers(plannedJob("one", "", "", gpuBlock("nvidia/gpu", constraintOf(m[1]))))
	jobs := c.client("").API().Jobs()
	c.until("the job has that GPU", func() bool {
		as, _, err := jobs.Allocations("one", false, nil)
		if err != nil || len(as) != 1 {
			return false
		}
		a, _, err := c.client("").API().Allocations().Info(as[0].ID, nil)
		return err == nil && fmt.Sprint(a.AllocatedResources.Tasks["t"].Devices[0].DeviceIDs) == "[GPU-0-1]"
	})
}

var tryLine = regexp.MustCompile(`nomad-pal explain -what-if ('[^']*'|\S+) (\S+)`)

// triesChanges tries the changes that plan offers for jobs that never start,
// after which they would start.
func (c *testCluster) triesChanges(f *advice.Followed) {
	t, tried := c.t, 0
	for name, text := range map[string]string{
		"gpus":  plannedJob("j", "", "", gpuBlock("nvidia/gpu", "count = 5\n")),
		"model": plannedJob("j", "", "", gpuBlock("nvidia/gpu/B200", "")),
		"rack":  plannedJob("j", constraintOf(`attribute = "${meta.rack}", value = "r9"`), "", gpuBlock("nvidia/gpu", "")),
		"count": plannedJob("j", "", "count = 9\n", gpuBlock("nvidia/gpu", "count = 2\n")),
		"dc":    plannedJob("j", "datacenters = [\"mars\"]\n", "", gpuBlock("nvidia/gpu", "")),
	} {
		path := c.written(name+".nomad.hcl", text)
		_, out, said := c.does("plan", path)
		m := tryLine.FindStringSubmatch(oneLine(out))
		if m == nil || m[2] != path || !f.Add(out, "To try a change without making it: "+m[0]) {
			t.Errorf("%s: plan offers no change:\n%s%s", name, out, said)
			continue
		}
		tried++
		code, out, said := c.does("explain", "-what-if", strings.Trim(m[1], "'"), m[2])
		if code != 0 || !strings.Contains(out, "would start") {
			t.Errorf("%s, %s: %d\n%s%s", name, m[0], code, out, said)
		}
	}
	if tried == 0 {
		t.Error("no change was tried")
	}
}

// adviceOnTemplates follows the advice about jobs with payloads.
func adviceOnTemplates(t *testing.T, f *advice.Followed) {
	c := newCluster(t)
	for i := range 2 { // as the device plugin publishes classes
		n := nomadtest.GPUNode(i, 4)
		ids, count := fmt.Sprintf("GPU-%d-0,GPU-%d-1", i, i), int64(2)
		n.NodeResources.Devices[0].Attributes = map[string]*api.Attribute{"unique.variability_a_le_2": {StringVal: &ids}, "variability_a_le_2_count": {IntVal: &count}}
		c.nomad.AddNode(n)
	}
	native := constraintOf(`attribute = "${device.ids}", operator = "set_contains_any", value = "${device.attr.unique.variability_a_le_2}"`) +
		constraintOf(`attribute = "${device.attr.variability_a_le_2_count}", operator = ">=", value = "1"`)
	takes := func(id, payload, device string) string {
		return plannedJob(id, fmt.Sprintf("parameterized {\n  payload = %q\n}\n", payload), "", device)
	}
	parsed := func(text string) *api.Job {
		b := base{ctx: t.Context(), namespace: "default"}
		b.io.in = strings.NewReader(text)
		job, _, err := b.readJob("-", &jobFlags{})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	code, out, said := c.reads(takes("t", "required", gpuBlock("nvidia/gpu", "")), "run", "-detach", "-")
	if code != 2 || !f.Add(out+said, "use nomad job run instead, and constrain the job's GPUs to a variability class yourself") {
		t.Errorf("run: %d %s%s", code, out, said)
	}
	jobs := c.client("").API().Jobs()
	if _, _, err := jobs.Register(parsed(takes("t", "required", gpuBlock("nvidia/gpu", native))), nil); err != nil {
		t.Fatal(err)
	}
	child, _, err := jobs.Dispatch("t", nil, []byte("x"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.until("Nomad places the child", func() bool {
		as, _, err := jobs.Allocations(child.DispatchedJobID, false, nil)
		return err == nil && len(as) == 1 // the child may have ended already
	})

	const admitted = "make the payload optional and use meta, or constrain the job's GPUs to a variability class yourself"
	reviewed := func(text string) agent.Review { return (*agent.Admission)(nil).Review(parsed(text), true) }
	hint := metaOf(`pal_class = "A"`)
	hinted := func(text string) string { return strings.Replace(text, "parameterized", hint+"parameterized", 1) }
	if got := reviewed(hinted(takes("t", "required", gpuBlock("nvidia/gpu", "")))); !f.Add(strings.Join(got.Errors, " "), admitted) {
		t.Errorf("admission: %+v", got)
	}
	if got := reviewed(hinted(takes("t", "optional", gpuBlock("nvidia/gpu", "")))); len(got.Errors) > 0 || len(got.Patch) == 0 {
		t.Errorf("admission, with an optional payload: %+v", got)
	}
	if got := reviewed(takes("t", "required", gpuBlock("nvidia/gpu", native))); len(got.Errors)+len(got.Patch) > 0 {
		t.Errorf("admission, with a native class constraint: %+v", got)
	}
	c.stopsRuns(f)
}

// stopsRuns stops a parameterized job, and then its runs.
func (c *testCluster) stopsRuns(f *advice.Followed) {
	t, jobs := c.t, c.client("").API().Jobs()
	t.Setenv("NOMAD_PAL_ADDR", c.agent("", atAnyPort))
	if code, out, said := c.reads(plannedJob("array", "parameterized {}\n", "", gpuBlock("nvidia/gpu", "")), "run", "-detach", "-"); code != 0 {
		t.Fatalf("run: %d %s%s", code, out, said)
	}
	child, _, err := jobs.Dispatch("array", nil, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := jobs.Deregister("array", false, nil); err != nil {
		t.Fatal(err)
	}
	const stop = "The job's runs continue. To stop these runs: nomad-pal cancel array"
	c.until("nomad-pal says that its run continues", func() bool {
		_, out, _ := c.does("explain", "array")
		return f.Add(out, stop)
	})
	if code, out, said := c.does("cancel", "array"); code != 0 || out != "Stopped default/"+child.DispatchedJobID+"\n" {
		t.Errorf("cancel: %d %s%s", code, out, said)
	}
	c.until("no run continues", func() bool {
		_, out, _ := c.does("explain", "array")
		return strings.Contains(out, "the job was stopped, and starts no more runs") && !strings.Contains(out, stop)
	})
}

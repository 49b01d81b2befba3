// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package rewrite_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/jobspec2"

	"github.com/nomad-pal/nomad-pal/placer/rewrite"
)

// TestElastic: what makes a gang elastic, and which hints contradict that.
func TestElastic(t *testing.T) {
	const (
		on      = `pal_elastic = "true"`
		scaling = "scaling {\n min = 2\n max = 8\n}\n"
		gpu     = "resources {\n device \"nvidia/gpu\" {}\n }\n"
	)
	spec := func(kind, meta, group, rest string) string {
		return "job \"j\" {\n type = \"" + kind + "\"\n meta {\n" + meta + "\n }\n group \"g\" {\n count = 4\n" + group + "task \"t\" {\n driver = \"raw_exec\"\n" + gpu + "}\n}\n" + rest + "}"
	}
	for name, c := range map[string]struct {
		spec string
		want string // the error; "" if the gang is elastic, "no" if it is not
	}{
		"elastic":                      {spec("batch", on, scaling, ""), ""},
		"no hint":                      {spec("batch", "", scaling, ""), "no"},
		"said to be no":                {spec("batch", `pal_elastic = "false"`, scaling, ""), "no"},
		"no block":                     {spec("batch", on, "", ""), `meta pal_elastic: group "g" needs a scaling block`},
		"switched off":                 {spec("batch", on, "scaling {\n enabled = false\n min = 2\n max = 8\n}\n", ""), "which is enabled"},
		"autoscaler":                   {spec("batch", on, "scaling {\n min = 2\n max = 8\n policy {\n cooldown = \"1m\"\n}\n}\n", ""), "has no policy"},
		"down to none":                 {spec("batch", on, "scaling {\n min = 0\n max = 8\n}\n", ""), "a min (at least 1)"},
		"more at least than at most":   {spec("batch", on, "scaling {\n min = 8\n max = 2\n}\n", ""), "a max"},
		"stopped, and so switched off": {spec("batch", on, "scaling {\n enabled = false\n min = 2\n max = 8\n}\n", ""), ""},
		"two groups": {spec("batch", on, scaling, "group \"h\" {\n task \"t\" {\n driver = \"raw_exec\"\n"+gpu+"}\n}\n"),
			`groups "g" and "h" both request GPUs`},
		"a group without GPUs": {spec("batch", on, scaling, "group \"h\" {\n task \"t\" {\n driver = \"raw_exec\"\n}\n}\n"), ""},
		"service":              {spec("service", on, scaling, ""), "is for batch jobs"},
		"pins to GPUs":         {spec("batch", on+"\npal_pin = \"gpu\"", scaling, ""), `contradicts pal_pin = "gpu"`},
		"pins to class":        {spec("batch", on+"\npal_pin = \"class\"", scaling, ""), ""},
		"replaced one by one":  {spec("batch", on+"\npal_on_failure = \"member\"", scaling, ""), `contradicts pal_on_failure = "member"`},
	} {
		t.Run(name, func(t *testing.T) {
			job, err := jobspec2.Parse("j", strings.NewReader(c.spec))
			if err != nil {
				t.Fatal(err)
			}
			job.Canonicalize()
			stop := strings.HasPrefix(name, "stopped")
			job.Stop = &stop
			h, err := rewrite.ParseHints(job)
			e, elastic := rewrite.ElasticOf(job)
			switch {
			case c.want == "" || c.want == "no":
				if err != nil || h.Elastic != (c.want == "") || elastic != h.Elastic {
					t.Errorf("hints %+v, elastic %v: %v", h, elastic, err)
				}
				if elastic && e != (rewrite.Elastic{Group: "g", Least: 2, Most: 8}) {
					t.Errorf("got %+v", e)
				}
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestElasticCount: the pins of an elastic gang include its count, and nothing else
// changes.
func TestElasticCount(t *testing.T) {
	job, err := jobspec2.Parse("j", strings.NewReader("job \"j\" {\n type = \"batch\"\n meta {\n pal_elastic = \"true\"\n }\n group \"g\" {\n count = 4\n scaling {\n min = 2\n max = 8\n }\n task \"t\" {\n driver = \"raw_exec\"\n resources {\n device \"nvidia/gpu\" {}\n }\n }\n }\n}"))
	if err != nil {
		t.Fatal(err)
	}
	job.Canonicalize()
	pins := rewrite.Pins{Mode: rewrite.ModeClass, Groups: []rewrite.GroupPins{{Group: "g", Nodes: []string{"n"}, Count: 6}}}
	pinned, err := rewrite.Pin(job, pins, rewrite.Racks{})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := rewrite.Pinned(pinned); !ok || got.Groups[0].Count != 6 || *pinned.TaskGroups[0].Count != 6 {
		t.Errorf("pins %+v of count %d", got, *pinned.TaskGroups[0].Count)
	}
	if *job.TaskGroups[0].Count != 4 {
		t.Errorf("the author's job now has a count of %d", *job.TaskGroups[0].Count)
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// clusterState is a state of a cluster of 32 GPUs, with what the overview says about it
// without scrolling.
type clusterState struct {
	name string
	make func(t *testing.T, w *world)
	day  func(halfHour float64) (on, wait int, more map[string]any)
	says []string
	idle bool         // no placer is active
	then func(p *tab) // further checks
}

func clusterStates() []clusterState {
	sample := func(on, unhealthy, requested int) map[string]any {
		more := map[string]any{"outliers": map[string]int{"B": 1}, "unhealthy": unhealthy, "requested": requested}
		if on > 0 {
			more["slowdown_chosen"], more["slowdown_packed"], more["slowdown_gpus"] = 1.04, 1.13, on
		}
		return more
	}
	calm := func(on int) func(float64) (int, int, map[string]any) {
		return func(float64) (int, int, map[string]any) { return on, 0, sample(on, 0, 0) }
	}
	eight := func(name string, members int) bed.Gang {
		return bed.Gang{Name: name, Members: members, GPUs: 8, Meta: map[string]string{"pal_class": "A", "pal_duration": "5h"}}
	}
	runs := func(t *testing.T, w *world, gangs ...bed.Gang) {
		w.submit(t, gangs...)
		for _, g := range gangs {
			until(t, g.Name+" runs", func() bool {
				return len(w.nomad.Members(nomadtest.Key{Namespace: "default", ID: g.Name})) == g.Members
			})
		}
	}
	return []clusterState{
		{"idle", func(*testing.T, *world) {}, calm(0), []string{"0 of 32", "no GPU is in use", "the queue is empty", "all GPUs and nodes are healthy, no job is stuck"}, false, nil},
		{"full", func(t *testing.T, w *world) {
			runs(t, w, eight("llama-sft", 2), eight("whisper-large", 2))
			w.submit(t, eight("pretrain-wide", 4), eight("gpt-neo-repro", 2))
		}, func(step float64) (int, int, map[string]any) {
			wait := 1 + int(step)/40
			return 32, wait, sample(32, 0, 16+16*wait)
		}, []string{"32 of 32", "100\u2009%", "48 GPUs · the longest: pretrain-wide, submitted ", "all GPUs and nodes are healthy"}, false, func(p *tab) {
			p.waits("jobs of class A are not listed with GPUs that are slow for class B",
				`[...document.querySelectorAll("main li")].some(e => e.innerText.includes("for class B") && !e.innerText.includes("is on it"))`)
			p.goTo("#/job/default/pretrain-wide")
			p.shows("Its end makes room", "This job has room once all jobs marked “yes” have ended.")
		}},
		{"sick-node", func(t *testing.T, w *world) {
			runs(t, w, eight("llama-sft", 1))
			for _, g := range measuredNode(1).NodeResources.Devices[0].Instances {
				w.nomad.SetHealth(false, g.ID)
			}
			w.nomad.SetEligible(measuredNode(3).ID, false)
		}, func(step float64) (int, int, map[string]any) {
			return 8, 0, sample(8, int(step)/44*8, 0)
		}, []string{"8 of 32", "8 GPUs unhealthy · 1 node away", "gpu-00001 8 GPUs", "XID 79", "gpu-00002 GPU 5", "the queue is empty"}, false, func(p *tab) {
			p.waits("what failed names the node once", `[...document.querySelectorAll("section")].find(e => e.innerText.startsWith("What failed")).querySelectorAll("li").length === 1`)
			p.goTo("#/node/gpu-00002")
			p.shows("outlier for class B")
			p.goTo("#/failures")
			p.shows("Nodes away", "gpu-00003", "the node is not eligible for scheduling")
			p.waits("each table has one row for what all GPUs of the node have", `[...document.querySelectorAll("tr")].filter(e => e.innerText.includes("8 GPUs") && e.innerText.includes("XID 79")).length === 2`)
			p.waits("the outlier's score stands out", `document.querySelector("main td strong")?.innerText === "1.76"`)
			p.waits("no event repeats its node", `!document.querySelector("main").innerText.includes("on node gpu-00001")`)
		}},
		{"no-placer", func(t *testing.T, w *world) { runs(t, w, eight("llama-sft", 2)) }, calm(16),
			[]string{"No agent has been active since", "until an agent is active, no job with a gate starts", "16 of 32", "not known without an agent"}, true, func(p *tab) {
				p.waits("the header says so", `document.getElementById("state").innerText.startsWith("No agent")`)
				p.waits("the charts show the time of their last figures", `[...document.querySelectorAll(".keys")].filter(e => /at \d\d:\d\d/.test(e.innerText)).length === 2`)
				for _, text := range []string{"no GPU is in use", "the queue is empty", "Nobody waits"} {
					p.waits("nothing says "+text, "!document.body.innerText.includes("+quoted(text)+")")
				}
			}},
		{"failed-jobs", func(t *testing.T, w *world) {
			runs(t, w, eight("llama-sft", 1))
			broken := eight("broken-loader", 1)
			broken.GPUs, broken.Runs, broken.Exit = 2, time.Second, 1
			w.submit(t, broken, bed.Gang{Name: "too-wide", Members: 1, GPUs: 16})
		}, calm(8), []string{"1 job unschedulable · 1 job failed", "broken-loader", "too-wide", "the queue is empty"}, false, func(p *tab) {
			p.clicks(`a.tile[href="#/failures"]`)
			p.shows("the job itself", "Jobs that do not run", "no node has that many")
		}},
	}
}

// The overview says what state a cluster is in. make page-images saves a picture of each state, for
// people to look at.
func TestStatesOfClusters(t *testing.T) {
	browser := chromium(t)
	for _, c := range clusterStates() {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, 4, nil)
			c.make(t, w)
			now := time.Now()
			samples := inventedSamples(now, 4*gpusPerNode, c.day)
			if c.idle {
				samples = samples[:len(samples)-25]
			}
			answers := map[string]func(*http.Request) any{"/v1/history": samplesOf(samples), "/v1/usage": usageOf(now, 4*gpusPerNode, samples)}
			if c.idle {
				answers["/v1/agent"] = func(*http.Request) any {
					return map[string]any{"working": false, "since": now.Add(-25 * time.Minute), "agent": "pal-1"}
				}
			}
			p := open(t, browser, front(t, w, answers), "")
			p.run(emulation.SetDeviceMetricsOverride(1440, 900, 1, false))
			p.drawn()
			for _, text := range append(c.says, " of 32", "Allocation") {
				p.waits(text+" is seen", fmt.Sprintf(`[...document.querySelectorAll("main *, #idle")].some(e => e.innerText?.includes(%s) && e.getBoundingClientRect().bottom <= innerHeight)`, quoted(text)))
			}
			p.checked()
			if dir := os.Getenv("PAGE_IMAGES"); dir != "" {
				p.waits("nothing is being read", `!/Reading( |…)/.test(document.querySelector("main").innerText)`)
				p.run(chromedp.Sleep(500 * time.Millisecond))
				p.capture(filepath.Join(dir, "state-"+c.name+".webp"))
			}
			if c.then != nil {
				c.then(p)
			}
		})
	}
}

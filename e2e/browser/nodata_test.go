// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// Each view works with answers that contain no data, gaps and nulls.
func TestViewsOfLittleData(t *testing.T) {
	browser := chromium(t)
	w := start(t, 2, nil)
	w.submit(t, bed.Gang{Name: "runs", GPUs: 2}, bed.Gang{Name: "never", GPUs: 2 * gpusPerNode})
	now := time.Now().UTC()
	sample := func(minutesAgo int, more map[string]any) map[string]any {
		s := map[string]any{"at": now.Add(-time.Duration(minutesAgo) * time.Minute), "gpus": 16, "free": 16, "allocated": 0, "waiting": 0, "running": 0, "requested": 0, "placed": 0}
		for k, v := range more {
			s[k] = v
		}
		return s
	}
	ran := map[string]any{"slowdown_chosen": 1.04, "slowdown_packed": 1.13, "slowdown_gpus": 8, "outliers": map[string]int{"B": 1}, "unhealthy": 1}
	nulls := map[string]any{"allocated": nil, "free": nil, "waiting": nil, "requested": nil, "placed": nil, "slowdown_chosen": nil, "slowdown_packed": nil, "outliers": nil, "unhealthy": nil}
	null, none := json.RawMessage("null"), []any{}
	lists := func(of any) map[string]any {
		answers := map[string]any{"/v1/queue/page": map[string]any{"total": 0, "matching": 0, "gpus": 0, "states": nil, "jobs": none}}
		for _, path := range []string{"/v1/history", "/v1/usage", "/v1/runs", "/v1/uses", "/v1/failures", "/v1/tenants", "/v1/gpus", "/v1/models"} {
			answers[path] = of
		}
		return answers
	}
	usage := map[string]any{"of": []string{now.Format(time.DateOnly)}, "gpu_hours": 0, "failed_gpu_hours": 0, "held_in_vain_gpu_hours": 0, "idle_gpu_hours": 0, "saved_gpu_hours": 0, "waited_hours": 0, "runs": 0, "complete": 0, "failed": 0}
	run := map[string]any{"namespace": "default", "job": "runs", "state": "pending", "gpus": 1, "submitted": now, "waited_seconds": 0}
	all := []string{"#/", "#/gpus", "#/rack/dc1/rack-000", "#/node/gpu-00000", "#/gpu/" + gpuID(0, 0), "#/timeline", "#/jobs", "#/job/default/runs", "#/job/default/never", "#/failures", "#/history", "#/usage", "#/usage?by=month&span=year", "#/tenants"}
	charts := []string{"#/", "#/history"}
	history := func(samples ...any) map[string]any { return map[string]any{"/v1/history": samples} }
	for _, c := range []struct {
		name    string
		routes  []string
		answers map[string]any
	}{
		{"no data", all, lists(none)},
		{"null for empty lists", all, lists(null)},
		{"idle", charts, history(sample(3, nil), sample(2, nil), sample(1, nil))},
		{"one sample", charts, history(sample(1, nil))},
		{"idle again", charts, history(sample(3, ran), sample(2, ran), sample(1, nil))},
		{"busy again", charts, history(sample(3, nil), sample(2, nil), sample(1, ran))},
		{"gaps", charts, history(sample(600, ran), sample(599, nil), sample(90, ran), sample(1, ran))},
		{"nulls at the end", charts, history(sample(2, ran), sample(1, nulls))},
		{"nulls only", charts, history(sample(2, nulls), sample(1, nulls))},
		{"usage of nothing", []string{"#/", "#/usage"}, map[string]any{"/v1/usage": []any{usage}, "/v1/runs": []any{run}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := map[string]func(*http.Request) any{}
			for path, answer := range c.answers {
				answers[path] = func(r *http.Request) any {
					if r.URL.Query().Has("after") {
						return none
					}
					return answer
				}
			}
			p := open(t, browser, front(t, w, answers), "")
			for _, route := range c.routes {
				p.goTo("#/nothing")
				p.shows("There is no such page")
				p.goTo(route)
				p.waits(route+" has read everything", `document.querySelector("main h1")?.innerText !== "There is no such page" && !/Reading( |…)/.test(document.querySelector("main").innerText)`)
				if said := is[string](p, `[...document.querySelectorAll("main .alert"), ...[...document.querySelectorAll("main *")].filter(e => !e.children.length && /\b(NaN|undefined|null|Infinity|Invalid Date)\b/.test(e.textContent + (e.ariaLabel ?? "")))].map(e => e.textContent + (e.ariaLabel ?? "")).join("; ")`); said != "" {
					t.Errorf("%s shows %q", route, said)
				}
			}
			p.checked()
		})
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nomad-pal/nomad-pal/placer"
	"github.com/nomad-pal/nomad-pal/placer/meter"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest"
	"github.com/nomad-pal/nomad-pal/placer/nomadtest/bed"
)

// metricsOf returns the metrics of a site's agent, requested with the token.
func metricsOf(t *testing.T, s *server, query, token string) string {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/metrics"+query, nil)
	r.Header.Set("X-Nomad-Token", token)
	s.handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// Prometheus' own parser accepts the metrics. Only operators see names of namespaces.
func TestPrometheus(t *testing.T) {
	s := siteOn(t, "")
	m := s.agent.meter
	m.Placed("secret-project", "A", 90*time.Second, 1.05)
	m.Registrations.WithLabelValues("start", "done").Inc()
	m.Stops.WithLabelValues("preempted").Inc()
	m.Failures.WithLabelValues("user").Inc()
	m.Accuracy.WithLabelValues("A").Observe(1.1)
	m.Cycles.WithLabelValues().Observe(0.003)
	text := metricsOf(t, s, "?format=prometheus", "nobody")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE nomad_pal_gpus gauge\nnomad_pal_gpus 0\n", "nomad_pal_cycle_age_seconds -1\n", `nomad_pal_jobs{state="waiting"} 0` + "\n",
		`nomad_pal_placements_total{app_class="A"} 1`, `nomad_pal_wait_seconds_bucket{app_class="A",le="300"} 1`, `nomad_pal_registrations_total{outcome="done",purpose="start"} 1`,
		`nomad_pal_stops_total{reason="preempted"} 1`, `nomad_pal_allocation_failures_total{cause="user"} 1`, `nomad_pal_predicted_slowdown_ratio_sum{app_class="A"} 1.05`,
		`nomad_pal_observed_slowdown_ratio_count{app_class="A"} 1`, "nomad_pal_cycle_duration_seconds_count 1", "\ngo_goroutines ", "nomad_pal_build_info{",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret-project") {
		t.Error("a namespace is named to somebody without a right")
	}
	var numbers Metrics
	if err := json.Unmarshal([]byte(metricsOf(t, s, "", "")), &numbers); err != nil || numbers.CycleAge != -1 || numbers.Goroutines == 0 {
		t.Errorf("%+v: %v", numbers, err)
	}
}

// All metrics that the dashboard, the alerts and docs/operators/monitor.md mention exist.
func TestMonitoringIsOfMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := map[string]string{}
	for _, m := range New(hclog.NewNullLogger(), placer.Hooks{}).meter.Metrics() {
		known[m.Name] = m.Kind
	}
	name := regexp.MustCompile(`nomad_pal_[a-z_]+`)
	for _, file := range []string{"../deploy/monitoring/grafana.json", "../deploy/monitoring/alerts.yml", "../../docs/operators/monitor.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllString(string(text), -1)
		if len(found) < 3 {
			t.Errorf("%s: %d metrics", file, len(found))
		}
		for _, n := range found {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(n, "")
			if known[n] == "" && known[base] != "histogram" {
				t.Errorf("%s names %s, which does not exist", file, n)
			}
		}
	}
}

// dashboard contains the parts of the Grafana dashboard that the tests read.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (board dashboard) {
	t.Helper()
	text, err := os.ReadFile("../deploy/monitoring/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &board); err != nil || len(board.Panels) < 8 {
		t.Fatalf("the dashboard has %d panels: %v", len(board.Panels), err)
	}
	return board
}

// The dashboard shows the agents of one job at a time, as alerts do, because agents of other regions
// have other GPUs and jobs. It groups by labels that exist, and its legends use only labels that
// remain after grouping.
func TestDashboardLabels(t *testing.T) {
	t.Parallel()
	labels := map[string][]string{}
	for _, m := range New(hclog.NewNullLogger(), placer.Hooks{}).meter.Metrics() {
		labels[m.Name] = append(m.Labels, "le")
	}
	metric := regexp.MustCompile(`nomad_pal_[a-z_]+`)
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			var by []string
			for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(target.Expr, -1) {
				by = append(by, strings.Split(m[1], ", ")...)
			}
			if all, ofJob := len(metric.FindAllString(target.Expr, -1)), strings.Count(target.Expr, `{job="$job"`); all != ofJob {
				t.Errorf("%s: %d of %d metrics are of the chosen job: %s", panel.Title, ofJob, all, target.Expr)
			}
			for _, name := range metric.FindAllString(target.Expr, -1) {
				has, ok := labels[name]
				if !ok {
					has = labels[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")]
				}
				for _, label := range by {
					if !slices.Contains(has, label) {
						t.Errorf("%s: %s has no label %q", panel.Title, name, label)
					}
				}
			}
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(by, m[1]) {
					t.Errorf("%s: no label %q is left by %s", panel.Title, m[1], target.Expr)
				}
			}
		}
	}
}

// Prometheus accepts the alert rules and each expression of the dashboard, and the rules pass their
// own tests.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on PATH: Debian has it in the package prometheus")
	}
	rules := []map[string]string{}
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			rules = append(rules, map[string]string{"record": fmt.Sprintf("dashboard:%d", len(rules)), "expr": target.Expr})
		}
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml") // JSON is valid YAML
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", file, "../deploy/monitoring/alerts.yml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.Command(promtool, "test", "rules", "../deploy/monitoring/alerts_test.yml").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Each metric has a source: without one, it would always be 0.
func TestMetricsAreRead(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ = bytes.Cut(code, []byte("func (a *Agent) metrics("))
	code, _, _ = bytes.Cut(code, []byte("\n}\n"))
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Metrics]()) {
		if !regexp.MustCompile(`\bm\.` + f.Name + `\b|\b` + f.Name + `:`).Match(code) {
			t.Errorf("nothing sets %s", f.Name)
		}
	}
}

var rewriteReference = flag.Bool("rewrite-reference", false, "write docs/reference/metrics.md and the tables of configuration.md")

// docs/reference/metrics.md lists the agent's metrics.
func TestMetricsReference(t *testing.T) {
	t.Parallel()
	const path = "../../docs/reference/metrics.md"
	var b strings.Builder
	b.WriteString(`<!-- Written by go test ./placer/agent -run TestMetricsReference -rewrite-reference. -->
# Metrics of the agent

` + "`GET /v1/metrics?format=prometheus`" + ` returns these metrics, and needs no token. Metrics with * have labels with names of
namespaces. To get them, the scraper needs a token that can read the variable ` + "`nomad-pal/failures`" + ` (in Prometheus, set
` + "`authorization`" + ` with the type Bearer). The agent also publishes the usual ` + "`go_*` and `process_*`" + ` metrics.
[Monitor](../operators/monitor.md) describes the most important metrics.

| metric | kind | labels | what it is |
|---|---|---|---|
`)
	metrics := New(hclog.NewNullLogger(), placer.Hooks{}).meter.Metrics()
	slices.SortFunc(metrics, func(a, b meter.Metric) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range metrics {
		star := ""
		if m.Named {
			star = " *"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", m.Name, star, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	if *rewriteReference {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(got)); d != "" {
		t.Errorf("the reference is not what the agent has; -rewrite-reference writes it (-agent +reference):\n%s", d)
	}
}

// While the placer hangs, the health answers at once, because probes wait only briefly, and all
// metrics together wait a second for a newer snapshot.
func TestHealthDoesNotWait(t *testing.T) {
	bed.Run(t, bed.Options{Seed: 1, Unwatched: true}, func(w *bed.World) {
		w.AddNodes(1, 4)
		p := w.StartPlacer()
		a := New(hclog.NewNullLogger(), placer.Hooks{})
		a.current.Store(p.Placer)
		w.Submit(bed.Gang{Name: "full", GPUs: 4, Runs: time.Hour})
		w.ExpectRunning("full", 10*time.Second)
		w.RunFor(time.Minute)
		p.Picture()
		for _, name := range []string{"a", "b"} {
			w.Submit(bed.Gang{Name: name, GPUs: 4})
			w.RunFor(3 * time.Second)
		}
		w.Nomad.Fail(p.Name, "PUT /v1/jobs", nomadtest.Lost, -1)
		if err := w.Stop(bed.Key("full")); err != nil {
			w.T.Fatal(err)
		}
		w.RunFor(2 * time.Second)
		took := func(f func()) time.Duration {
			began := time.Now()
			f()
			return time.Since(began)
		}
		if d := took(func() { a.health(time.Now()) }); d > 0 {
			w.T.Errorf("the health took %s", d)
		}
		if d := took(func() { _, _ = a.meter.Gather(true) }); d > 1100*time.Millisecond {
			w.T.Errorf("the metrics took %s", d)
		}
		if d := took(func() { _, _ = a.meter.Gather(true) }); d > 0 {
			w.T.Errorf("the metrics took %s again", d)
		}
	})
}

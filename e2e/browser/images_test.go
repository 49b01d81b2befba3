// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// capture saves the visible part of the page. WebP needs a fifth of PNG's
// bytes.
func (p *tab) capture(file string) {
	p.t.Helper()
	shoot := page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatWebp).WithQuality(72)
	var image []byte
	p.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		image, err = shoot.Do(ctx)
		return err
	}))
	if err := os.WriteFile(file, image, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, path string) string {
	t.Helper()
	r, err := http.Get(w.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// front is the agent behind a proxy. The proxy answers the paths in answers itself. The page's files
// come from the working tree.
func front(t *testing.T, w *world, answers map[string]func(*http.Request) any) string {
	t.Helper()
	u, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	agent := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}
	mux := http.NewServeMux()
	mux.Handle("/", agent)
	mux.Handle("GET /ui/", http.StripPrefix("/ui", http.FileServer(http.Dir(filepath.Join("..", "..", "placer", "agent", "ui")))))
	for path, answer := range answers {
		mux.HandleFunc("GET "+path, func(rw http.ResponseWriter, r *http.Request) {
			if of := answer(r); of == nil {
				agent.ServeHTTP(rw, r)
			} else if err := json.NewEncoder(rw).Encode(of); err != nil {
				t.Log(err)
			}
		})
	}
	front := httptest.NewServer(mux)
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front.URL
}

// samplesOf answers the first request with these samples, and later ones with
// none.
func samplesOf(samples []map[string]any) func(*http.Request) any {
	return func(r *http.Request) any {
		if r.URL.Query().Has("after") {
			return []any{}
		}
		return samples
	}
}

// inventedSamples are the samples of one day. day returns, for each half hour, the GPUs in use,
// the waiting jobs, and the other fields of the sample.
func inventedSamples(now time.Time, gpus int, day func(halfHour float64) (on, wait int, more map[string]any)) (all []map[string]any) {
	for m := 24*60 - 1; m >= 1; m-- {
		step := math.Floor((24 - float64(m)/60) * 2)
		on, wait, more := day(step)
		sample := map[string]any{"at": now.Add(-time.Duration(m) * time.Minute).UTC(), "gpus": gpus, "free": gpus - on, "allocated": on,
			"waiting": wait, "running": on / 12, "requested": wait * 72, "placed": int(step) * m % 17 / 15 * min(on, 1)}
		maps.Copy(sample, more)
		all = append(all, sample)
	}
	return all
}

// usageOf answers with an invented month of a cluster.
func usageOf(now time.Time, gpus float64, samples []map[string]any) func(*http.Request) any {
	return func(r *http.Request) any { return inventedUsage(now, gpus, samples, r.URL.Query().Get("by")) }
}

// sampled sums the GPU hours of a day over its samples (one a minute), and returns which share of
// the day they cover.
func sampled(samples []map[string]any, day time.Time) (hours, told float64) {
	for _, s := range samples {
		if at := s["at"].(time.Time); !at.Before(day) && at.Before(day.AddDate(0, 0, 1)) {
			hours, told = hours+float64(s["allocated"].(int))/60, told+1./60/24
		}
	}
	return hours, told
}

// inventedUsage is the usage of the last 30 days: one entry a day or a user, or their sum. It
// agrees with the samples for the time that they cover.
func inventedUsage(now time.Time, gpus float64, samples []map[string]any, by string) (all []map[string]any) {
	line := func(of []string, h float64) map[string]any {
		return map[string]any{"of": of, "gpu_hours": h, "failed_gpu_hours": h * 0.021, "held_in_vain_gpu_hours": 0, "idle_gpu_hours": h * 0.034, "saved_gpu_hours": h * 0.09,
			"runs": int(h / 21), "complete": int(h / 23), "failed": int(h / 260), "waited_hours": h / 30, "starts": map[string]int{"told": int(h / 40), "held": int(h / 48)}}
	}
	now = now.UTC()
	first, total := now.AddDate(0, 0, -29).Truncate(24*time.Hour), 0.0
	for day := first; day.Before(now); day = day.AddDate(0, 0, 1) {
		weekday, d := 1.0, float64(day.Day())
		if day.Weekday() == time.Saturday || day.Weekday() == time.Sunday {
			weekday = 0.6
		}
		h, told := sampled(samples, day)
		if past := min(1, now.Sub(day).Hours()/24) - told; past > 0.1 { // the part of the day without samples
			h += past * gpus * 24 * weekday * (0.72 + 0.12*math.Sin(d/3) + 0.06*math.Sin(d*2.1))
		}
		if total += h; by == "day" {
			all = append(all, line([]string{day.Format(time.DateOnly)}, h))
		}
	}
	shares := map[string]float64{"ann": 0.41, "wei": 0.27, "bob": 0.19, "zoe": 0.09, "": 0.04}
	switch by {
	case "day":
	case "":
		all = append(all, line([]string{}, total))
	default:
		for user, share := range shares {
			all = append(all, line([]string{user}, total*share))
		}
	}
	return all
}

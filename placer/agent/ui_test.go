// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/agent/ui"
)

// The page loads nothing from other hosts, and its policy forbids that as well as inline scripts
// and styles.
func TestPageStandsAlone(t *testing.T) {
	ask := func(path string) (string, string) {
		w := httptest.NewRecorder()
		headers(siteOn(t, "").handler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "require-trusted-types-for 'script'") {
			t.Errorf("%s: content security policy %q", path, csp)
		}
		return w.Body.String(), w.Header().Get("Content-Type")
	}
	html, kind := ask("/ui/")
	if !strings.Contains(html, "<title>nomad-pal</title>") || !strings.HasPrefix(kind, "text/html") {
		t.Fatalf("%s of %d bytes", kind, len(html))
	}
	for _, s := range []string{"<style", "style=", "onclick=", "onload=", "javascript:"} {
		if strings.Contains(html, s) {
			t.Errorf("the page holds %q", s)
		}
	}
	for _, m := range regexp.MustCompile(`<script[^>]*>([^<]*)</script>`).FindAllStringSubmatch(html, -1) {
		if strings.TrimSpace(m[1]) != "" {
			t.Errorf("a script within the page: %s", m[1])
		}
	}
	parts, names := html, regexp.MustCompile(`(?:src|href)="([^"#]+\.[a-z]+)"|from "\./([^"]*)"`)
	todo, known := names.FindAllStringSubmatch(html, -1), map[string]bool{}
	for ; len(todo) > 0; todo = todo[1:] { // the modules and their imports
		name := todo[0][1] + todo[0][2]
		if known[name] {
			continue
		}
		known[name] = true
		text, kind := ask("/ui/" + name)
		if name == "uplot.js" { // TestVendored in e2e/browser checks its origin
			_, text, _ = strings.Cut(text, "\n") // a comment with its URL
		}
		if want := map[string]string{".js": "text/javascript", ".css": "text/css"}[filepath.Ext(name)]; want == "" || !strings.HasPrefix(kind, want) {
			t.Errorf("%s is %s", name, kind)
		}
		parts += text
		todo = append(todo, names.FindAllStringSubmatch(text, -1)...)
	}
	files, err := ui.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(known)+1 {
		t.Errorf("of %d files the page loads %d", len(files), len(known)+1)
	}
	for _, s := range []string{"http://", "https://", "@import", "innerHTML", "eval(", "outerHTML", "insertAdjacentHTML", "document.write", "setAttribute(\"style\""} {
		if strings.Contains(strings.ReplaceAll(parts, "http://www.w3.org/2000/svg", ""), s) {
			t.Errorf("the page holds %q", s)
		}
	}
}

// The page's files are compressed, and not sent again to a browser that has them.
func TestPageIsSmall(t *testing.T) {
	handler, err := siteOn(t, "").guarded()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name, value string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, "http://localhost/ui/uplot.js", nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set(name, value)
		handler.ServeHTTP(w, r)
		return w
	}
	first := ask("X", "x")
	if n := first.Body.Len(); first.Header().Get("Content-Encoding") != "gzip" || n > 30_000 {
		t.Errorf("%d bytes, %v", n, first.Header())
	}
	if again := ask("If-None-Match", first.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("again: %d, %d bytes", again.Code, again.Body.Len())
	}
}

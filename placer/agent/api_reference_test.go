// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/reference/http-api.md contains exactly the calls that the agent serves.
func TestAPIReference(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("server.go")
	if err != nil {
		t.Fatal(err)
	}
	var served, documented []string
	for _, m := range regexp.MustCompile(`mux\.Handle(?:Func)?\("([A-Z]+ /[^"{]+)`).FindAllStringSubmatch(string(code), -1) {
		served = append(served, m[1])
	}
	for _, line := range strings.Split(readPage(t, "../../docs/reference/http-api.md"), "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range regexp.MustCompile("`([A-Z]+ /[^`<]*)").FindAllStringSubmatch(cell, -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	served = slices.DeleteFunc(slices.Compact(served), func(call string) bool { return call == "GET /" }) // redirects to the page
	if d := cmp.Diff(served, documented); d != "" {
		t.Errorf("calls that are served (-) and documented (+):\n%s", d)
	}
}

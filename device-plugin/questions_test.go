// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

var rewriteReference = flag.Bool("rewrite-reference", false, "write the tables of docs/reference/attributes.md")

// The tables of docs/reference/attributes.md match the questions that decide health.
func TestQuestionsReference(t *testing.T) {
	const path = "../docs/reference/attributes.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(page)
	for name, table := range map[string]string{"answers": answersTable(), "questions": questionsTable()} {
		const end = "<!-- end -->"
		begin := fmt.Sprintf("-rewrite-reference: %s -->\n", name)
		before, rest, found := strings.Cut(want, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no place for the table of %s", path, name)
		}
		want = before + begin + table + end + after
	}
	if *rewriteReference {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, string(page)); d != "" {
		t.Errorf("the tables are not those of the code; make docs writes them (-code +page):\n%s", d)
	}
}

func answersTable() string {
	var b strings.Builder
	b.WriteString("| answer | codes | means |\n|---|---|---|\n")
	for _, kind := range []struct {
		answer gpu.Answer
		means  string
	}{
		{gpu.Unsupported, "This GPU or driver does not have the value. This is not a fault"},
		{gpu.Denied, "The plugin lacks permission. This is not a fault of the GPU. The log and `doctor` report it"},
		{gpu.Lost, "`gpu-lost`, whatever the question was"},
		{gpu.NeedsReset, "`reset-required`, whatever the question was"},
		{gpu.DriverGone, "When a question that identifies GPUs gets this answer, the plugin publishes no GPU until the driver returns. For other questions, this counts as an error"},
		{gpu.Failed, "The next table shows the effect of an error"},
	} {
		var codes []string
		for c := 1; c < 1000; c++ {
			if gpu.KindOf(c) == kind.answer && gpu.CodeName(c) != gpu.CodeName(-1) {
				codes = append(codes, fmt.Sprintf("%d %s", c, gpu.CodeName(c)))
			}
		}
		if kind.answer == gpu.Failed {
			codes = append(codes, "any other")
		}
		name := map[gpu.Answer]string{gpu.Unsupported: "not supported", gpu.Denied: "no permission", gpu.Lost: "lost", gpu.NeedsReset: "reset", gpu.DriverGone: "no driver", gpu.Failed: "error"}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name[kind.answer], strings.Join(codes, ", "), kind.means)
	}
	return b.String()
}

func questionsTable() string {
	var b strings.Builder
	b.WriteString("| questions | effect of an error |\n|---|---|\n")
	means := map[gpu.Weight]string{gpu.Detail: "The GPU is degraded", gpu.Basic: fmt.Sprintf("The GPU is degraded. If %d such basic questions fail, it is unhealthy", basicLimit),
		gpu.Identity: "The GPU is not usable. If it was known before, it is unhealthy, else hidden"}
	for _, weight := range []gpu.Weight{gpu.Identity, gpu.Basic, gpu.Detail} {
		var names []string
		for _, q := range gpu.Questions() {
			if q.Weight == weight {
				names = append(names, "`"+q.Function+"`")
			}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), means[weight])
	}
	return b.String()
}

// docs/reference/attributes.md describes each attribute that the plugin publishes.
func TestAttributesReference(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, code := read("../docs/reference/attributes.md"), read("attributes.go")
	names := regexp.MustCompile(`\ba\.(?:integer|number|text)\("(\w+)"`).FindAllStringSubmatch(code, -1)
	for _, c := range regexp.MustCompile(`(?m)^(?:const|\t)\s*(\w+)\s+= "([\w.]+)"`).FindAllStringSubmatch(read("../pal/attr/attr.go")+read("../pal/attr/measuring.go"), -1) {
		if regexp.MustCompile(`\battr\.` + c[1] + `\b`).MatchString(code) {
			names = append(names, c[1:])
		}
	}
	for _, name := range names {
		if n := name[len(name)-1]; n != attr.Vendor && !strings.Contains(page, "`"+n+"`") {
			t.Errorf("the page does not describe %s", n)
		}
	}
	if len(names) < 30 {
		t.Errorf("found only %d attributes", len(names))
	}
}

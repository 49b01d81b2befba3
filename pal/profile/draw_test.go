// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func drawn(t *testing.T) *Profile {
	t.Helper()
	o := DefaultOptions()
	o.Known = map[string]string{"GPU-dark": model}
	s := fleet(append(twenty(), 6)...)
	for i := range s {
		s[i].Model = "Card <R&D>"
	}
	return mustBuild(t, s, o, nil)
}

func TestText(t *testing.T) {
	text := drawn(t).Text(40)
	if lines := strings.Count(text, "\n"); lines != 1+drawnBins+1+2+1 || strings.Contains(text, " \n") {
		t.Errorf("%d lines, or space at the end of one:\n%s", lines, text)
	}
	for _, want := range []string{
		"Card <R&D>, application A: 21 GPUs, spread", ", key k\n",
		"\n  0.953 111111111111111111111111 1\n",
		"\n  2.993 5  outlier\n", "\n  classes: 1: 8 2: 4 3: 4 4: 4 5: 1\n",
		"GPUs never measured: 1. They count as class 5.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Every GPU is in the picture once, and the picture is XML.
func TestSVG(t *testing.T) {
	svg := string(drawn(t).SVG())
	dec := xml.NewDecoder(strings.NewReader(svg))
	elements := map[string]int{}
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if start, ok := tok.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	if diff := cmp.Diff(map[string]int{"svg": 1, "rect": 21, "text": 6, "line": 1, "circle": 1, "title": 21}, elements); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(svg, "Card &lt;R&amp;D&gt;, application A") {
		t.Error("the model's name is not escaped")
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All ways in which tools write a PCI address mean the same address.
func TestBusID(t *testing.T) {
	for text, want := range map[string]string{
		"0000:1a:00.0":                 "0000:1a:00.0",
		"00000000:1A:00.0":             "0000:1a:00.0",
		"00000000:1A:00.0\x00\x00\x00": "0000:1a:00.0",
		"1a:00.0":                      "0000:1a:00.0",
		"10009:01:00.0":                "10009:01:00.0",
		"":                             "",
		"3":                            "",
		"GPU-1a:00.0":                  "",
		"0000:1a:00.0x":                "",
		"1a:00":                        "",
	} {
		if got := BusID(text); got != want {
			t.Errorf("%q is read as %q, want %q", text, got, want)
		}
	}
}

func TestIndexes(t *testing.T) {
	text := FormatIndexes(map[string]int{"GPU-b": 0, "GPU-a": 3})
	if text != "GPU-a=3,GPU-b=0" {
		t.Errorf("written as %q", text)
	}
	for text, want := range map[string]map[string]int{
		text:                         {"GPU-a": 3, "GPU-b": 0},
		"":                           {},
		"GPU-a,GPU-b=-1,GPU-c=x,d=1": {"d": 1},
		"GPU-a=99999999999":          {},
	} {
		if diff := cmp.Diff(want, ParseIndexes(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	var many []string
	for i := range 100_000 {
		many = append(many, fmt.Sprintf("GPU-%d=0", i))
	}
	if n := len(ParseIndexes(strings.Join(many, ","))); n != MaxGPUs {
		t.Errorf("%d entries of a hostile node are read", n)
	}
}

// A number or a PCI address names a GPU only if it is known to be the GPU's.
func TestSlotNamed(t *testing.T) {
	s := Slot{Index: new(3), BusID: "0000:1a:00.0"}
	for word, want := range map[string]bool{"3": true, "1a:00.0": true, "00000000:1A:00.0": true, "0": false, "03": false, "": false, "1b:00.0": false} {
		if s.Named(word) != want {
			t.Errorf("%q names GPU 3: %v", word, !want)
		}
	}
	if (Slot{}).Named("0") || (Slot{}).Named("") {
		t.Error("a GPU without a known place is named")
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// timesOf writes a file of 16 GPUs. Every fourth GPU takes `slow` times as long as the others, in
// all classes.
func timesOf(t *testing.T, slow float64) (path string) {
	t.Helper()
	text := "gpu,app,time\n"
	for i := range 16 {
		took := 100.0
		if i%4 == 0 {
			took *= slow
		}
		for _, class := range []string{"A", "B", "C", "D"} {
			text += fmt.Sprintf("GPU-%d,%s,%v\n", i, class, took)
		}
	}
	path = filepath.Join(t.TempDir(), "times.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With -profile, the report says what choosing GPUs by speed is worth.
func TestSpeedWorth(t *testing.T) {
	args := func(slow float64, more ...string) []string {
		return append([]string{"-profile", timesOf(t, slow), "-generate", "heavy", "-jobs", "60", "-nodes", "8"}, more...)
	}
	out, _ := simulate(t, 0, args(1.4, "-json")...)
	var r struct{ Speed *speedWorth }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Speed == nil || r.Speed.ClassA == nil {
		t.Fatalf("the report says nothing of speed: %s", out)
	}
	if a := r.Speed.ClassA; a.Low <= 0 || a.Low > a.Saved || a.Saved > a.High {
		t.Errorf("a quarter of the GPUs is slow, and class A saves %+v of its run time", *a)
	}
	table, _ := simulate(t, 0, args(1.4)...)
	if want := fmt.Sprintf("choosing GPUs by speed saves %s of class A's run time, %s of the average JCT (10 pairs of runs; 95 %% intervals)", r.Speed.ClassA, r.Speed.Average); !strings.Contains(table, want) {
		t.Errorf("the table lacks %q:\n%s", want, table)
	}
	for what, args := range map[string][]string{
		"equal GPUs":       args(1),
		"placement packed": args(1.4, "-policy", "packed"),
		"a baseline":       args(1.4, "-policy", "easy"),
		"no profile":       {"-jobs", "20"},
	} {
		if table, _ := simulate(t, 0, args...); strings.Contains(table, "by speed") {
			t.Errorf("%s: the report says what speed is worth:\n%s", what, table)
		}
	}
}

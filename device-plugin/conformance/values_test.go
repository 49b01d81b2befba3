// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
)

// recordFlag names a file to which the test writes what the plugin under test publishes about the
// nodes. The file of nomad-device-nvidia was made with
//
//	go test ./device-plugin/conformance -run TestValues -args -plugin=nomad-device-nvidia -record=testdata/values-nomad-device-nvidia.txt
//
// and nomad-device-nvidia built from its source at 05e83c3 (1.2.0-dev).
var recordFlag = flag.String("record", "", "file to write the plugin's values to")

const (
	theirValues  = "testdata/values-nomad-device-nvidia.txt"
	ourValues    = "testdata/values-nomad-device-pal.txt"
	migrationDoc = "../../docs/reference/plugin-differences.md"
)

// incumbentAttributes are the attributes of nomad-device-nvidia.
var incumbentAttributes = []string{"bar1", "cores_clock", "display_state", "driver_version", "memory", "memory_clock", "pci_bandwidth", "persistence_mode", "power"}

// valueNodes returns the nodes whose values are compared. Each has one GPU, or one GPU in
// two MIG instances.
func valueNodes() map[string]nvmltest.State {
	with := func(values ...string) nvmltest.State {
		s := nvmltest.H200(1)
		s.Set("gpu0", "used_mib", "1000")
		for _, kv := range values {
			k, v, _ := strings.Cut(kv, "=")
			s.Set("gpu0", k, v)
		}
		return s
	}
	mig := with("name=NVIDIA A100-SXM4-40GB", "pcie_gen=4")
	mig.Split(0, 2)
	return map[string]nvmltest.State{
		"h200":           with(),
		"h200-busy":      with("power_mw=690000", "sm_mhz=1755", "utilization=100", "temperature=66"),
		"a100-pcie4":     with("name=NVIDIA A100-SXM4-40GB", "pcie_gen=4", "limit_mw=400000", "max_sm_mhz=1410", "sm_mhz=210", "max_mem_mhz=1215", "mem_mhz=405"),
		"a100-mig":       mig,
		"v100-pcie3":     with("name=Tesla V100-SXM2-16GB", "pcie_gen=3", "limit_mw=300000"),
		"old-pcie2":      with("name=Tesla K20", "pcie_gen=2"),
		"next-pcie6":     with("name=NVIDIA B300", "pcie_gen=6"),
		"desktop":        with("name=NVIDIA RTX A4000", "pcie_gen=4", "display=1", "persistence=0"),
		"no-bar1-no-ecc": with("bar1_mib=", "ecc=", "ecc_l1=", "ecc_l2=", "ecc_memory=", "max_mem_mhz=", "mem_mhz="),
		"no-power":       with("limit_mw=", "power_mw="),
		"no-limit":       with("name=NVIDIA GB10", "memory_mib=", "used_mib=", "bar1_mib=", "limit_mw=", "ecc="),
	}
}

// values returns everything that the plugin under test publishes about a node, by name.
func values(t *testing.T, state nvmltest.State, config string) map[string]string {
	t.Helper()
	w := start(t, state, config)
	g := w.fingerprint().until("the devices", func(gs []*device.DeviceGroup) bool { return devices(gs) > 0 })[0]
	out := map[string]string{"group": g.Name}
	for _, name := range incumbentAttributes {
		out["attribute "+name] = attribute(g, name)
	}
	var ids []string
	for _, d := range g.Devices {
		ids = append(ids, d.ID)
		out["bus id"] = fmt.Sprintf("%q", strings.TrimRight(d.HwLocality.PciBusID, "\x00"))
	}
	out["instances"] = strings.Join(ids, " ")
	res, err := w.Device.Reserve(ids[:1])
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range res.Envs {
		if strings.HasPrefix(name, "NOMAD_PAL_") {
			continue // differs each time, and no job uses variables with such names
		}
		out["environment "+name] = v
	}
	if state["gpu0"]["memory_mib"] == "" { // the machine's memory differs from run to run
		defer func() {
			for _, name := range []string{"attribute memory", "statistic Memory state", "statistic Memory utilization"} {
				delete(out, name)
			}
		}()
	}
	if strings.HasPrefix(ids[0], "MIG-") && !isOurs {
		return out // the plugin has no statistics for MIG instances, and sends no message
	}
	stats := w.statistics(func(all map[string]*device.DeviceStats) bool {
		s := all[ids[0]]
		return s != nil && statValue(s.Stats.Attributes["Temperature"]) != "string N/A C"
	})[ids[0]]
	for _, name := range []string{"Power usage", "GPU utilization", "Memory utilization", "Encoder utilization", "Decoder utilization", "Temperature",
		"Memory state", "BAR1 buffer state", "ECC L1 errors", "ECC L2 errors", "ECC memory errors"} {
		out["statistic "+name] = statValue(stats.Stats.Attributes[name])
	}
	return out
}

// TestValues compares the plugin's values with the recorded ones.
func TestValues(t *testing.T) {
	recorded := ourValues
	if !isOurs && *recordFlag == "" {
		t.Skip("the values of other plugins are recorded, not compared")
	}
	got := map[string]map[string]string{}
	var mu sync.Mutex // the values of the nodes are read in parallel
	for name, state := range valueNodes() {
		t.Run(name, func(t *testing.T) {
			v := values(t, state, fast)
			mu.Lock()
			defer mu.Unlock()
			got[name] = v
		})
	}
	t.Cleanup(func() {
		text := valuesText(got)
		if *recordFlag != "" {
			if err := os.WriteFile(*recordFlag, []byte(text), 0o644); err != nil {
				t.Error(err)
			}
			return
		}
		want, err := os.ReadFile(recorded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text); diff != "" {
			t.Errorf("%s differs (-recorded +now); -record=%s writes it again:\n%s", recorded, recorded, diff)
		}
	})
}

func valuesText(all map[string]map[string]string) string {
	var b strings.Builder
	for _, node := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(all[node])) {
			fmt.Fprintf(&b, "%s | %s | %s\n", node, name, all[node][name])
		}
	}
	return b.String()
}

func readValues(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " | ", 3)
		if len(f) != 3 {
			t.Fatalf("%s: line %q", path, line)
		}
		if out[f[0]] == nil {
			out[f[0]] = map[string]string{}
		}
		out[f[0]][f[1]] = f[2]
	}
	return out
}

// The migration table has exactly the names whose values differ somewhere.
func TestEveryDifferenceIsInTheMigrationTable(t *testing.T) {
	ours(t)
	theirs, mine := readValues(t, theirValues), readValues(t, ourValues)
	differ := map[string]bool{}
	for node, values := range theirs {
		for name, v := range values {
			if mine[node][name] != v {
				differ[name] = true
			}
		}
		for name := range mine[node] {
			if _, ok := values[name]; !ok {
				differ[name] = true
			}
		}
	}
	doc, err := os.ReadFile(migrationDoc)
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| (attribute|statistic|environment|bus id|instances|group)(?: `([^`]+)`)? \\|").FindAllStringSubmatch(string(doc), -1) {
		inTable[strings.TrimSpace(m[1]+" "+m[2])] = true
	}
	for name := range differ {
		if statistic := strings.HasPrefix(name, "statistic "); !inTable[name] && !(statistic && inTable["statistic"]) {
			t.Errorf("%q differs and is not in the table of %s", name, migrationDoc)
		}
	}
	for name := range inTable {
		if !differ[name] && name != "statistic" {
			t.Errorf("%q is in the table of %s and differs nowhere", name, migrationDoc)
		}
	}
}

// recordedAttribute parses the text of an attribute; nil if it is absent.
func recordedAttribute(t *testing.T, text string) *structs.Attribute {
	t.Helper()
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "int":
		number, unit, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return structs.NewIntAttribute(n, unit)
	case "string":
		return structs.NewStringAttribute(rest)
	}
	return nil
}

// A job's constraint that holds for nomad-device-nvidia's attributes also holds for ours,
// with >= for numbers or = for texts. The test compares like Nomad's scheduler: a literal
// in the job against the attribute.
func TestJobsOfTheIncumbentPlaceUnchanged(t *testing.T) {
	ours(t)
	theirs, mine := readValues(t, theirValues), readValues(t, ourValues)
	compared := 0
	for node, values := range theirs {
		for _, name := range incumbentAttributes {
			before, now := recordedAttribute(t, values["attribute "+name]), recordedAttribute(t, mine[node]["attribute "+name])
			if before == nil {
				continue
			}
			literal := structs.ParseAttribute(strings.TrimPrefix(strings.TrimPrefix(values["attribute "+name], "int "), "string "))
			if _, ok := before.Compare(literal); !ok {
				continue // no constraint can match it: Nomad reads "0" and "1" as numbers, and the attribute as text
			}
			compared++
			if before.Int != nil && *before.Int == 0 {
				continue // "at least 0" always holds
			}
			if node == "no-limit" && name == "power" {
				if now != nil {
					t.Errorf("power is %v although the GPU has no limit", now)
				}
				continue // the migration page documents this difference
			}
			if now == nil {
				t.Errorf("%s: %s was %s and is absent", node, name, values["attribute "+name])
				continue
			}
			if order, ok := now.Compare(literal); !ok || order < 0 || before.String != nil && order != 0 {
				t.Errorf("%s: %s was %q and is %q: jobs that ask for it stop placing", node, name, values["attribute "+name], mine[node]["attribute "+name])
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d values were compared", compared)
	}
	for name, v := range mine["h200"] {
		if _, theirs := theirs["h200"][name]; strings.HasPrefix(name, "environment ") && !theirs {
			t.Errorf("%s=%s is set unasked: it overrides the job's own", name, v)
		}
	}
}

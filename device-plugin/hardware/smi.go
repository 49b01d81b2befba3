// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package hardware

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// smiField is a value that nvidia-smi and our scan both have.
type smiField struct {
	query string
	ours  func(d gpu.Device, driver string) string // "" when we do not know it
	// slack is the relative difference that is none, for numbers.
	slack float64
}

func smiFields() []smiField {
	number := func(get func(gpu.Device) *int64) func(gpu.Device, string) string {
		return func(d gpu.Device, _ string) string {
			if p := get(d); p != nil {
				return strconv.FormatInt(*p, 10)
			}
			return ""
		}
	}
	word := func(get func(gpu.Device) string) func(gpu.Device, string) string {
		return func(d gpu.Device, _ string) string { return get(d) }
	}
	return []smiField{
		{"name", word(func(d gpu.Device) string { return d.Model }), 0},
		{"driver_version", func(_ gpu.Device, driver string) string { return driver }, 0},
		{"pci.bus_id", word(func(d gpu.Device) string { return d.BusID }), 0},
		{"vbios_version", word(func(d gpu.Device) string { return d.VBIOS }), 0},
		{"persistence_mode", word(func(d gpu.Device) string { return d.PersistenceMode }), 0},
		{"ecc.mode.current", word(func(d gpu.Device) string {
			if d.ECC == nil {
				return ""
			}
			return map[bool]string{true: "Enabled", false: "Disabled"}[*d.ECC]
		}), 0},
		{"memory.total", number(func(d gpu.Device) *int64 { return d.MemoryMiB }), 0.01},
		{"enforced.power.limit", number(func(d gpu.Device) *int64 { return d.PowerLimitW }), 0.01},
		{"clocks.max.sm", number(func(d gpu.Device) *int64 { return d.CoresClockMHz }), 0},
		{"clocks.max.memory", number(func(d gpu.Device) *int64 { return d.MemoryClockMHz }), 0},
	}
}

// smiQuery is what nvidia-smi is asked.
func smiQuery() []string {
	names := []string{"uuid"}
	for _, f := range smiFields() {
		names = append(names, f.query)
	}
	return []string{"--query-gpu=" + strings.Join(names, ","), "--format=csv,noheader,nounits"}
}

// compareSMI puts nvidia-smi's answer beside the scan.
func compareSMI(answer string, ds []gpu.Device, driver string) (*SMI, error) {
	r := csv.NewReader(strings.NewReader(answer))
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading nvidia-smi's answer: %w", err)
	}
	fields := smiFields()
	theirs := map[string][]string{}
	for _, row := range rows {
		if len(row) != len(fields)+1 {
			return nil, errors.New("reading nvidia-smi's answer: " + strings.Join(row, ", "))
		}
		theirs[row[0]] = row[1:]
	}
	s := &SMI{}
	for _, d := range ds {
		if d.MIGProfile != "" {
			continue
		}
		row, ok := theirs[d.ID]
		if !ok {
			s.Differ = append(s.Differ, Mismatch{d.ID, "uuid", d.ID, ""})
			continue
		}
		delete(theirs, d.ID)
		for i, f := range fields {
			ours, smi := f.ours(d, driver), strings.TrimSpace(row[i])
			if strings.HasPrefix(smi, "[") {
				smi = "" // [N/A], [Not Supported]
			}
			s.Compared++
			if !same(f, ours, smi) {
				s.Differ = append(s.Differ, Mismatch{d.ID, f.query, ours, smi})
			}
		}
	}
	for id := range theirs {
		s.Differ = append(s.Differ, Mismatch{id, "uuid", "", id})
	}
	return s, nil
}

// same compares two spellings of a value.
func same(f smiField, ours, smi string) bool {
	if f.query == "pci.bus_id" { // 00000000:1A:00.0 and 0000:1a:00.0
		smi = strings.TrimPrefix(strings.ToLower(smi), "0000")
	}
	a, errA := strconv.ParseFloat(ours, 64)
	b, errB := strconv.ParseFloat(smi, 64)
	if errA == nil && errB == nil && f.query != "driver_version" {
		return math.Abs(a-b) <= f.slack*math.Max(a, b)
	}
	return ours == smi
}

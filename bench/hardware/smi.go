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

// smiValue is a value that both nvidia-smi and our scan report.
type smiValue struct {
	query string
	ours  string // "" if our scan does not know it
	// slack is the maximum relative difference of numbers that count as equal.
	slack float64
}

// smiValues returns the values to compare for a GPU.
func smiValues(d gpu.Device, driver string) []smiValue {
	number := func(p *int64) string {
		if p == nil {
			return ""
		}
		return strconv.FormatInt(*p, 10)
	}
	ecc := ""
	if d.ECC != nil {
		ecc = map[bool]string{true: "Enabled", false: "Disabled"}[*d.ECC]
	}
	return []smiValue{
		{"name", d.Model, 0},
		{"driver_version", driver, 0},
		{"pci.bus_id", d.Place.BusID, 0},
		{"vbios_version", d.Chip.VBIOS, 0},
		{"persistence_mode", d.PersistenceMode, 0},
		{"ecc.mode.current", ecc, 0},
		{"memory.total", number(d.MemoryMiB), 0.01},
		{"enforced.power.limit", number(d.PowerLimitW), 0.01},
		{"clocks.max.sm", number(d.CoresClockMHz), 0},
		{"clocks.max.memory", number(d.MemoryClockMHz), 0},
	}
}

// smiQuery returns the arguments that make nvidia-smi print the fields to compare, as CSV.
func smiQuery() []string {
	names := []string{"uuid"}
	for _, v := range smiValues(gpu.Device{}, "") {
		names = append(names, v.query)
	}
	return []string{"--query-gpu=" + strings.Join(names, ","), "--format=csv,noheader,nounits"}
}

// compareSMI compares nvidia-smi's answer with the scan.
func compareSMI(answer string, ds []gpu.Device, driver string) (*SMI, error) {
	r := csv.NewReader(strings.NewReader(answer))
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading nvidia-smi's answer: %w", err)
	}
	columns := 1 + len(smiValues(gpu.Device{}, ""))
	theirs := map[string][]string{}
	for _, row := range rows {
		if len(row) != columns {
			return nil, errors.New("reading nvidia-smi's answer: " + strings.Join(row, ", "))
		}
		theirs[row[0]] = row[1:]
	}
	s := &SMI{}
	for _, d := range ds {
		if d.MIG.Profile != "" {
			continue
		}
		row, ok := theirs[d.ID]
		if !ok {
			s.Differ = append(s.Differ, Mismatch{d.ID, "uuid", d.ID, ""})
			continue
		}
		delete(theirs, d.ID)
		for i, v := range smiValues(d, driver) {
			smi := strings.TrimSpace(row[i])
			if strings.HasPrefix(smi, "[") {
				smi = "" // [N/A], [Not Supported]
			}
			s.Compared++
			if !v.same(smi) {
				s.Differ = append(s.Differ, Mismatch{d.ID, v.query, v.ours, smi})
			}
		}
	}
	for id := range theirs {
		s.Differ = append(s.Differ, Mismatch{id, "uuid", "", id})
	}
	return s, nil
}

// same reports whether our value equals nvidia-smi's value, which can have another notation.
func (v smiValue) same(smi string) bool {
	if v.query == "pci.bus_id" { // 00000000:1A:00.0 and 0000:1a:00.0
		smi = strings.TrimPrefix(strings.ToLower(smi), "0000")
	}
	a, errA := strconv.ParseFloat(v.ours, 64)
	b, errB := strconv.ParseFloat(smi, 64)
	if errA == nil && errB == nil && v.query != "driver_version" {
		return math.Abs(a-b) <= v.slack*math.Max(a, b)
	}
	return v.ours == smi
}

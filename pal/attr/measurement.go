// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Measurement is what is known of one GPU's speed: for [Raw], the time per
// fixed work unit (arbitrary unit, larger is slower) per application class;
// for [Scores], the PM scores.
type Measurement struct {
	GPU string // instance id
	// Key is the comparability key: values of different keys are never mixed
	// in one median. It holds no space, ';' or '='. "" where it does not apply.
	Key   string
	Times map[pal.AppClass]float64
}

// FormatMeasurements writes measurements sorted by GPU, application classes
// sorted within:
//
//	GPU-1 key=wgmma1/700W/ecc/r570 A=1.234 B=2.5;GPU-2 …
func FormatMeasurements(ms []Measurement) string {
	sorted := append([]Measurement(nil), ms...)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].GPU < sorted[j].GPU })
	var b strings.Builder
	for i, m := range sorted {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(m.GPU)
		if m.Key != "" {
			b.WriteString(" key=" + m.Key)
		}
		for _, c := range sortedClasses(m.Times) {
			fmt.Fprintf(&b, " %s=%s", c, strconv.FormatFloat(m.Times[c], 'g', 6, 64))
		}
	}
	return b.String()
}

// ParseMeasurements reads what [FormatMeasurements] wrote. Errors name the
// entry and the field.
func ParseMeasurements(s string) ([]Measurement, error) {
	if s == "" {
		return nil, nil
	}
	var ms []Measurement
	for _, entry := range strings.Split(s, ";") {
		m, err := parseMeasurement(entry)
		if err != nil {
			return nil, fmt.Errorf("measurement %q: %w", entry, err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func parseMeasurement(entry string) (Measurement, error) {
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return Measurement{}, fmt.Errorf("no GPU id")
	}
	m := Measurement{GPU: fields[0], Times: map[pal.AppClass]float64{}}
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return Measurement{}, fmt.Errorf("field %q has no '='", f)
		}
		if name == "key" {
			m.Key = value
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
			return Measurement{}, fmt.Errorf("field %q is not a positive number", f)
		}
		m.Times[pal.AppClass(name)] = v
	}
	return m, nil
}

func sortedClasses(m map[pal.AppClass]float64) []pal.AppClass {
	cs := make([]pal.AppClass, 0, len(m))
	for c := range m {
		cs = append(cs, c)
	}
	sort.Slice(cs, func(i, j int) bool { return cs[i] < cs[j] })
	return cs
}

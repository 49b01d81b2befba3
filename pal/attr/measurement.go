// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Limits on what one node can publish. The limits are necessary because anyone who runs a Nomad
// client can write any text into these attributes. An eight-GPU server needs 8 measurements, or 56
// if its GPUs are split into MIG instances.
const (
	// MaxGPUs is the maximum number of measurements that one node can publish.
	MaxGPUs = 256
	// MaxApplications is the maximum number of applications in one measurement.
	MaxApplications = 16
	// MaxName is the maximum length of an instance id, application name or key, in bytes.
	MaxName = 256
	// MinValue and MaxValue are the bounds of times and scores. Times can have any unit, if all
	// times that are compared have the same unit. Sums, products and quotients of values within the
	// bounds do not overflow.
	MinValue, MaxValue = 1e-12, 1e12
)

// Measurement has one value per application class for one GPU. A value in [Raw] is the time of a
// fixed piece of work, in an arbitrary unit. A value in [Rates] is a rate, and a value in [Scores]
// is a PM score.
type Measurement struct {
	GPU string // instance id
	// Key is the comparability key: a median never mixes values of different keys. A key contains
	// no space, ';' or '='. Key is empty for values without a key, such as PM scores.
	Key   string
	Times map[pal.AppClass]float64
}

// FormatMeasurements writes measurements, sorted by GPU. Within one measurement, the application
// classes are sorted:
//
//	GPU-1 key=wgmma1/700W/ecc/r570 A=1.234 B=2.5;GPU-2 …
func FormatMeasurements(ms []Measurement) string {
	sorted := slices.Clone(ms)
	slices.SortStableFunc(sorted, func(a, b Measurement) int { return strings.Compare(a.GPU, b.GPU) })
	var b strings.Builder
	for i, m := range sorted {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(m.GPU)
		if m.Key != "" {
			b.WriteString(" key=" + m.Key)
		}
		for _, c := range slices.Sorted(maps.Keys(m.Times)) {
			fmt.Fprintf(&b, " %s=%s", c, strconv.FormatFloat(m.Times[c], 'g', 6, 64))
		}
	}
	return b.String()
}

// ParseMeasurements reads what [FormatMeasurements] wrote, and refuses a text that exceeds the
// limits above. Each error names the entry and the field.
func ParseMeasurements(s string) ([]Measurement, error) {
	if s == "" {
		return nil, nil
	}
	n := strings.Count(s, ";") + 1
	if n > MaxGPUs {
		return nil, fmt.Errorf("there are %d measurements, but a node has at most %d GPUs", n, MaxGPUs)
	}
	var ms []Measurement
	for entry := range strings.SplitSeq(s, ";") {
		m, err := parseMeasurement(entry)
		if err != nil {
			return nil, fmt.Errorf("measurement %.80q: %w", entry, err)
		}
		ms = append(ms, m)
	}
	return ms, nil
}

func parseMeasurement(entry string) (Measurement, error) {
	// An entry has at most MaxApplications+2 fields. The name and the value of a field have at most
	// MaxName bytes each.
	most := (MaxApplications + 2) * 2 * MaxName
	if len(entry) > most {
		return Measurement{}, fmt.Errorf("an entry has %d bytes, but at most %d are allowed", len(entry), most)
	}
	fields := strings.Fields(entry)
	if len(fields) == 0 {
		return Measurement{}, fmt.Errorf("no GPU id")
	}
	m := Measurement{GPU: fields[0], Times: map[pal.AppClass]float64{}}
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return Measurement{}, fmt.Errorf("field %.80q has no '='", f)
		}
		if name == "key" {
			m.Key = value
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
			return Measurement{}, fmt.Errorf("field %.80q is not a positive number", f)
		}
		if err := CheckValue(v); err != nil {
			return Measurement{}, fmt.Errorf("field %.80q: %w", f, err)
		}
		m.Times[pal.AppClass(name)] = v
	}
	for _, name := range append(slices.Sorted(maps.Keys(m.Times)), pal.AppClass(m.GPU), pal.AppClass(m.Key)) {
		if len(name) > MaxName {
			return Measurement{}, fmt.Errorf("%.80q… has %d bytes, more than %d", name, len(name), MaxName)
		}
	}
	if len(m.Times) > MaxApplications {
		return Measurement{}, fmt.Errorf("%d applications, more than %d", len(m.Times), MaxApplications)
	}
	return m, nil
}

// CheckValue returns an error if a time or a score is outside MinValue and MaxValue.
func CheckValue(v float64) error {
	if !(v >= MinValue && v <= MaxValue) {
		return fmt.Errorf("%v is not between %v and %v", v, MinValue, MaxValue)
	}
	return nil
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package attr

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Slot is where a GPU is in its machine, as nvidia-smi shows it.
type Slot struct {
	// Index is nvidia-smi's number of the GPU; nil if unknown. A MIG instance has the number of its
	// GPU. A number can change when the machine boots.
	Index *int
	// BusID is the PCI address in the form of [BusID]; "" if unknown.
	BusID string
}

// Named reports whether a word that somebody typed is the slot's index or PCI address.
func (s Slot) Named(word string) bool {
	if s.Index != nil && word == strconv.Itoa(*s.Index) {
		return true
	}
	return s.BusID != "" && BusID(word) == s.BusID
}

// BusID returns a PCI address in the form of sysfs, 0000:1a:00.0. nvidia-smi and
// nomad-device-nvidia write eight digits of the domain, in capitals. BusID returns "" for a text
// that is not a PCI address.
func BusID(text string) string {
	var domain, bus, device, function uint32
	text = strings.TrimRight(text, "\x00")
	if n, err := fmt.Sscanf(text+" ", "%x:%x:%x.%x ", &domain, &bus, &device, &function); n < 4 || err != nil {
		domain = 0
		if n, err := fmt.Sscanf(text+" ", "%x:%x.%x ", &bus, &device, &function); n < 3 || err != nil {
			return ""
		}
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// FormatIndexes writes the attribute [Indexes]: "GPU-a=1,GPU-b=0", sorted by id.
func FormatIndexes(indexes map[string]int) string {
	var entries []string
	for _, id := range slices.Sorted(maps.Keys(indexes)) {
		entries = append(entries, fmt.Sprintf("%s=%d", id, indexes[id]))
	}
	return strings.Join(entries, ",")
}

// ParseIndexes reads the attribute [Indexes]. ParseIndexes ignores entries that are not an id with
// a number, and everything after [MaxGPUs] entries.
func ParseIndexes(text string) map[string]int {
	out := map[string]int{}
	for _, entry := range strings.SplitN(text, ",", MaxGPUs+1)[:min(MaxGPUs, 1+strings.Count(text, ","))] {
		id, number, ok := strings.Cut(entry, "=")
		if n, err := strconv.ParseUint(number, 10, 15); ok && err == nil {
			out[id] = int(n)
		}
	}
	return out
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package profile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"sort"

	"github.com/nomad-pal/nomad-pal/pal"
)

// Encode writes the profile as indented JSON with a final newline. The same profile always gives
// the same bytes, and Parse reads the same profile from these bytes.
func (p *Profile) Encode() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	// Encoding cannot fail, because a Profile holds only finite numbers and strings.
	if err := enc.Encode(p); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Parse reads what [Profile.Encode] wrote, and checks it, because an incomplete or wrong profile
// must not be used. Each error names the group or the GPU.
func Parse(data []byte) (*Profile, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	p := &Profile{}
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("profile: byte %d: %w", dec.InputOffset(), err)
	}
	switch {
	case dec.More():
		return nil, fmt.Errorf("profile: byte %d: more data after the profile", dec.InputOffset())
	case p.Format != Format:
		return nil, fmt.Errorf("profile: format is %q, want %q", p.Format, Format)
	case p.Version < 1:
		return nil, fmt.Errorf("profile: version: %d is less than 1", p.Version)
	}
	if err := p.Options.check(); err != nil {
		return nil, fmt.Errorf("profile: options: %w", err)
	}
	p.index()
	if err := cmp.Or(p.checkGroups(), p.checkRates(), p.checkGPUs()); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return p, nil
}

// checkGroups returns an error unless the groups are sorted and unique, and have a value for each
// bin. Lookups rely on these properties.
func (p *Profile) checkGroups() error {
	for i := range p.Groups {
		g := &p.Groups[i]
		name := fmt.Sprintf("group %d (model %q, app %q, key %q)", i+1, g.Model, g.App, g.Key)
		switch {
		case i > 0 && p.Groups[i-1].id().compare(g.id()) >= 0:
			return fmt.Errorf("%s is out of order, or occurs twice", name)
		case !positive(g.Reference):
			return fmt.Errorf("%s: reference %v is not a positive number", name, g.Reference)
		case len(g.Values) == 0 || !sort.Float64sAreSorted(g.Values) || !positive(g.Values[0]):
			return fmt.Errorf("%s: values %v are not positive and ascending", name, g.Values)
		case len(g.Values) != MaxClass:
			return fmt.Errorf("%s: %d values, want %d", name, len(g.Values), MaxClass)
		}
	}
	return nil
}

// checkGPUs checks that the GPUs and their entries are sorted and unique, because lookups use
// binary search.
func (p *Profile) checkGPUs() error {
	for i := range p.GPUs {
		gpu := &p.GPUs[i]
		if gpu.ID == "" || i > 0 && p.GPUs[i-1].ID >= gpu.ID {
			return fmt.Errorf("gpu %d (%q) has no id, is out of order, or occurs twice", i+1, gpu.ID)
		}
		for j := range gpu.Entries {
			e := &gpu.Entries[j]
			if j > 0 && gpu.Entries[j-1].App >= e.App {
				return fmt.Errorf("gpu %q: app %q is out of order, or occurs twice", gpu.ID, e.App)
			}
			if err := p.checkEntry(gpu.Model, e); err != nil {
				return fmt.Errorf("gpu %q: app %q: %w", gpu.ID, e.App, err)
			}
		}
	}
	return nil
}

// checkEntry returns an error if an entry is invalid, or if its value is not the value of its class
// in the group.
func (p *Profile) checkEntry(model string, e *Entry) error {
	g, ok := p.Group(model, e.App, e.Key)
	switch {
	case !ok:
		return fmt.Errorf("no group for model %q, key %q", model, e.Key)
	case !positive(e.Time) || !positive(float64(e.Score)):
		return fmt.Errorf("time %v or score %v is not a positive number", e.Time, e.Score)
	case e.Class < 1 || e.Class > MaxClass:
		return fmt.Errorf("class %d is not in 1…%d", e.Class, MaxClass)
	case e.Pending < 0 || e.Pending > MaxClass:
		return fmt.Errorf("pending class %d is not in 0…%d", e.Pending, MaxClass)
	case e.Value != pal.PMScore(g.Values[e.Class-1]) && !(e.Outlier && e.Value == e.Score):
		return fmt.Errorf("value %v differs from the value %v of class %d", e.Value, g.Values[e.Class-1], e.Class)
	}
	return nil
}

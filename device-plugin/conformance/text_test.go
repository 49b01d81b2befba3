// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

func describe(gs []*device.DeviceGroup) string {
	var out strings.Builder
	out.WriteString(fmt.Sprintf("%d groups", len(gs)))
	for _, g := range gs {
		out.WriteString("; " + g.Name)
		for _, d := range g.Devices {
			out.WriteString(fmt.Sprintf(" %s=%v(%s)", d.ID, d.Healthy, d.HealthDesc))
		}
	}
	return out.String()
}

// attribute returns a group's attribute as text, or "absent".
func attribute(g *device.DeviceGroup, name string) string {
	a := g.Attributes[name]
	switch {
	case a == nil:
		return "absent"
	case a.String != nil:
		return "string " + *a.String
	case a.Int != nil:
		return fmt.Sprintf("int %d %s", *a.Int, a.Unit)
	case a.Bool != nil:
		return fmt.Sprintf("bool %v", *a.Bool)
	}
	return fmt.Sprintf("%+v", *a)
}

func statText(all map[string]*device.DeviceStats) string {
	var out strings.Builder
	for id, s := range all {
		out.WriteString("\n" + id)
		for name, v := range s.Stats.Attributes {
			out.WriteString("\n  " + name + " = " + statValue(v))
		}
	}
	return out.String()
}

// statValue returns a statistic as one line.
func statValue(v *structs.StatValue) string {
	switch {
	case v == nil:
		return "absent"
	case v.StringVal != nil:
		return "string " + *v.StringVal + " " + v.Unit
	case v.IntNumeratorVal != nil && v.IntDenominatorVal != nil:
		return fmt.Sprintf("int %d/%d %s", *v.IntNumeratorVal, *v.IntDenominatorVal, v.Unit)
	case v.IntNumeratorVal != nil:
		return fmt.Sprintf("int %d %s", *v.IntNumeratorVal, v.Unit)
	case v.FloatNumeratorVal != nil:
		return fmt.Sprintf("float %g %s", *v.FloatNumeratorVal, v.Unit)
	case v.BoolVal != nil:
		return fmt.Sprintf("bool %v", *v.BoolVal)
	}
	return "empty"
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// published is the data that the attributes of a device group contain about the group's GPUs.
type published struct {
	degraded map[string]string         // reasons by instance id
	given    map[string]map[int]rating // by instance id and application class
	last     [pal.NumClasses]pal.PMScore
}

// rating is a GPU's PM score and its variability class. value is the score that represents all GPUs
// of the class.
type rating struct {
	score, value pal.PMScore
	class        int
}

// published reads a device group's attributes.
func (v *Ledger) published(d *api.NodeDeviceResource) published {
	p := published{degraded: degradations(d), given: given(d)}
	model := attr.ModelOf(d.Type, d.Name)
	if len(p.degraded) > 0 {
		p.last = v.lastBins(model)
	}
	if len(p.given) > 0 {
		v.bins(model, p.given)
	}
	return p
}

// rate completes the scores of a GPU. For application classes without a score in the cluster's
// profile, rate adds the scores from the plugin's own profile file. A degraded GPU gets the last
// variability class, whatever its score.
func (p published) rate(u *pal.GPU) {
	for k, r := range p.given[attr.GPUOf(u.ID)] {
		if u.Classes[k] == 0 {
			u.Scores[k] = r.score
			u.Binned[k] = r.value
			u.Classes[k] = uint8(r.class)
		}
	}
	u.Degraded = p.degraded[u.ID]
	if u.Degraded == "" {
		return
	}
	for k := range u.Classes {
		u.Classes[k], u.Binned[k] = profile.MaxClass, max(u.Binned[k], p.last[k])
	}
}

// samePublished reports whether two versions of a device group publish the same data about their
// GPUs.
func samePublished(a, b *api.NodeDeviceResource) bool {
	return maps.Equal(degradations(a), degradations(b)) && givenText(a) == givenText(b) && cluster.SameSlots(a, b)
}

// degradations maps the ids of degraded GPUs to the reasons why they are degraded. The reason is
// part of the GPU's health description, unless the GPU is also unhealthy.
func degradations(d *api.NodeDeviceResource) map[string]string {
	ids := attr.SplitIDs(cluster.TextOf(d, attr.Degraded))
	if len(ids) == 0 {
		return nil
	}
	out := make(map[string]string, len(ids))
	for _, id := range ids {
		out[id] = "for a reason that the plugin does not name"
	}
	for _, in := range d.Instances {
		if reasons, ok := strings.CutPrefix(in.HealthDescription, attr.DegradedPrefix); ok && in.Healthy && out[in.ID] != "" {
			out[in.ID] = reasons
		}
	}
	return out
}

// givenText returns the scores that a plugin loaded from a profile file, or "" if the plugin got
// its scores from another source.
func givenText(d *api.NodeDeviceResource) string {
	if cluster.TextOf(d, attr.Reference) != attr.ReferenceFile {
		return ""
	}
	return cluster.TextOf(d, attr.Scores)
}

// given parses the scores and classes that a plugin loaded from a profile file. given does not set
// the value of the ratings; [Ledger.bins] does. If the scores cannot be parsed, all GPUs of the
// group count as not measured.
func given(d *api.NodeDeviceResource) map[string]map[int]rating {
	ms, err := attr.ParseMeasurements(givenText(d))
	if err != nil || len(ms) == 0 {
		return nil
	}
	out := make(map[string]map[int]rating, len(ms))
	for _, m := range ms {
		if !slices.ContainsFunc(d.Instances, func(in *api.NodeDevice) bool { return attr.GPUOf(in.ID) == m.GPU }) {
			continue
		}
		out[m.GPU] = map[int]rating{}
		for i, class := range pal.AppClasses() {
			if score, ok := m.Times[class]; ok {
				out[m.GPU][i] = rating{score: pal.PMScore(score), class: profile.MaxClass}
			}
		}
	}
	for i, class := range pal.AppClasses() {
		for k := profile.MaxClass - 1; k >= 1; k-- { // the shortest list that contains the GPU gives its class
			for _, id := range attr.SplitIDs(cluster.TextOf(d, attr.List(class, k))) {
				if r, ok := out[attr.GPUOf(id)][i]; ok {
					r.class = k
					out[attr.GPUOf(id)][i] = r
				}
			}
		}
	}
	return out
}

// outlier reports whether the GPU is an outlier. Each outlier has its own bin.
func (r rating) outlier() bool { return float64(r.score) >= profile.DefaultOptions().Outlier }

// bins sets the value of each rating to the mean score of all GPUs of the same model and class in
// the cluster. bins assumes that all nodes have the same profile file.
func (v *Ledger) bins(model string, gs map[string]map[int]rating) {
	if v.givenBins == nil {
		v.givenBins = map[binKey]pal.PMScore{}
		count := map[binKey]int{}
		for _, n := range v.Nodes {
			for _, d := range cluster.GPUDevices(n) {
				for _, ratings := range given(d) {
					for i, r := range ratings {
						k := binKey{attr.ModelOf(d.Type, d.Name), i, r.class}
						if !r.outlier() {
							v.givenBins[k] += r.score
							count[k]++
						}
					}
				}
			}
		}
		for k, n := range count {
			v.givenBins[k] /= pal.PMScore(n)
		}
	}
	for _, ratings := range gs {
		for i, r := range ratings {
			r.value = r.score
			if !r.outlier() {
				r.value = v.givenBins[binKey{model, i, r.class}]
			}
			ratings[i] = r
		}
	}
}

// binKey identifies a bin by a model, the number of an application class, and a variability class.
type binKey struct {
	model      string
	app, class int
}

// lastBins returns, for each application class, the value of the last variability class of a model.
// The value is that of the slowest known bin, but at least the lower edge of the last class.
func (v *Ledger) lastBins(model string) (last [pal.NumClasses]pal.PMScore) {
	edges := profile.DefaultOptions().Edges
	for k := range last {
		last[k] = pal.PMScore(edges[len(edges)-1])
	}
	p := v.opts.Profile
	if p != nil {
		for i := range p.Groups {
			g := &p.Groups[i]
			k := slices.Index(pal.AppClasses(), g.App)
			if k >= 0 && g.Model == model && len(g.Values) > 0 {
				last[k] = max(last[k], pal.PMScore(slices.Max(g.Values)))
			}
		}
	}
	return last
}

// HealthDescriptions returns the device plugins' descriptions of unhealthy GPUs, by instance id.
func (v *Ledger) HealthDescriptions() map[string]string {
	out := map[string]string{}
	for _, d := range v.Devices {
		for _, in := range d.Instances {
			if !in.Healthy {
				out[in.ID] = cmp.Or(in.HealthDescription, "unhealthy")
			}
		}
	}
	return out
}

// Uncapped returns the GPUs of a device group that did not reach the power limit when class A was
// measured. Their scores say little about jobs that reach this limit. GPUs with imported times are
// left out.
func (v *Ledger) Uncapped(group int) map[string]bool {
	d, out := v.Devices[group], map[string]bool{}
	accounts, err := attr.ParseAccounts(cluster.TextOf(d, attr.Measuring))
	if err != nil || len(accounts) == 0 || v.opts.Profile == nil {
		return out
	}
	ms, err := attr.ParseMeasurements(cluster.TextOf(d, attr.Raw))
	if err != nil {
		return out
	}
	for _, m := range ms {
		e, ok := v.opts.Profile.Lookup(m.GPU, pal.ClassA)
		out[m.GPU] = ok && e.Key == m.Key && accounts[m.GPU].Uncapped
	}
	return out
}

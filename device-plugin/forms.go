// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
)

// forms tracks the form in which each device is published: whole, or in parts. If the configured
// form changes, the device keeps its old form until all of its tasks have ended. Until then, the
// device's instances are unhealthy, so that Nomad places no new task on them. Running tasks can
// still restart, because Reserve accepts these instances. A device whose name changes is treated
// likewise, because Nomad records the use of a device under its group's name.
type forms struct {
	shared map[string]form   // forms as last published, by device; without devices that are published whole
	known  map[string]bool   // devices that were published at any time, in any form
	waits  map[string]string // devices that keep their old form, with the task that holds them; "" if not known yet
	want   map[string]form   // forms as configured, by device
	warned string            // last logged reason why Nomad could not be asked
	// names are the models under which devices are published. renamed has the new models of the
	// devices that keep their old name.
	names, renamed map[string]string
}

// sharingFile holds the forms of the devices that are published in parts.
const sharingFile = "sharing.json"

// formsEvery is the time between two questions to Nomad about which tasks hold devices in their old
// form.
const formsEvery = 5 * time.Second

// openForms reads the stored forms. before lists the last published devices.
func openForms(s *store, before []gpu.Device) (*forms, error) {
	f := &forms{
		shared: map[string]form{}, known: map[string]bool{}, waits: map[string]string{}, want: map[string]form{},
		names: map[string]string{}, renamed: map[string]string{},
	}
	_, err := s.Read(sharingFile, &f.shared)
	for _, d := range before {
		f.known[d.ID], f.names[d.ID] = true, d.Model
	}
	for id := range f.shared {
		f.known[id] = true
	}
	return f, err
}

// named gives each device the name under which it is published. A device whose name has changed
// keeps its old name until no task holds the device.
func (f *forms) named(ds []gpu.Device) []gpu.Device {
	ds = slices.Clone(ds)
	for i := range ds {
		d := &ds[i]
		was, known := f.names[d.ID]
		if !known || was == d.Model {
			f.names[d.ID] = d.Model
			delete(f.renamed, d.ID)
			continue
		}
		f.renamed[d.ID], d.Model = d.Model, was
		if _, waiting := f.waits[d.ID]; !waiting {
			f.waits[d.ID] = ""
		}
	}
	return ds
}

// take gives these devices their planned forms. A device that a task may hold in another form keeps
// that form. changed reports whether the forms must be stored.
func (f *forms) take(want map[string]form, ds []gpu.Device) (changed bool) {
	f.want = want
	for _, d := range ds {
		switch have := f.shared[d.ID]; {
		case have == want[d.ID]:
			if f.renamed[d.ID] == "" {
				delete(f.waits, d.ID)
			}
		case !f.known[d.ID]:
			f.adopt(d.ID)
			changed = true
		default:
			if _, waiting := f.waits[d.ID]; !waiting {
				f.waits[d.ID] = ""
			}
		}
		f.known[d.ID] = true
	}
	return changed
}

// adopt gives a device its planned form and its new name.
func (f *forms) adopt(id string) {
	delete(f.waits, id)
	if name := f.renamed[id]; name != "" {
		f.names[id] = name
		delete(f.renamed, id)
	}
	if want := f.want[id]; want.shared() {
		f.shared[id] = want
	} else {
		delete(f.shared, id)
	}
}

// waiting returns the devices that keep their old form, sorted.
func (f *forms) waiting() []string { return slices.Sorted(maps.Keys(f.waits)) }

// shape sets the forms of the view's devices. complete means that the driver listed all devices.
// Callers hold mu.
func (p *Plugin) shape(complete bool) {
	plan := planSharing(p.cfg.Sharing, p.view.inv.Devices, complete)
	for _, problem := range plan.problems {
		p.warnOnce(problem)
	}
	p.sharedBy = plan.blocks
	if p.forms.take(plan.forms, p.view.inv.Devices) {
		p.saveForms()
	}
	p.view.forms = maps.Clone(p.forms.shared)
	p.wantDaemons()
}

// SharingProblems lists the requests of the sharing blocks that the inventory does not meet, in one
// sentence each.
func (p *Plugin) SharingProblems(inv gpu.Inventory) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return planSharing(p.cfg.Sharing, inv.Devices, inv.Unidentified() == 0).problems
}

func (p *Plugin) saveForms() {
	p.stored("the plugin cannot store the state of shared GPUs, so it does not notice a changed configuration after a restart", p.store.Write(sharingFile, p.forms.shared))
}

// reshape gives a device its new form or name, because no task holds the device or the operator
// ordered the change. Callers hold mu.
func (p *Plugin) reshape(id string) {
	if _, waiting := p.forms.waits[id]; !waiting {
		return
	}
	was, name := p.forms.shared[id], p.forms.names[id]
	p.forms.adopt(id)
	if now := p.forms.names[id]; now != name {
		p.log.Info("the GPU is now published under its new name", "gpu", id, "was", name, "is", now)
		p.view.inv.Devices = slices.Clone(p.view.inv.Devices) // statistics may be reading the old slice
		for i := range p.view.inv.Devices {
			if d := &p.view.inv.Devices[i]; d.ID == id {
				d.Model = now
			}
		}
	}
	if now := p.forms.shared[id]; now != was {
		p.log.Info("the GPU is now published as the sharing configuration says", "gpu", id, "was", was, "is", now)
	}
	p.saveForms()
	p.view.forms = maps.Clone(p.forms.shared)
	p.wantDaemons()
}

// books is Nomad's answer about the devices that keep their old form.
type books struct {
	asked []string
	held  map[string]string // the task that holds each device
	err   error
}

// followForms asks Nomad which tasks hold the devices that keep their old form, until ctx ends.
func (s *stream) followForms(ctx context.Context) {
	tick := time.NewTicker(formsEvery)
	defer tick.Stop()
	for {
		s.p.mu.Lock()
		asked := s.p.forms.waiting()
		s.p.mu.Unlock()
		if len(asked) > 0 {
			held, err := s.p.allocated(ctx, asked)
			select {
			case s.books <- books{asked, held, err}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// consult applies Nomad's answer: devices that no task holds get their new form.
func (s *stream) consult(b books) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.err != nil {
		if said := b.err.Error(); said != p.forms.warned {
			p.forms.warned = said
			p.log.Warn("GPUs keep their old form or name, because it is not known whether tasks use them", "gpus", b.asked, "error", said,
				"next", "let the plugin ask Nomad (config block nomad), or drain the node, then: "+Order(p.cfg.StateDir, "clear", b.asked...))
		}
		return
	}
	p.forms.warned = ""
	for _, id := range b.asked {
		was, waiting := p.forms.waits[id]
		switch by := b.held[id]; {
		case !waiting:
		case by == "":
			p.reshape(id)
		case by != was:
			p.log.Info("the GPU keeps its old form or name until its tasks have ended", "gpu", id, "held_by", by,
				"is", p.forms.shared[id], "will_be", p.forms.want[id], "named", p.forms.names[id], "new_name", p.forms.renamed[id])
			p.forms.waits[id] = by
		}
	}
	p.judge()
}

// sharingVerdicts adds the problems of sharing to the verdicts.
func (p *Plugin) sharingVerdicts(verdicts map[string]verdict) {
	for id := range p.forms.waits {
		if v, ok := verdicts[id]; ok && v.healthy {
			verdicts[id] = verdict{reason: reasonSharing, degraded: v.degraded}
			if p.forms.renamed[id] != "" {
				verdicts[id] = verdict{reason: reasonName, degraded: v.degraded}
			}
		}
	}
	for id, v := range verdicts {
		if trouble := p.keeper.Trouble(id); v.healthy && trouble != "" {
			verdicts[id] = verdict{reason: trouble, degraded: v.degraded}
		}
	}
}

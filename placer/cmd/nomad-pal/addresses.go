// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// addressesShown is the maximum number of members whose addresses are printed.
const addressesShown = 16

// printAddresses prints the addresses of running members, if the job has ports. printAddresses
// leaves out members whose addresses Nomad does not report.
func printAddresses(b *base, a *answers, e *palapi.Explanation) {
	job, err := a.nomad.Job(b.ctx, cluster.JobKey{Namespace: e.Namespace, ID: e.Job})
	if err != nil || job == nil || !slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool { return len(g.Networks) > 0 }) {
		return
	}
	rows := []string{row("Member", "Port", "Address")}
	var found []address
	for _, m := range e.Allocations[:min(len(e.Allocations), addressesShown)] {
		got, _, err := a.nomad.API().Allocations().Info(m.ID, (&api.QueryOptions{Namespace: e.Namespace}).WithContext(b.ctx))
		if err != nil || got.ClientStatus != api.AllocClientStatusRunning || got.AllocatedResources == nil {
			continue
		}
		for _, p := range got.AllocatedResources.Shared.Ports {
			n := cluster.MemberNumber(got.Name)
			found = append(found, address{m.Group, n, row(fmt.Sprintf("%s[%d]", m.Group, n), p.Label, net.JoinHostPort(p.HostIP, strconv.Itoa(p.Value)))})
		}
	}
	b.section("Addresses", append(rows, byMember(found)...))
}

// address is a table row with an address of a gang's member.
type address struct {
	group  string
	number int
	row    string
}

// byMember returns the table rows of addresses, sorted by group and member.
func byMember(found []address) []string {
	slices.SortStableFunc(found, func(a, b address) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.number, b.number))
	})
	return each(found, func(a address) string { return a.row })
}

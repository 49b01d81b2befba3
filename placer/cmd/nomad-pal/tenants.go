// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"

	"github.com/nomad-pal/nomad-pal/pal/queue"
)

// printTenants prints what tenants hold and have used, where there is something to
// compare: more than one, or a quota.
func (b *base) printTenants(tenants []queue.TenantUse) {
	told := len(tenants) > 1
	for _, t := range tenants {
		told = told || t.Quota > 0 || t.Limit != nil
	}
	if !told {
		return
	}
	b.printf("\nTenants\n")
	rows := []string{row("Tenant", "GPUs", "Quota", "Borrowed", "At most", "GPU hours used", "Times its share")}
	for _, t := range tenants {
		quota, borrowed, most := "none", "", ""
		if t.Quota > 0 {
			quota, borrowed = fmt.Sprint(t.Quota), fmt.Sprint(t.Borrowed())
		}
		if t.Limit != nil {
			most = fmt.Sprint(*t.Limit)
		}
		rows = append(rows, row(t.Tenant, t.GPUs, quota, borrowed, most, fmt.Sprintf("%.1f", t.GPUHours), fmt.Sprintf("%.2f", t.Times)))
	}
	b.table(rows)
}

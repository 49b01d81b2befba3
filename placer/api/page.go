// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package api

import "time"

// QueuePage is a page of the list of jobs. Total and States count all jobs that the caller may see.
// Matching counts the entries that match the filter. GPUs counts the GPUs that the matching jobs
// hold or request. Without a search text, an array is one entry: see [ByArray].
type QueuePage struct {
	Total    int           `json:"total"`
	Matching int           `json:"matching"`
	GPUs     float64       `json:"gpus"`
	States   map[State]int `json:"states"`
	Jobs     []JobStatus   `json:"jobs"`
}

// Sample is the state of the cluster at one time. Sample must contain no names, because /v1/history
// needs no token.
type Sample struct {
	At        time.Time `json:"at"`
	GPUs      float64   `json:"gpus"`
	Free      float64   `json:"free"`
	Allocated float64   `json:"allocated"`
	Waiting   int       `json:"waiting"`
	Running   int       `json:"running"`
	Requested float64   `json:"requested"` // GPUs that waiting jobs request
	Placed    int       `json:"placed"`    // gangs placed since the previous sample
	// Unhealthy, Quarantined and Degraded count GPUs. Outliers counts GPUs by application class.
	Unhealthy   float64            `json:"unhealthy,omitempty"`
	Quarantined float64            `json:"quarantined,omitempty"`
	Degraded    float64            `json:"degraded,omitempty"`
	Outliers    map[string]float64 `json:"outliers,omitempty"`
	Refused     int                `json:"refused,omitempty"` // jobs that cannot start now
	// Chosen and Packed are the mean predicted slowdowns of running gangs. SlowdownGPUs is the
	// number of GPUs of these gangs.
	Chosen       float64 `json:"slowdown_chosen,omitempty"`
	Packed       float64 `json:"slowdown_packed,omitempty"`
	SlowdownGPUs int     `json:"slowdown_gpus,omitempty"`
}

// Use is a period in which a job held GPUs. To is zero if the job still holds the GPUs.
type Use struct {
	Namespace string    `json:"namespace"`
	Job       string    `json:"job"`
	GPUs      []string  `json:"gpus"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to,omitzero"`
}

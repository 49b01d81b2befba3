// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package query

import (
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/cluster"
)

// A job may be named by the beginning of its ID if that is unique.
func TestFindJob(t *testing.T) {
	t.Parallel()
	known := []cluster.JobKey{{Namespace: "a", ID: "train"}, {Namespace: "a", ID: "train-2"}, {Namespace: "b", ID: "serve"}}
	for _, c := range []struct {
		namespace, id string
		want          cluster.JobKey // zero: not unique
	}{
		{"a", "train", known[0]},
		{"a", "train-", known[1]},
		{"a", "tr", cluster.JobKey{}},
		{"a", "se", cluster.JobKey{Namespace: "a", ID: "se"}},
		{"*", "se", known[2]},
		{"*", "none", cluster.JobKey{Namespace: "default", ID: "none"}},
	} {
		if got, err := FindJob(known, c.namespace, c.id); got != c.want || (err == nil) != (c.want.ID != "") {
			t.Errorf("%s in %s: %v, %v, want %v", c.id, c.namespace, got, err, c.want)
		}
	}
	if _, err := FindJob(known, "a", "tr"); err == nil || err.Error() != `job prefix "tr" is not unique: a/train, a/train-2` {
		t.Error(err)
	}
}

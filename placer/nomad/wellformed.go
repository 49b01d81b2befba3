// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ErrMalformed is a job that no jobspec could say: with null where Nomad's own
// code, and ours, expects an entry.
var ErrMalformed = errors.New("malformed job")

// Wellformed checks a job as it was decoded, before Canonicalize or anything
// else looks into it: it has an ID, and no list and no map in it has a null
// entry, at any depth. A job from elsewhere than Nomad's own parser may have
// such entries: `"Constraints": [null]` is JSON. Free-form values, such as a
// driver's config, may be null. Errors are [ErrMalformed] and say where.
func Wellformed(job *api.Job) error {
	if job == nil {
		return fmt.Errorf("%w: there is no job", ErrMalformed)
	}
	if err := noNulls(reflect.ValueOf(job).Elem(), "Job"); err != nil {
		return err
	}
	if job.ID == nil || *job.ID == "" {
		return fmt.Errorf("%w: Job.ID is missing", ErrMalformed)
	}
	for i, g := range job.TaskGroups {
		if g.Name == nil || *g.Name == "" {
			return fmt.Errorf("%w: Job.TaskGroups[%d].Name is missing", ErrMalformed, i)
		}
	}
	return nil
}

// noNulls walks a value of known type. Interfaces are left alone: what is in
// them is nobody's business but the driver's.
func noNulls(v reflect.Value, at string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil // an optional field; entries are checked by their list or map
		}
		return noNulls(v.Elem(), at)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if err := noNulls(v.Field(i), at+"."+f.Name); err != nil {
					return err
				}
			}
		}
	case reflect.Slice, reflect.Array:
		if scalar(v.Type().Elem().Kind()) {
			return nil
		}
		for i := range v.Len() {
			if err := entry(v.Index(i), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		if scalar(v.Type().Elem().Kind()) {
			return nil
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			if err := entry(v.MapIndex(k), fmt.Sprintf("%s[%q]", at, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// scalar says whether values of the kind hold no others and are never null: there may
// be millions of them in a list.
func scalar(k reflect.Kind) bool {
	return k > reflect.Invalid && k <= reflect.Complex128 || k == reflect.String
}

func entry(v reflect.Value, at string) error {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: %s is null", ErrMalformed, at)
	}
	return noNulls(v, at)
}

// stored checks that a job is as Nomad returns jobs: nothing is missing that this
// package reads without asking, and no entry is null. Errors are [ErrMalformed].
func stored(job *api.Job) error {
	if err := Wellformed(job); err != nil {
		return err
	}
	for name, missing := range map[string]bool{
		"Namespace": job.Namespace == nil, "Name": job.Name == nil, "Type": job.Type == nil, "Priority": job.Priority == nil,
		"Version": job.Version == nil, "ModifyIndex": job.ModifyIndex == nil, "JobModifyIndex": job.JobModifyIndex == nil, "SubmitTime": job.SubmitTime == nil,
	} {
		if missing {
			return fmt.Errorf("%w: it lacks %s, which Nomad gives every job", ErrMalformed, name)
		}
	}
	for i, g := range job.TaskGroups {
		if g.Count == nil {
			return fmt.Errorf("%w: Job.TaskGroups[%d].Count is missing", ErrMalformed, i)
		}
	}
	return nil
}

// takeJob takes in a job as Nomad shows it. One that is malformed is not among the
// jobs, whatever was known of it: it cannot be served.
func (s *State) takeJob(job *api.Job) {
	err := stored(job)
	if err == nil {
		delete(s.Unread, KeyOf(job))
		s.PutJob(job)
		return
	}
	k := KeyOf(job) // callers have seen to it that it has one
	s.Unread[k] = fmt.Errorf("job %q in namespace %q: %w", k.ID, k.Namespace, err)
	s.dropJob(k)
}

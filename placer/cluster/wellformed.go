// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// ErrMalformed marks a job that no jobspec can produce, because it has null where Nomad's code and
// the placer's code expect a value.
var ErrMalformed = errors.New("malformed job")

// Wellformed checks a decoded job before Canonicalize or anything else reads it. The job must have
// an ID, its groups must have names, and no list or map of the job, at any depth, may contain null.
// Jobs from other programs than Nomad's own parser can contain null entries, because
// `"Constraints": [null]` is valid JSON. Free-form values, such as a driver's config, may be null.
// Errors wrap [ErrMalformed] and name the field.
func Wellformed(job *api.Job) error {
	if job == nil {
		return fmt.Errorf("%w: there is no job", ErrMalformed)
	}
	at, null := nullIn(reflect.ValueOf(job).Elem())
	if null {
		return fmt.Errorf("%w: Job%s is null", ErrMalformed, at)
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

// nullIn returns the path of a null entry in a value, if there is one. nullIn skips interfaces,
// because only drivers read the values in them.
func nullIn(v reflect.Value) (at string, null bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() { // nil is an unset field; lists and maps check their entries
			return nullIn(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.CanInterface() {
				at, null := nullIn(f)
				if null {
					return "." + v.Type().Field(i).Name + at, true
				}
			}
		}
	case reflect.Slice, reflect.Array:
		if scalar(v.Type().Elem().Kind()) {
			break
		}
		for i := range v.Len() {
			at, null := entry(v.Index(i))
			if null {
				return fmt.Sprintf("[%d]%s", i, at), true
			}
		}
	case reflect.Map:
		if scalar(v.Type().Elem().Kind()) {
			break
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			at, null := entry(v.MapIndex(k))
			if null {
				return fmt.Sprintf("[%q]%s", k, at), true
			}
		}
	}
	return "", false
}

// scalar reports whether values of this kind need no check. Such values are never null and contain
// nothing that can be null, or are interfaces, which nullIn skips. Lists of such values can have
// millions of entries, so skipping them saves time.
func scalar(k reflect.Kind) bool {
	return k > reflect.Invalid && k <= reflect.Complex128 || k == reflect.String || k == reflect.Interface
}

func entry(v reflect.Value) (at string, null bool) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "", true
	}
	return nullIn(v)
}

// CheckStored checks a job that Nomad returned. All fields that the placer reads without checking
// must be set, and no entry may be null. Errors wrap [ErrMalformed].
func CheckStored(job *api.Job) error {
	if err := Wellformed(job); err != nil {
		return err
	}
	for _, of := range []struct {
		name    string
		missing bool
	}{
		{"Namespace", job.Namespace == nil}, {"Name", job.Name == nil}, {"Type", job.Type == nil}, {"Priority", job.Priority == nil},
		{"Version", job.Version == nil}, {"ModifyIndex", job.ModifyIndex == nil}, {"JobModifyIndex", job.JobModifyIndex == nil}, {"SubmitTime", job.SubmitTime == nil},
	} {
		if of.missing {
			return fmt.Errorf("%w: the job lacks %s, which Nomad gives every job", ErrMalformed, of.name)
		}
	}
	for i, g := range job.TaskGroups {
		if g.Count == nil {
			return fmt.Errorf("%w: Job.TaskGroups[%d].Count is missing", ErrMalformed, i)
		}
	}
	return nil
}

// takeJob stores a job that Nomad sent. A malformed job cannot be served, so takeJob also drops the
// stored job.
func (s *State) takeJob(job *api.Job) {
	err := CheckStored(job)
	if err == nil {
		delete(s.Unread, KeyOf(job))
		s.PutJob(job)
		return
	}
	k := KeyOf(job) // callers have checked that the job has a key
	s.Unread[k] = fmt.Errorf("job %q in namespace %q: %w", k.ID, k.Namespace, err)
	s.DropJob(k)
}

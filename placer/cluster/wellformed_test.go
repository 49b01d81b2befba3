// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/nomad-pal/nomad-pal/placer/cluster/clustertest"
)

// TestWellformed puts null into each list and map of pointers that a job has. It finds them by
// walking the type, so that it includes fields that Nomad adds later.
func TestWellformed(t *testing.T) {
	t.Parallel()
	var places []string
	collect(reflect.TypeFor[api.Job](), reflect.New(reflect.TypeFor[api.Job]()), "Job", nil, &places, t, 0)
	for _, want := range []string{
		"Job.Constraints[0]", "Job.Affinities[0]", "Job.Spreads[0]", "Job.Spreads[0].SpreadTarget[0]", "Job.TaskGroups[0]",
		"Job.TaskGroups[0].Networks[0]", "Job.TaskGroups[0].Services[0]", "Job.TaskGroups[0].Tasks[0]", "Job.TaskGroups[0].Volumes[\"k\"]",
		"Job.TaskGroups[0].Tasks[0].Resources.Devices[0]", "Job.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints[0]",
		"Job.TaskGroups[0].Tasks[0].Templates[0]", "Job.TaskGroups[0].Tasks[0].Artifacts[0]",
	} {
		if !strings.Contains(strings.Join(places, "\n")+"\n", want+"\n") {
			t.Errorf("%s was not tried; tried %d places", want, len(places))
		}
	}
}

// collect puts a null into each list and map of pointers below v in turn, and checks that
// Wellformed refuses the job and names that place. path rebuilds the job down to v.
func collect(typ reflect.Type, v reflect.Value, at string, path []func(reflect.Value) reflect.Value, places *[]string, t *testing.T, depth int) {
	if depth > 12 {
		t.Fatalf("%s: the job type is deeper than expected", at)
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() {
			continue
		}
		into := func(s reflect.Value) reflect.Value { return s.Field(i) }
		at := at + "." + f.Name
		switch ft := f.Type; ft.Kind() {
		case reflect.Pointer, reflect.Struct:
			collect(ft, v, at, append(path[:len(path):len(path)], into), places, t, depth+1)
		case reflect.Slice, reflect.Map:
			in := func(s reflect.Value) reflect.Value { return fill(s.Field(i)) }
			name := at + "[0]"
			if ft.Kind() == reflect.Map {
				name = at + `["k"]`
			}
			if ft.Elem().Kind() == reflect.Pointer {
				checkNull(t, append(path[:len(path):len(path)], into), name)
				*places = append(*places, name)
			}
			if ft.Kind() == reflect.Slice || ft.Elem().Kind() == reflect.Pointer {
				collect(ft.Elem(), v, name, append(path[:len(path):len(path)], in), places, t, depth+1)
			}
		}
	}
}

// fill puts one entry into a list or map and returns it.
func fill(v reflect.Value) reflect.Value {
	elem := reflect.New(v.Type().Elem()).Elem()
	if elem.Kind() == reflect.Pointer {
		elem.Set(reflect.New(elem.Type().Elem()))
	}
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), elem)
		return elem
	}
	v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	v.Index(0).Set(elem)
	return v.Index(0)
}

func checkNull(t *testing.T, path []func(reflect.Value) reflect.Value, name string) {
	t.Helper()
	id := "j"
	job := &api.Job{}
	v := reflect.ValueOf(job).Elem()
	for _, step := range path {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = step(v)
	}
	elem := reflect.Zero(v.Type().Elem())
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), elem)
	} else {
		v.Set(reflect.Append(v, elem))
	}
	job.ID = &id
	err := Wellformed(job)
	if want := fmt.Sprintf("malformed job: %s is null", name); !errors.Is(err, ErrMalformed) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A job may lack some fields, and must have others.
func TestWellformedJobs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`null`:                  "malformed job: there is no job",
		`{}`:                    "malformed job: Job.ID is missing",
		`{"ID": ""}`:            "malformed job: Job.ID is missing",
		`{"ID": "j"}`:           "",
		`{"TaskGroups":[null]}`: "malformed job: Job.TaskGroups[0] is null",
		`{"ID": "j", "TaskGroups": [{"Name": "g"}, {}]}`: "malformed job: Job.TaskGroups[1].Name is missing",
		// A driver's config may contain null, and null lists are empty lists.
		`{"ID": "j", "Constraints": null, "TaskGroups": [{"Name": "g", "Tasks": [{"Config": {"a": null, "b": [null]}}]}]}`: "",
	} {
		var job *api.Job
		if err := json.Unmarshal([]byte(text), &job); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := Wellformed(job); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// The placer reads thousands of jobs in a row: checking a wellformed job allocates no memory.
func TestStoredAllocatesNothing(t *testing.T) {
	job := addJob(t, NewState(), clustertest.Jobspec("j", 2, 4, ""), 1)
	if n := testing.AllocsPerRun(10, func() {
		if err := CheckStored(job); err != nil {
			t.Error(err)
		}
	}); n > 5 {
		t.Errorf("%v memory allocations", n)
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/placer/agent"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
	"github.com/nomad-pal/nomad-pal/placer/gang"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/store"
)

var (
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	marshals  = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}
)

// TestJSONNames: all names in the output of -json and in the API's answers are
// in snake_case, at any depth.
func TestJSONNames(t *testing.T) {
	for _, v := range []any{
		explained{}, palapi.Event{}, palapi.Check{}, overview{}, imported{}, groupSummary{}, classified{},
		palapi.JobStatus{}, palapi.GPU{}, palapi.Explanation{}, model.Status{}, gang.Record{},
		palapi.Obstacle{}, palapi.Try{}, palapi.Activity{}, store.Heartbeat{}, palapi.Health{}, agent.Metrics{},
	} {
		checkNames(t, reflect.TypeOf(v), reflect.TypeOf(v).String(), map[reflect.Type]bool{})
	}
}

func checkNames(t *testing.T, typ reflect.Type, at string, seen map[reflect.Type]bool) {
	for _, m := range marshals {
		if typ.Implements(m) || reflect.PointerTo(typ).Implements(m) {
			return
		}
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		checkNames(t, typ.Elem(), at, seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[typ] {
		return
	}
	seen[typ] = true
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case f.Anonymous && name == "":
			checkNames(t, f.Type, at, seen)
			continue
		case !snakeCase.MatchString(name):
			t.Errorf("the JSON name of %s.%s is %q", at, f.Name, name)
		}
		checkNames(t, f.Type, at+"."+f.Name, seen)
	}
}

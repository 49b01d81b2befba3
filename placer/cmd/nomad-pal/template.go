// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"encoding"
	"reflect"
	"strings"
)

// filled replaces nil slices and maps in v with empty ones, so that the JSON has no null in place
// of a list. Fields that the JSON omits stay nil.
func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		filled(v.Elem())
	case reflect.Slice:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		for i := range v.Len() {
			filled(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeMap(v.Type()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() || !strings.Contains(v.Type().Field(i).Tag.Get("json"), ",omit") {
				filled(f)
			}
		}
	}
}

// named returns v in the form that templates of -t get. Structs become maps whose keys are the
// JSON's names, so users need only one set of names. Fields that the JSON omits are present, but
// empty. Times, and other values that marshal themselves as text, keep their type and methods.
func named(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Invalid:
		return ""
	case reflect.Pointer, reflect.Interface:
		return named(v.Elem())
	case reflect.Slice, reflect.Array:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = named(v.Index(i))
		}
		return out
	case reflect.Map:
		out := make(map[string]any, v.Len())
		for _, k := range v.MapKeys() {
			out[text(k)] = named(v.MapIndex(k))
		}
		return out
	case reflect.Struct:
		if _, ok := v.Interface().(encoding.TextMarshaler); !ok {
			out := map[string]any{}
			namedFields(out, v.Type(), v)
			return out
		}
	}
	return v.Interface()
}

// namedFields adds the fields of a struct of type t to out. If v is not valid, the fields are
// empty.
func namedFields(out map[string]any, t reflect.Type, v reflect.Value) {
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); v.IsValid() {
			v = v.Elem()
		}
	}
	for i := range t.NumField() {
		f, value := t.Field(i), reflect.Value{}
		if v.IsValid() {
			value = v.Field(i)
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			namedFields(out, f.Type, value)
		case !value.IsValid():
			out[name] = ""
		case value.IsZero() && strings.HasPrefix(options, "omit") && value.Kind() == reflect.Struct:
			out[name] = "" // otherwise a zero time would print as a date in year 1
		default:
			out[name] = named(value)
		}
	}
}

// text returns a map key as JSON encodes it.
func text(k reflect.Value) string {
	if m, ok := k.Interface().(encoding.TextMarshaler); ok {
		if t, err := m.MarshalText(); err == nil {
			return string(t)
		}
	}
	return k.String()
}

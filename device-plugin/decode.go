// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"

	"github.com/nomad-pal/nomad-pal/pal"
)

// configSchema returns the schema of the plugin's config block. With the schema, Nomad refuses
// unknown keys and wrong types, and names the key.
func configSchema() *hclspec.Spec { return schemaOf(reflect.TypeFor[Config]()) }

func schemaOf(t reflect.Type) *hclspec.Spec {
	body := map[string]*hclspec.Spec{}
	for _, f := range keysOf(t) {
		if block := listOf(f); block != nil {
			body[f.key] = hclspec.NewBlockList(f.key, schemaOf(block))
			continue
		}
		if block := blockOf(f); block != nil {
			body[f.key] = hclspec.NewBlock(f.key, false, schemaOf(block))
			continue
		}
		kind := "string"
		switch reflect.Zero(f.Type).Interface().(type) {
		case bool:
			kind = "bool"
		case int:
			kind = "number"
		case []string, []pal.AppClass:
			kind = "list(string)"
		case []int:
			kind = "list(number)"
		}
		body[f.key] = hclspec.NewDefault(hclspec.NewAttr(f.key, kind, false), hclspec.NewLiteral(f.literal()))
	}
	return hclspec.NewObject(body)
}

// key is a field of a block, with its configuration key.
type key struct {
	reflect.StructField
	key string
}

func keysOf(t reflect.Type) []key {
	var out []key
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			out = append(out, key{f, f.Tag.Get("codec")})
		}
	}
	return out
}

// blockOf returns the struct type of a field that is a block, or nil if the field is a value. A
// pointer field stays nil if the configuration does not have its block.
func blockOf(f key) reflect.Type {
	switch f.Type.Kind() {
	case reflect.Pointer:
		return f.Type.Elem()
	case reflect.Struct:
		return f.Type
	}
	return nil
}

// listOf returns the struct type of a field that holds several blocks, or nil for other fields.
func listOf(f key) reflect.Type {
	if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct {
		return f.Type.Elem()
	}
	return nil
}

// fallback returns the field's default as text.
func (f key) fallback() string {
	first, _, _ := strings.Cut(f.Tag.Get("words"), ",")
	return cmp.Or(f.Tag.Get("default"), first)
}

// literal returns the field's default in HCL and JSON syntax.
func (f key) literal() string {
	switch f.Type.Kind() {
	case reflect.Bool:
		return cmp.Or(f.fallback(), "false")
	case reflect.Int:
		return cmp.Or(f.fallback(), "0")
	case reflect.Slice:
		return cmp.Or(f.fallback(), "[]")
	}
	return strconv.Quote(f.fallback())
}

// decodeConfig decodes the configuration from SetConfig. Errors name the key.
func decodeConfig(msgpack []byte) (c Config, err error) {
	given := map[string]any{}
	if len(msgpack) > 0 {
		if err := base.MsgPackDecode(msgpack, &given); err != nil {
			return Config{}, fmt.Errorf("decoding the plugin's config: %w", err)
		}
	}
	if path, _ := given["profile"].(string); path != "" {
		delete(given, "profile_from_nomad")
	}
	if err := decode(given, reflect.ValueOf(&c).Elem(), ""); err != nil {
		return Config{}, err
	}
	c.NVMLLibrary = cmp.Or(c.NVMLLibrary, "libnvidia-ml.so.1")
	if c.Backend == "emulated" && c.StateDir == DefaultStateDir {
		c.StateDir = "" // several emulated plugins can run on one machine
	}
	if c.Backend == "emulated" && c.Inventory == "" {
		return Config{}, fmt.Errorf("config key %q: backend \"emulated\" needs the path of an inventory file", "inventory")
	}
	return c, errors.Join(checkReasons(c.Health.Ignore), checkSharing(c.Sharing))
}

// decode sets the fields of a block to the given values or to their defaults.
func decode(given map[string]any, into reflect.Value, at string) error {
	for _, f := range keysOf(into.Type()) {
		to := into.FieldByIndex(f.Index)
		if listOf(f) != nil {
			if err := decodeList(given[f.key], to, at+f.key); err != nil {
				return err
			}
			continue
		}
		if blockOf(f) == nil {
			if err := f.set(to, given[f.key]); err != nil {
				return fmt.Errorf("config key %q: %w", at+f.key, err)
			}
			continue
		}
		block, here := given[f.key].(map[string]any)
		if to.Kind() == reflect.Pointer {
			if !here {
				continue
			}
			to.Set(reflect.New(blockOf(f)))
			to = to.Elem()
		}
		if err := decode(block, to, at+f.key+"."); err != nil {
			return err
		}
	}
	return nil
}

// decodeList decodes all blocks with one name. In error messages, blocks are numbered from 1.
func decodeList(given any, into reflect.Value, name string) error {
	blocks, _ := given.([]any)
	for i, b := range blocks {
		block, _ := b.(map[string]any)
		to := reflect.New(into.Type().Elem()).Elem()
		if err := decode(block, to, name+"."); err != nil {
			return fmt.Errorf("%s block %d: %w", name, i+1, err)
		}
		into.Set(reflect.Append(into, to))
	}
	return nil
}

// set sets a field to a value, or to the default if the value is nil. Nomad has already checked the
// value's type.
func (f key) set(to reflect.Value, value any) error {
	if f.Type == reflect.TypeFor[time.Duration]() {
		text, _ := value.(string)
		d, err := duration(cmp.Or(text, f.fallback()), f.Tag.Get("least"))
		to.SetInt(int64(d))
		return err
	}
	literal, err := []byte(f.literal()), error(nil)
	if value != nil {
		literal, err = json.Marshal(value)
	}
	if err == nil {
		err = json.Unmarshal(literal, to.Addr().Interface())
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%s is not a whole number", strings.TrimPrefix(wrong.Value, "number ")) // Nomad checked everything else
	}
	if err != nil {
		return err
	}
	switch v := to.Addr().Interface().(type) {
	case *[]pal.AppClass:
		for i := 0; i < len(*v) && err == nil; i++ {
			(*v)[i], err = pal.ParseAppClass(string((*v)[i]))
		}
	case *int:
		if least, _ := strconv.Atoi(f.Tag.Get("least")); *v < least {
			return fmt.Errorf("%d is below %d", *v, least)
		}
		if most, err := strconv.Atoi(f.Tag.Get("most")); err == nil && *v > most {
			return fmt.Errorf("%d is above %d", *v, most)
		}
	default:
		if words := f.Tag.Get("words"); words != "" {
			return oneOf(to, strings.Split(words, ","))
		}
	}
	return err
}

// longest is the maximum duration in the configuration. Twice this duration still fits into a
// time.Duration.
const longest = 100 * 365 * 24 * time.Hour

// duration parses a Go duration and checks it against the minimum and [longest].
func duration(value, least string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d > longest {
		return 0, fmt.Errorf("%q is not a duration of at most %.0fh (100 years), such as 30s or 1m", value, longest.Hours())
	}
	if bound, _ := time.ParseDuration(least); d < bound {
		return 0, fmt.Errorf("%s is below the minimum %s", d, bound)
	}
	return d, nil
}

// oneOf returns an error if the word is not one of words. An empty word becomes the first of words.
func oneOf(word reflect.Value, words []string) error {
	if word.String() == "" {
		word.SetString(words[0])
	}
	if !slices.Contains(words, word.String()) {
		return fmt.Errorf("%q is not one of %s", word, strings.Join(words, ", "))
	}
	return nil
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// schemas is a JSON schema with one property per command: the schema of the command's JSON output.
// A test generates schemas from the types that the commands print.
//
//go:embed schema.json
var schemas []byte

var helpSchema = help("schema [<command>]", `
Prints the JSON schema (2020-12) of a command's output with -json; without a command,
one schema with a property for each command. Fields keep their names, but new fields
may be added: programs must ignore fields that they do not know.
Templates (-t) use the same names.
`, examples(
	"What does explain -json print?", "nomad-pal schema explain",
	"Which commands have a schema?", "nomad-pal schema | jq '.properties | keys'",
))

func runSchema(b *base, args []string) int {
	rest, ok := b.parse(b.only(b.flags("schema")), args, anyWords)
	if !ok {
		return 1
	}
	text, err := schemas, error(nil)
	if len(rest) > 0 {
		text, err = schemaOf(strings.Join(rest, " "))
	}
	var out bytes.Buffer
	if err == nil {
		err = json.Indent(&out, text, "", "  ")
	}
	if err != nil {
		return b.fail(err)
	}
	b.write(out.String())
	return 0
}

var reference = regexp.MustCompile(`"\$ref":\s*"#/\$defs/([^"]+)"`)

// readSchemas returns the schemas by command, and the types that they refer to.
func readSchemas() (all struct {
	Schema     string                     `json:"$schema"`
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
}) {
	if err := json.Unmarshal(schemas, &all); err != nil {
		panic(err) // cannot fail, because a test generates the file
	}
	return all
}

// schemaNames returns the commands that have a schema.
func schemaNames() []string { return slices.Sorted(maps.Keys(readSchemas().Properties)) }

// schemaOf returns the schema of one command, together with the types to which it refers.
func schemaOf(command string) ([]byte, error) {
	all := readSchemas()
	one, ok := all.Properties[command]
	if !ok {
		return nil, fmt.Errorf("%q has no schema; these commands have one: %s", command, strings.Join(schemaNames(), ", "))
	}
	used := map[string]json.RawMessage{}
	for open := []json.RawMessage{one}; len(open) > 0; open = open[1:] {
		for _, m := range reference.FindAllSubmatch(open[0], -1) {
			if name := string(m[1]); used[name] == nil {
				used[name] = all.Defs[name]
				open = append(open, used[name])
			}
		}
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(one, &own); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", command, err)
	}
	out := map[string]any{"$schema": all.Schema}
	for name, part := range own {
		out[name] = part
	}
	if len(used) > 0 {
		out["$defs"] = used
	}
	text, err := json.Marshal(out)
	return append(text, '\n'), err
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// EncodeConfig checks the text of a plugin's config block against the plugin's own schema and
// encodes it, as Nomad's agent does before it calls SetConfig. Each error names the line and the
// key.
func EncodeConfig(schema *hclspec.Spec, text string) ([]byte, error) {
	f, diags := hclparse.NewParser().ParseHCL([]byte(text), "config.hcl")
	if diags.HasErrors() {
		return nil, diags
	}
	return encode(schema, f)
}

// EncodeJSON does the same as EncodeConfig for a block in JSON, the form that Nomad's agent
// decodes.
func EncodeJSON(schema *hclspec.Spec, text []byte) ([]byte, error) {
	f, diags := hclparse.NewParser().ParseJSON(text, "config.json")
	if diags.HasErrors() {
		return nil, diags
	}
	return encode(schema, f)
}

func encode(schema *hclspec.Spec, f *hcl.File) ([]byte, error) {
	spec, err := decoder(schema, "config")
	if err != nil {
		return nil, err
	}
	value, diags := hcldec.Decode(f.Body, spec, nil)
	if diags.HasErrors() {
		return nil, diags
	}
	return msgpack.Marshal(value, value.Type())
}

// decoder converts the schema of a plugin into a spec for hcldec.
func decoder(s *hclspec.Spec, at string) (hcldec.Spec, error) {
	switch b := s.GetBlock().(type) {
	case *hclspec.Spec_Object:
		out := hcldec.ObjectSpec{}
		for name, child := range b.Object.GetAttributes() {
			spec, err := decoder(child, at+"."+name)
			if err != nil {
				return nil, err
			}
			out[name] = spec
		}
		return out, nil
	case *hclspec.Spec_Attr:
		t, diags := typeOf(b.Attr.GetType())
		if diags.HasErrors() {
			return nil, fmt.Errorf("schema at %s: type %q: %w", at, b.Attr.GetType(), diags)
		}
		return &hcldec.AttrSpec{Name: b.Attr.GetName(), Type: t, Required: b.Attr.GetRequired()}, nil
	case *hclspec.Spec_BlockValue:
		nested, err := decoder(b.BlockValue.GetNested(), at)
		return &hcldec.BlockSpec{TypeName: b.BlockValue.GetName(), Required: b.BlockValue.GetRequired(), Nested: nested}, err
	case *hclspec.Spec_BlockList:
		nested, err := decoder(b.BlockList.GetNested(), at)
		return &hcldec.BlockListSpec{TypeName: b.BlockList.GetName(), Nested: nested}, err
	case *hclspec.Spec_Default:
		primary, err := decoder(b.Default.GetPrimary(), at)
		if err != nil {
			return nil, err
		}
		fallback, err := decoder(b.Default.GetDefault(), at)
		return &hcldec.DefaultSpec{Primary: primary, Default: fallback}, err
	case *hclspec.Spec_Literal:
		return literal(b.Literal.GetValue(), at)
	}
	return nil, fmt.Errorf("schema at %s: %T is unknown", at, s.GetBlock())
}

// typeOf reads a type expression like list(string).
func typeOf(text string) (cty.Type, hcl.Diagnostics) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), "schema", hcl.InitialPos)
	if diags.HasErrors() {
		return cty.DynamicPseudoType, diags
	}
	return typeexpr.TypeConstraint(expr)
}

func literal(text, at string) (hcldec.Spec, error) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), "schema", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("schema at %s: literal %q: %w", at, text, diags)
	}
	v, diags := expr.Value(nil)
	if diags.HasErrors() {
		return nil, fmt.Errorf("schema at %s: literal %q: %w", at, text, diags)
	}
	return &hcldec.LiteralSpec{Value: v}, nil
}

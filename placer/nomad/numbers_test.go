// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package nomad

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/nomad/api"
)

// Nomad's NaN and infinities can be read, however the answer is split into pieces. Everything else
// stays unchanged.
func TestNumbers(t *testing.T) {
	was := map[string]any{
		"nan": math.NaN(), "inf": math.Inf(1), "neg": math.Inf(-1), "list": []any{math.NaN(), 1e300, -2.5, nil, true},
		"text": "NaN +Inf \"Inf\" \\", "NaN": "\\\"N", "big": 1e21,
	}
	var b bytes.Buffer
	if err := codec.NewEncoder(&b, &codec.JsonHandle{}).Encode(was); err != nil {
		t.Fatal(err)
	}
	if json.Valid(b.Bytes()) {
		t.Fatal("Nomad's encoder now writes valid JSON, so the type numbers is no longer needed")
	}
	want := map[string]any{
		"nan": 0.0, "inf": 0.0, "neg": math.Copysign(0, -1), "list": []any{0.0, 1e300, -2.5, nil, true},
		"text": "NaN +Inf \"Inf\" \\", "NaN": "\\\"N", "big": 1e21,
	}
	for name, cut := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
		var got map[string]any
		err := json.NewDecoder(&numbers{ReadCloser: io.NopCloser(cut(bytes.NewReader(b.Bytes())))}).Decode(&got)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// A node with such an attribute does not make the list of nodes unreadable.
func TestNodeWithoutNumber(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ID": "n", "NodeResources": {"Devices": [{"Attributes": {"x": {"Float": NaN}}}]}}`)
	}))
	defer server.Close()
	c, err := NewClient(&api.Config{Address: server.URL}, "default")
	if err != nil {
		t.Fatal(err)
	}
	n, _, err := c.api.Nodes().Info("n", (&api.QueryOptions{}).WithContext(context.Background()))
	if err != nil {
		t.Fatal(err)
	}
	if *n.NodeResources.Devices[0].Attributes["x"].FloatVal != 0 {
		t.Errorf("%+v", n)
	}
}

// Valid JSON is not changed.
func FuzzNumbers(f *testing.F) {
	f.Add([]byte(`{"a": [1e+5, -1E+7, "N\"I+", null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		got := bytes.Clone(data)
		new(numberScan).replaceNaN(got)
		if !bytes.Equal(got, data) {
			t.Fatalf("%q was changed to %q", data, got)
		}
	})
}

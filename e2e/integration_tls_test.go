// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// TestTLS: Nomad requires certificates from all clients, and the agent's own
// API uses TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	b := newBed(t, placerScores[:2], cluster.Options{TLS: true})
	files := b.TLS()
	nomad := fmt.Sprintf("nomad {\n  address     = %q\n  ca_cert     = %q\n  client_cert = %q\n  client_key  = %q\n}\n",
		b.Servers()[0].HTTPAddr(), files.CA, files.Cert, files.Key)
	nothing := []string{"HOME=" + b.dir} // all settings come from the file
	agent := b.startPal(t, fmt.Sprintf("gang_ready_timeout = \"2s\"\ndefault_class = \"A\"\nhttp {\n  bind_port = 0\n  cert_file = %q\n  key_file  = %q\n}\n%s",
		files.Cert, files.Key, nomad), nothing)
	if err := agent.Trust(files.CA); err != nil {
		t.Fatal(err)
	}
	b.untilReady(agent)

	b.scene("places", func(t *testing.T, b *bed) {
		got := b.runs(gang("safe", 1, 2), 2)
		b.untilExplained("safe", got)
		b.purge("safe")
	})
	t.Run("own API", func(t *testing.T) {
		if status, body := agent.ask("/v1/queue", ""); status != http.StatusOK {
			t.Errorf("status %d: %s", status, body)
		}
		plain := *agent.Placer
		plain.HTTP = &http.Client{}
		if status, body := (&palAgent{&plain, t}).ask("/v1/health", ""); status == http.StatusOK {
			t.Errorf("it answers without TLS: %s", body)
		}
	})
	b.scene("own API asks for certificates", func(t *testing.T, b *bed) {
		strict := b.startPal(t, fmt.Sprintf("http {\n  bind_port = 0\n  cert_file = %q\n  key_file = %q\n  client_ca_file = %q\n}\n%s",
			files.Cert, files.Key, files.CA, nomad), nothing)
		if err := strict.Trust(files.CA); err != nil {
			t.Fatal(err)
		}
		b.until("the API is up", func() string {
			if strict.Address() == "" {
				return "no address in the log yet"
			}
			return ""
		})
		if status, body := strict.ask("/v1/health", ""); status == http.StatusOK || !strings.Contains(body, "certificate") {
			t.Errorf("it answers a caller without a certificate: status %d: %s", status, body)
		}
	})
	t.Run("commands", func(t *testing.T) {
		b.until("status answers, and the placer works", func() string {
			out, code := b.palAs(append(slices.Clone(nothing), "NOMAD_CACERT="+files.CA, "NOMAD_CLIENT_CERT="+files.Cert, "NOMAD_CLIENT_KEY="+files.Key), "status", "-address", b.Servers()[0].HTTPAddr())
			if code != 0 || !strings.Contains(out, "8 free") {
				return fmt.Sprintf("exit code %d: %s", code, out)
			}
			return ""
		})
		if out, code := b.palAs(append(slices.Clone(nothing), "NOMAD_CACERT="+files.CA), "status", "-address", b.Servers()[0].HTTPAddr()); code == 0 {
			t.Errorf("without a certificate: %s", out)
		}
	})
	b.scene("a wrong authority", func(t *testing.T, b *bed) {
		other := strings.Replace(nomad, files.CA, files.Cert, 1)
		wrong := b.startPal(t, "http {\n  bind_port = 0\n}\n"+other, nothing)
		b.until("the agent says so", func() string {
			if text := wrong.Log(); !strings.Contains(text, "certificate signed by unknown authority") {
				return "the log: " + text
			}
			return ""
		})
	})
}

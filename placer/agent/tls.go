// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// secure puts TLS around the listener where a certificate is configured.
func (h *HTTP) secure(l net.Listener) (net.Listener, error) {
	config, err := h.tls()
	if err != nil || config == nil {
		return l, err
	}
	return tls.NewListener(l, config), nil
}

// tls is nil where no certificate is configured.
func (h *HTTP) tls() (*tls.Config, error) {
	if h == nil || h.CertFile == "" && h.KeyFile == "" && h.ClientCA == "" {
		return nil, nil
	}
	if h.CertFile == "" || h.KeyFile == "" {
		return nil, fmt.Errorf("http: TLS takes both cert_file and key_file")
	}
	pair, err := tls.LoadX509KeyPair(h.CertFile, h.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("http: cert_file %q: %w", h.CertFile, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if h.ClientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(h.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("http: client_ca_file: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("http: client_ca_file: %q holds no certificate in PEM", h.ClientCA)
	}
	return config, nil
}

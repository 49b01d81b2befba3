// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nomad-pal/nomad-pal/placer/agent/ui"
)

// Defaults of the http block.
const (
	defaultAddress = "127.0.0.1"
	defaultPort    = 8090
)

type apiListener struct {
	http     *http.Server
	listener net.Listener
	log      hclog.Logger
}

// listen opens the API. If no port is configured and the default port is in use, for example
// because a second agent on the machine uses this port, the agent runs without API.
func (a *Agent) listen(file File) (*apiListener, error) {
	server, err := a.newServer(file)
	if err != nil {
		return nil, err
	}
	handler, err := server.guarded()
	if err != nil {
		return nil, err
	}
	l, err := a.open(file.HTTP)
	if file.HTTP.BindPort == nil && errors.Is(err, syscall.EADDRINUSE) {
		a.log.Warn("cannot listen on the default port: running without the HTTP API; set http { bind_port } to use another port", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening the HTTP API: %w", err)
	}
	plain := l
	if l, err = file.HTTP.secure(plain); err != nil {
		plain.Close()
		return nil, err
	}
	a.log.Info("HTTP API", "address", l.Addr(), "tls", file.HTTP.CertFile != "")
	return &apiListener{bounded(handler), l, a.log}, nil
}

// open starts to listen for the API. With bind_port = 0, open reuses the port from before the last
// reload if that port is still free, because users have its address.
func (a *Agent) open(h *HTTP) (l net.Listener, err error) {
	if h.BindPort != nil && *h.BindPort == 0 && a.port != 0 {
		l, err = net.Listen("tcp", h.at(a.port))
	}
	if l == nil {
		l, err = net.Listen("tcp", h.address())
	}
	if err == nil {
		a.port = l.Addr().(*net.TCPAddr).Port
	}
	return l, err
}

// published returns the address that the agent publishes in Nomad for commands: http { advertise },
// otherwise the address on which the API listens. Commands on other machines refuse a loopback
// address.
func (h *HTTP) published(at *net.TCPAddr) string {
	if h.Advertise != "" {
		return strings.TrimSuffix(h.Advertise, "/")
	}
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			return ""
		}
		host = name
	}
	if config, err := h.tls(); err == nil && config != nil && at.IP.IsLoopback() {
		leaf := config.Certificates[0].Leaf
		if leaf.VerifyHostname(host) != nil && leaf.VerifyHostname("localhost") == nil {
			host = "localhost" // the certificate is for this name, not for the address
		}
	}
	scheme := "http"
	if h.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// checkNames returns an error if a name or address in the block has a port or is a URL.
func (h *HTTP) checkNames() error {
	for key, names := range map[string][]string{"bind_address": {h.BindAddress}, "allowed_hosts": h.AllowedHosts} {
		for _, name := range names {
			_, notIP := netip.ParseAddr(name)
			if strings.ContainsAny(name, "/:") && notIP != nil {
				return fmt.Errorf("http: %s: %q must be a host name or an IP address without a port", key, name)
			}
		}
	}
	return nil
}

// checkAdvertise returns an error if an address to publish is invalid.
func checkAdvertise(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("http: advertise = %q is not an address such as https://pal.example.com:8090", address)
	}
	return nil
}

func (h *HTTP) address() string {
	port := defaultPort
	if h.BindPort != nil {
		port = *h.BindPort
	}
	return h.at(port)
}

// at returns the bind address with another port.
func (h *HTTP) at(port int) string {
	return net.JoinHostPort(cmp.Or(h.BindAddress, defaultAddress), strconv.Itoa(port))
}

// mayListen returns why a new API could not replace the current one. present is the current port; 0
// if there is no API. Without a configured port only the address matters, because the agent can run
// without API.
func (h *HTTP) mayListen(present int) error {
	at := h.at(0)
	if h.BindPort != nil && *h.BindPort != present { // this agent releases the present port first
		at = h.address()
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("opening the HTTP API: %w", err)
	}
	return l.Close()
}

// serve answers until ctx ends.
func (s *apiListener) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.http.Shutdown(grace); err != nil {
			s.http.Close()
		}
	})
	defer stop()
	s.http.ErrorLog = s.log.StandardLogger(nil)
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("the HTTP API ended", "error", err)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return // the client is gone
	}
}

// secure adds TLS to the listener if a certificate is configured.
func (h *HTTP) secure(l net.Listener) (net.Listener, error) {
	config, err := h.tls()
	if err != nil || config == nil {
		return l, err
	}
	return tls.NewListener(l, config), nil
}

// tls returns the TLS configuration; nil if no certificate is configured.
func (h *HTTP) tls() (*tls.Config, error) {
	if h.CertFile == "" && h.KeyFile == "" && h.ClientCA == "" {
		return nil, nil
	}
	if h.CertFile == "" || h.KeyFile == "" {
		return nil, fmt.Errorf("http: TLS requires both cert_file and key_file")
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
		return nil, fmt.Errorf("http: client_ca_file: %q contains no PEM certificate", h.ClientCA)
	}
	return config, nil
}

// uiTag differs between builds, so that browsers fetch the page's files again only after an
// upgrade.
var uiTag = sync.OnceValue(func() string {
	sum := sha256.New()
	_ = fs.WalkDir(ui.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := ui.Files.ReadFile(path) // cannot fail: the file is embedded
			_, _ = sum.Write(text)
		}
		return err
	})
	return fmt.Sprintf(`"%x"`, sum.Sum(nil)[:12])
})

func page() http.Handler {
	files := http.StripPrefix("/ui", http.FileServerFS(ui.Files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", uiTag())
		files.ServeHTTP(w, r)
	})
}

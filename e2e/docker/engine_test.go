// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

// engine is dockerd at the socket that Nomad's docker driver expects. In these
// namespaces, that socket is the test's own.
type engine struct {
	http *http.Client
	log  string
}

const engineSocket = "/run/docker.sock"

// startEngine starts dockerd. It ends with the namespaces.
func startEngine(ctx context.Context) (*engine, error) {
	e := &engine{log: filepath.Join(tempDir, "dockerd.log")}
	e.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", engineSocket)
		},
	}}
	if err := writeRuntime(); err != nil {
		return nil, err
	}
	// Without iptables the engine changes no rules; it publishes ports through a
	// proxy.
	config, err := json.Marshal(map[string]any{
		"data-root": "/run/docker-data", "exec-root": "/run/docker", "pidfile": "/run/docker.pid",
		"hosts": []string{"unix://" + engineSocket}, "iptables": false, "ip6tables": false,
		"cgroup-parent":    "/" + os.Getenv(groupEnv),
		"exec-opts":        []string{"native.cgroupdriver=cgroupfs"},
		"oom-score-adjust": 0, // root without CAP_SYS_RESOURCE may not lower it
		"runtimes":         map[string]any{"nvidia": map[string]any{"path": runtimePath}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile("/run/daemon.json", config, 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(e.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--config-file", "/run/daemon.json")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return e, cluster.Until(ctx, "dockerd answers", func(ctx context.Context) (string, error) {
		select {
		case err := <-ended:
			return "", cluster.Fatal(fmt.Errorf("dockerd ended: %v; its log:\n%s", err, e.logTail()))
		default:
			return "", e.call(ctx, http.MethodGet, "/_ping", nil, nil)
		}
	})
}

// logTail is the end of the engine's log.
func (e *engine) logTail() string {
	text, err := os.ReadFile(e.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// call sends a request to the engine's API, with a body of JSON or a stream, and decodes
// the answer.
func (e *engine) call(ctx context.Context, method, path string, body, answer any) error {
	var reader io.Reader
	contentType := "application/json"
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader, contentType = b, "application/x-tar"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		said := strings.TrimSpace(string(text))
		return fmt.Errorf("docker: %s %s: %s: %s", method, path, resp.Status, said)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// load imports a tar as an image with a name; changes are lines of a Dockerfile.
func (e *engine) load(ctx context.Context, tar []byte, image string, changes ...string) error {
	repo, tag, _ := strings.Cut(image, ":")
	query := url.Values{"fromSrc": {"-"}, "repo": {repo}, "tag": {tag}, "changes": changes}
	return e.call(ctx, http.MethodPost, "/images/create?"+query.Encode(), bytes.NewReader(tar), nil)
}

// container is what the engine knows about a container.
type container struct {
	ID    string `json:"Id"`
	State struct {
		Running   bool
		StartedAt time.Time
		ExitCode  int
		OOMKilled bool
	}
	HostConfig struct {
		Runtime string
		Memory  int64
	}
}

// inspect asks the engine about the container of an allocation's task.
func (e *engine) inspect(t *testing.T, task, alloc string) container {
	t.Helper()
	var c container
	path := "/containers/" + task + "-" + alloc + "/json"
	if err := e.call(t.Context(), http.MethodGet, path, nil, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// kill does what `docker kill` does.
func (e *engine) kill(t *testing.T, task, alloc string) {
	t.Helper()
	path := "/containers/" + task + "-" + alloc + "/kill"
	if err := e.call(t.Context(), http.MethodPost, path, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// refusesMemlock is why no container can have unlimited locked memory here, or "".
// Root needs CAP_SYS_RESOURCE for it.
func (e *engine) refusesMemlock(ctx context.Context, image string) (string, error) {
	var made container
	err := e.call(ctx, http.MethodPost, "/containers/create", map[string]any{
		"Image": image, "Cmd": []string{"sleep", "0"},
		"HostConfig": map[string]any{
			"Ulimits":     []map[string]any{{"Name": "memlock", "Soft": -1, "Hard": -1}},
			"NetworkMode": "none",
		},
	}, &made)
	if err != nil {
		return "", err
	}
	refused := e.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil)
	err = e.call(ctx, http.MethodDelete, "/containers/"+made.ID+"?force=1", nil, nil)
	if err != nil {
		return "", err
	}
	if refused != nil && !strings.Contains(refused.Error(), "rlimit") {
		return "", refused
	}
	if refused != nil {
		return refused.Error(), nil
	}
	return "", nil
}

// The nvidia runtime. NVIDIA's own needs a GPU; this stand-in rejects unknown GPUs,
// records the GPUs that each container gets, and leaves the rest to runc.
const (
	runtimeName = "nvidia-container-runtime"
	runtimePath = "/run/bin/" + runtimeName
	runtimeLog  = "/run/nvidia-runtime/"
)

func writeRuntime() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return cmp.Or(os.MkdirAll(filepath.Dir(runtimePath), 0o755), os.MkdirAll(runtimeLog, 0o755),
		os.Symlink(self, runtimePath))
}

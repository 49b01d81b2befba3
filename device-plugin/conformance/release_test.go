// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// After an operator has released the driver, the plugin makes no NVML call and has no process that
// uses a GPU, whoever calls it. This holds after a restart, too, until the operator resumes.
func TestReleasedDriverIsLeftAlone(t *testing.T) {
	ours(t)
	state, ids, config, dir := idleNode(t, "1") // sessions take as long as on a real GPU
	w := driverless(t, state)
	calls, id := filepath.Join(t.TempDir(), "calls"), ids[0]
	w.env = append(w.env, "FAKE_NVML_CALLS="+calls)
	w.launch()
	if err := w.Configure(config); err != nil {
		t.Fatal(err)
	}
	s := w.fingerprint()
	s.until("two GPUs", listed(2))
	eventually(t, "measuring begins", func() bool { return len(children(t, w.PID())) == 2 })
	released := make(chan error, 1)
	var said []byte
	go func() {
		var err error
		said, err = exec.Command(binary, "release", "-for", "1h", "-state-dir", dir).CombinedOutput()
		released <- err
	}()
	s.until("released GPUs", reason(id, "released"))
	if err := <-released; err != nil || !strings.Contains(string(said), "has released the driver until") {
		t.Fatalf("release: %v\n%s", err, said)
	}
	asked := func() string {
		t.Helper()
		data, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	before := asked()
	if !strings.HasSuffix(before, "nvmlShutdown\n") || strings.Count(before, "nvmlInit_v2\n") != strings.Count(before, "nvmlShutdown\n") {
		t.Errorf("the last calls were …%s", before[max(0, len(before)-200):])
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	alone := func() {
		t.Helper()
		if _, err := w.Device.Stats(ctx, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Device.Reserve([]string{id}); err == nil || !strings.Contains(err.Error(), id+" (released)") {
			t.Errorf("Reserve: %v", err)
		}
		s.quiet(3 * time.Second)
		if now := asked(); now != before {
			t.Errorf("calls while the driver is released: %s", strings.TrimPrefix(now, before))
		}
		if got := children(t, w.PID()); len(got) > 0 {
			t.Errorf("processes %v", got)
		}
	}
	alone()
	s = w.restart(config)
	s.until("GPUs that are still released", reason(id, "released"))
	alone()
	doctor, _ := exec.Command(binary, "doctor", "-inventory", "none.hcl", "-state-dir", dir).CombinedOutput()
	if !strings.Contains(string(doctor), "the driver is released until") {
		t.Errorf("doctor does not say that the driver is released:\n%s", doctor)
	}
	run(t, binary, "resume", "-state-dir", dir)
	s.until("GPUs again", healthy(id))
	if asked() == before {
		t.Error("healthy without a call")
	}
}

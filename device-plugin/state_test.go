// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/plugins/device"

	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// The last profile from Nomad is in force from the first message on, even if Nomad cannot
// be reached.
func TestProfileFromNomadSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	p, err := profile.Parse(fmt.Appendf(nil, someProfile, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := openStore(dir).saveCopy(p); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.StateDir = dir
	cfg.ProfileFromNomad = &NomadProfileConfig{Period: time.Hour}
	cfg.Nomad.TokenFile = filepath.Join(dir, "none")
	synctest.Test(t, func(t *testing.T) {
		plugin, _, log, _ := onStage(2, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := plugin.Fingerprint(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := next(t, c)[0].Attributes[attr.ProfileVersion]; got == nil || *got.Int != 5 {
			t.Errorf("profile version %v, want 5", got)
		}
		synctest.Wait() // until Nomad has been asked
		cancel()
		for range c {
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "cannot read the profile from Nomad; the previous profile stays in force") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// A state file that cannot be read is reported, and does not stop the plugin.
func TestBadStateFile(t *testing.T) {
	for name, text := range map[string]string{"half-written": `{"version": 1, "latch`, "other version": `{"version": 99}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, storeFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		cfg.StateDir = dir
		synctest.Test(t, func(t *testing.T) {
			p, _, log, _ := onStage(1, cfg)
			c, end := fingerprints(t, p)
			if got := next(t, c); len(got) != 1 {
				t.Errorf("%s: %d groups", name, len(got))
			}
			end()
			synctest.Wait()
			if !strings.Contains(log.String(), storeFile) {
				t.Errorf("%s: the log does not name the file:\n%s", name, log)
			}
		})
	}
}

// published returns an attribute of the first device group; "" if it is absent.
func published(groups []*device.DeviceGroup, name string) string {
	if a := groups[0].Attributes[name]; a != nil {
		return *a.String
	}
	return ""
}

// State that could not be written to a full disk is written once the disk has room. Until then, the
// plugin publishes what it cannot store.
func TestStateIsWrittenWhenTheDiskHasRoomAgain(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	files := []string{filepath.Join(cfg.StateDir, storeFile), filepath.Join(cfg.StateDir, inventoryFile)}
	if err := os.Chmod(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range files { // a directory in the file's place acts like a full disk
		if err := os.Mkdir(f, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		p, s, log, _ := onStage(1, cfg)
		c, end := fingerprints(t, p)
		next(t, c)
		s.events <- gpu.Event{GPU: "GPU-0", Xid: 79}
		got := next(t, c)
		if got[0].Devices[0].HealthDesc != "xid:79" {
			t.Errorf("device %+v", got[0].Devices[0])
		}
		unkept := published(got, attr.Unkept)
		if !strings.Contains(unkept, "the plugin cannot store faults, so it forgets them when it restarts: writing state") || !strings.Contains(unkept, "; the plugin cannot store the list of GPUs: ") {
			t.Errorf("published: %q", unkept)
		}
		time.Sleep(10 * cfg.FingerprintPeriod)
		synctest.Wait()
		if n := strings.Count(log.String(), "cannot store faults"); n != 1 {
			t.Errorf("said %d times, want once:\n%s", n, log)
		}
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		for unkept != "" {
			unkept = published(next(t, c), attr.Unkept)
		}
		end()
	})
	for i, want := range []string{`"xid": 79`, `"GPU-0"`} {
		if data, err := os.ReadFile(files[i]); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, %q; want %s in it", files[i], err, data, want)
		}
	}
}

// A state_dir that cannot be used is reported, and the plugin works without it.
func TestUnusableStateDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.StateDir = dir
	synctest.Test(t, func(t *testing.T) {
		p, _, log, _ := onStage(1, cfg)
		c, end := fingerprints(t, p)
		if got := next(t, c); len(got) != 1 || got[0].Attributes[attr.Unkept] == nil || !strings.Contains(*got[0].Attributes[attr.Unkept].String, "the plugin cannot store its state (config key state_dir)") {
			t.Errorf("groups %v", got)
		}
		end()
		synctest.Wait()
		if n := strings.Count(log.String(), "the plugin cannot store its state"); n != 1 || !strings.Contains(log.String(), "other users can write to it") {
			t.Errorf("said %d times, want once:\n%s", n, log)
		}
	})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("written all the same: %v, %v", entries, err)
	}
}

// An error that was contained in one MIG instance is not a fault of the other instances,
// although Xid 48 names the whole GPU. A fault of their own is.
func TestContainedErrorOfAMIGInstance(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	type event struct {
		at  int
		gpu string
		xid int
	}
	for name, tc := range map[string]struct {
		events []event
		ill    []string
	}{
		"48 of the GPU, 94":              {[]event{{0, "GPU-P", 48}, {1, "MIG-1", 94}}, nil},
		"94, 48 of the GPU":              {[]event{{0, "MIG-1", 94}, {1, "GPU-P", 48}}, nil},
		"48 of the GPU, 94 much later":   {[]event{{0, "GPU-P", 48}, {60, "MIG-1", 94}}, []string{"MIG-0", "MIG-1", "MIG-2"}},
		"48 of the GPU, 94, 95":          {[]event{{0, "GPU-P", 48}, {1, "MIG-1", 94}, {1, "MIG-2", 95}}, []string{"MIG-2"}},
		"48 of the GPU, 94 of another's": {[]event{{0, "GPU-P", 48}, {1, "MIG-other", 94}}, []string{"MIG-0", "MIG-1", "MIG-2"}},
	} {
		p, _, _, _ := onStage(0, DefaultConfig())
		p.ready()
		p.view.inv.Devices = []gpu.Device{{ID: "MIG-0", Parent: "GPU-P"}, {ID: "MIG-1", Parent: "GPU-P"}, {ID: "MIG-2", Parent: "GPU-P"}, {ID: "MIG-other", Parent: "GPU-Q"}}
		for _, e := range tc.events {
			p.event(at(e.at), gpu.Event{GPU: e.gpu, Xid: e.xid})
		}
		var ill []string
		for _, d := range p.view.inv.Devices {
			if !p.view.verdicts[d.ID].healthy {
				ill = append(ill, d.ID)
			}
		}
		if !slices.Equal(ill, tc.ill) {
			t.Errorf("%s: unhealthy %v, want %v", name, ill, tc.ill)
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package accounting

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nomad-pal/nomad-pal/placer/accounting/accountingtest"
	palapi "github.com/nomad-pal/nomad-pal/placer/api"
)

// endedRun is a run of two GPU hours.
func endedRun(n int) Batch {
	r := job(fmt.Sprintf("train-%d", n), "ann")
	r.State, r.Ended, r.Reason = palapi.RunComplete, at(2), strings.Repeat("x", 500)
	return Batch{Runs: []palapi.Run{r}, Allocs: []Alloc{allocOf(r, fmt.Sprintf("alloc-%d", n), at(1), at(2), "complete")}}
}

// sumsAre fails the test unless usage counts n runs like [endedRun].
func sumsAre(t *testing.T, db *DB, runs int) {
	t.Helper()
	if got := usage(t, db, Filter{}, at(99)); len(got) != 1 || got[0].Runs != int64(runs) || got[0].GPUHours != float64(2*runs) {
		t.Errorf("usage of %d runs: %+v", runs, got)
	}
}

// On a full disk only writes fail: the file can be read and opened again, and is not set aside.
// Failed writes succeed once there is room, and each run counts once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := accountingtest.SmallDisk(t, 2<<20)
	file := filepath.Join(disk.Dir, "history.db")
	db := openTest(t, file)
	write(t, db, endedRun(0))
	if err := disk.Fill(); err != nil {
		t.Fatal(err)
	}
	written, failed := 1, 0
	for ; failed < 3; written++ {
		if written > 10_000 {
			t.Fatal("the disk does not fill")
		}
		err := db.Write(t.Context(), endedRun(written))
		if err == nil {
			continue
		}
		if failed++; !strings.Contains(err.Error(), "full") {
			t.Errorf("a write returns %v", err)
		}
		sumsAre(t, db, written)
		again, aside, err := Open(t.Context(), file)
		if aside != "" {
			t.Fatalf("a file on a full disk was set aside as %s: %v", aside, err)
		}
		if err == nil {
			sumsAre(t, again, written)
			if err := again.Close(); err != nil {
				t.Log(err)
			}
		}
		written--
	}
	if other, aside, err := Open(t.Context(), filepath.Join(disk.Dir, "other.db")); err == nil || aside != "" {
		t.Errorf("a new database on a full disk: %v, %v, set aside as %q", other, err, aside)
	}
	if err := disk.Free(); err != nil {
		t.Fatal(err)
	}
	for n := range written + 20 {
		write(t, db, endedRun(n))
	}
	sumsAre(t, db, written+20)
	if err := openTest(t, file).Write(t.Context(), endedRun(0)); err != nil {
		t.Error(err)
	}
	sumsAre(t, db, written+20)
}

// While PostgreSQL is down, writes and queries fail. Once it is back, the same pool of connections
// works, and repeated writes count once.
func TestPostgresComesBack(t *testing.T) {
	t.Parallel()
	server := accountingtest.StartPostgres(t)
	db := openTest(t, server.Address())
	for n := range 3 {
		write(t, db, endedRun(n))
		server.Stop()
		if err := db.Write(t.Context(), endedRun(n+1)); err == nil {
			t.Error("a stopped server stores a run")
		}
		if _, err := db.Usage(t.Context(), Filter{}, nil, time.Now()); err == nil {
			t.Error("a stopped server answers")
		}
		if _, _, err := Open(t.Context(), server.Address()); err == nil {
			t.Error("a stopped server can be opened")
		}
		server.Start()
		write(t, db, endedRun(n))
		sumsAre(t, db, n+1)
	}
	sumsAre(t, openTest(t, server.Address()), 3)
}

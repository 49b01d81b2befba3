// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package accountingtest gives tests a PostgreSQL server that they can stop, and a disk that can
// become full.
package accountingtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Postgres is a PostgreSQL server that belongs to one test. The server listens only on a socket in
// its own folder.
type Postgres struct {
	t      testing.TB
	bin    string
	dir    string
	server *exec.Cmd // nil if it is stopped
}

// StartPostgres starts a server with an empty database. StartPostgres skips the test if
// PostgreSQL's programs (Debian package postgresql) are not installed.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 && os.Getenv("POSTGRES_REQUIRED") == "" {
		t.Skip("needs PostgreSQL's server: apt-get install postgresql")
	}
	dir, err := os.MkdirTemp("", "pg") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		if out, err := exec.Command("chown", "postgres", dir).CombinedOutput(); err != nil {
			t.Skipf("there is no user postgres: %s", out)
		}
	}
	p := &Postgres{t: t, bin: filepath.Dir(slices.Max(found)), dir: dir}
	if out, err := p.as("initdb", "-D", p.data(), "-A", "trust", "-U", "postgres", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	t.Cleanup(p.Stop)
	p.Start()
	return p
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// as returns a command that runs one of PostgreSQL's programs. PostgreSQL refuses to run as root.
// So if the test runs as root, the command runs as user postgres.
func (p *Postgres) as(program string, args ...string) *exec.Cmd {
	args = slices.Concat([]string{filepath.Join(p.bin, program)}, args)
	if os.Getuid() == 0 {
		args = slices.Concat([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args)
	}
	return exec.Command(args[0], args[1:]...)
}

// Address returns the address of the database.
func (p *Postgres) Address() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s", p.dir)
}

// Start starts the server and waits until it answers. Start uses no goroutines and no clock,
// because a test can call it in a bubble of testing/synctest.
func (p *Postgres) Start() {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.server = p.as("postgres", "-D", p.data(), "-k", p.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	p.server.Stdout, p.server.Stderr = log, log
	if err := p.server.Start(); err != nil {
		p.t.Fatal(err)
	}
	for exec.Command(filepath.Join(p.bin, "pg_isready"), "-q", "-h", p.dir).Run() != nil {
		if p.ended() || p.t.Context().Err() != nil {
			text, _ := os.ReadFile(log.Name())
			p.t.Fatalf("PostgreSQL says:\n%s", text)
		}
	}
}

// ended reports whether the server has ended although nobody called Stop.
func (p *Postgres) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.server.Process.Pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// Stop stops the server, which breaks all connections to it.
func (p *Postgres) Stop() {
	if p.server == nil {
		return
	}
	_ = p.server.Process.Signal(os.Interrupt)
	_ = p.server.Wait()
	p.server = nil
}

// Disk is a small file system in memory.
type Disk struct {
	Dir string
}

// SmallDisk mounts a disk of the given number of bytes. If the test has no permission to mount,
// SmallDisk skips the test.
func SmallDisk(t testing.TB, bytes int) Disk {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		// Detach the disk instead of just unmounting it. Programs that look at all file systems
		// (df, a Nomad client) can keep the disk busy for a moment.
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return Disk{dir}
}

func (d Disk) ballast() string { return filepath.Join(d.Dir, "ballast") }

// Fill uses up the free space.
func (d Disk) Fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		switch _, err = f.Write(block); {
		case errors.Is(err, syscall.ENOSPC):
			block = block[:len(block)/2]
		case err != nil:
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// Free releases the space that Fill has used.
func (d Disk) Free() error { return os.Remove(d.ballast()) }

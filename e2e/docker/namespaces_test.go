// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Stages of the test process: the values of stageEnv.
const (
	stageEnv   = "NOMAD_PAL_DOCKER_STAGE"
	stageInit  = "init"  // the first process of the namespaces
	stageTests = "tests" // its child, which runs the tests
)

// missing are the things that the tests need and this machine lacks.
func missing() string {
	if os.Geteuid() != 0 {
		return "docker needs root"
	}
	for _, program := range []string{"dockerd", "containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not on PATH: apt-get install docker.io"
		}
	}
	if os.Getenv("E2E_BIN") == "" {
		return "E2E_BIN names no folder with the binaries: run make docker"
	}
	return ""
}

// need skips a test that cannot run here; with DOCKER_REQUIRED it fails the test instead.
func need(t *testing.T) {
	t.Helper()
	why := missing()
	if testing.Short() && why == "" {
		why = "starts a docker engine: not in -short mode"
	}
	switch {
	case why == "":
	case os.Getenv("DOCKER_REQUIRED") != "":
		t.Fatalf("DOCKER_REQUIRED is set, but %s", why)
	default:
		t.Skip(why)
	}
}

// enterNamespaces runs this program again as the first process of new namespaces, and
// returns its exit code. When this process ends, the kernel ends everything in the
// namespaces.
func enterNamespaces() (int, error) {
	group := fmt.Sprintf("nomad-pal-docker-%016x", rand.Uint64())
	removeGroups, err := guard(group)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // Pdeathsig fires when the thread ends
	go endWithParent(os.Getppid())
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageEnv+"="+stageInit, groupEnv+"="+group)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		return 0, fmt.Errorf("starting the tests in their own namespaces: %w", err)
	}
	if err := removeGroups(); err != nil || cmd.ProcessState.Exited() {
		return cmd.ProcessState.ExitCode(), err
	}
	return 0, fmt.Errorf("the tests in their namespaces: %s", cmd.ProcessState)
}

// endWithParent ends this process when go test ends: nobody would read its output.
func endWithParent(parent int) {
	for range time.Tick(time.Second) {
		if os.Getppid() != parent {
			os.Exit(1)
		}
	}
}

// initProcess sets up the namespaces and runs the tests. It reaps orphans, because Nomad
// counts a process that nobody has reaped as alive.
func initProcess() (int, error) {
	if err := furnish(); err != nil {
		return 0, fmt.Errorf("setting up the namespaces: %w", err)
	}
	if err := cmp.Or(os.Setenv(stageEnv, stageTests), os.Setenv("TMPDIR", tempDir)); err != nil {
		return 0, err
	}
	attr := syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	tests, err := syscall.ForkExec("/proc/self/exe", os.Args, &attr)
	if err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the tests: %w", err)
		case pid == tests && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == tests:
			return status.ExitStatus(), nil
		}
	}
}

// tempDir is in memory, as all of /run is in the namespaces.
const tempDir = "/run/tmp"

// furnish makes the namespaces' /proc, /run and /dev, and configures their loopback
// interface.
func furnish() error {
	// This comes first: otherwise the machine sees these mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	return cmp.Or(
		syscall.Mount("proc", "/proc", "proc", 0, ""),
		syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"),
		os.MkdirAll(tempDir, 0o755),
		syscall.Mount("tmpfs", "/proc/driver", "tmpfs", 0, "mode=755"),
		os.Mkdir("/proc/driver/nvidia-caps", 0o755),
		os.WriteFile("/proc/driver/nvidia-caps/mig-minors", []byte(migMinors), 0o644),
		devices("/run/dev"),
		syscall.Mount("/run/dev", "/dev", "", syscall.MS_MOVE, ""),
		loopbackUp(),
	)
}

// nvidiaMajor is the major number of NVIDIA's device files. Linux assigns those of
// nvidia-uvm and of the files that permit the use of MIG instances.
const nvidiaMajor, uvmMajor, capsMajor = 195, 510, 511

const infinibandMajor = 231

// migMinors is what NVIDIA's driver publishes about these files. The emulated MIG instance
// is number 0 on GPU 24, and has compute instance 0.
const migMinors = "config 1\nmonitor 2\ngpu24/gi0/access 12\ngpu24/gi0/ci0/access 13\n"

// gpusPerNode is the number of GPU device files.
const gpusPerNode = 26

// devices makes a /dev with the files that every Linux has, and with those of GPUs and InfiniBand.
// Without a driver, opening the latter fails with ENXIO, or with EPERM if the
// control group forbids it.
func devices(dir string) error {
	nodes := map[string][2]int{
		"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9},
		"kmsg": {1, 11}, "tty": {5, 0}, "nvidiactl": {nvidiaMajor, 255},
		"nvidia-uvm": {uvmMajor, 0}, "nvidia-uvm-tools": {uvmMajor, 1},
		"nvidia-caps/nvidia-cap12": {capsMajor, 12}, "nvidia-caps/nvidia-cap13": {capsMajor, 13},
		"nvidia-caps/nvidia-cap14": {capsMajor, 14}, "infiniband/uverbs0": {infinibandMajor, 192},
	}
	for minor := range gpusPerNode {
		nodes[fmt.Sprintf("nvidia%d", minor)] = [2]int{nvidiaMajor, minor}
	}
	err := cmp.Or(os.Mkdir(dir, 0o755), syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"),
		os.Mkdir(filepath.Join(dir, "nvidia-caps"), 0o755), os.Mkdir(filepath.Join(dir, "infiniband"), 0o755))
	for name, n := range nodes {
		path := filepath.Join(dir, name)
		err = cmp.Or(err, syscall.Mknod(path, syscall.S_IFCHR, n[0]<<8|n[1]), os.Chmod(path, 0o666))
	}
	for _, sub := range []string{"pts", "shm"} {
		err = cmp.Or(err, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx",
	} {
		err = cmp.Or(err, os.Symlink(to, filepath.Join(dir, name)))
	}
	return cmp.Or(err,
		syscall.Mount("devpts", filepath.Join(dir, "pts"), "devpts", 0, "newinstance,ptmxmode=0666"),
		syscall.Mount("tmpfs", filepath.Join(dir, "shm"), "tmpfs", 0, "mode=1777"))
}

// loopbackUp switches the new network's loopback interface on.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_UP | syscall.IFF_RUNNING}
	copy(request.name[:], "lo")
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS,
		uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return fmt.Errorf("switching lo on: %w", errno)
	}
	return nil
}

// Only control groups outlive namespaces. Those of the engine are below one of this
// name.
const groupEnv = "NOMAD_PAL_DOCKER_GROUP"

// guardScript removes control groups when its input closes. Their processes are killed
// at the same time, and leave a moment later.
const guardScript = `
while read -r _; do :; done
tries=0
while groups=$(find /sys/fs/cgroup -depth -type d -path "*/$1*" 2>/dev/null); [ -n "$groups" ]; do
  rmdir $groups 2>/dev/null && continue
  [ $((tries += 1)) -gt 200 ] && echo "control groups stay: $groups" >&2 && exit 1
  sleep 0.05
done
`

// guard removes the control groups of a name when remove is called, or when this
// process ends before.
func guard(group string) (remove func() error, err error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "nomad-pal-docker-guard", group)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals that end this process do not reach it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard of the control groups: %w", err)
	}
	return func() error { return cmp.Or(pipe.Close(), cmd.Wait()) }, nil
}

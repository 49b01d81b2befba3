// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/nomad-pal/nomad-pal/e2e/programs"
)

// imagePrograms are the programs of the image. Each first records what it finds in
// its container.
func imagePrograms() map[string]func() {
	all := programs.Commands(askTest)
	all["hold"] = hold
	all["eat"] = eat
	for name, run := range all {
		all[name] = func() {
			if err := writeInside(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			run()
		}
	}
	return all
}

// testSocket is the address at which the test listens for rank 1 of each gang. It is an abstract
// socket of the machine's network, which gangs share.
const testSocket = "@nomad-pal-docker-test"

// askTest sends the test the allocation's job and id, and waits until it may
// continue.
func askTest() error {
	conn, err := net.Dial("unix", testSocket)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintln(conn, os.Getenv("NOMAD_JOB_ID"), os.Getenv("NOMAD_ALLOC_ID"))
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		return fmt.Errorf("asking the test: %q: %w", answer, err)
	}
	return nil
}

// hold keeps its GPUs until it is stopped.
func hold() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}

// eat allocates more memory than the container may use.
func eat() {
	var all [][]byte
	for {
		chunk := make([]byte, 1<<20)
		for i := 0; i < len(chunk); i += 4096 {
			chunk[i] = 1
		}
		all = append(all, chunk)
		if len(all) == 4096 {
			fmt.Fprintln(os.Stderr, "allocated 4 GiB without being killed")
			os.Exit(3)
		}
	}
}

// inside is what a task finds in its container.
type inside struct {
	Container  string            // the container's id
	Env        map[string]string //
	Args       []string          // arguments of the first process
	Devices    map[string]string // device files of GPUs, and the result of opening them
	Stranger   string            // the result of opening the file of another GPU
	Infiniband string            // the result of opening an InfiniBand device; "" without such a device
	Mounts     map[string]string // file system types by path
	Shm        uint64            // size of /dev/shm
	Limits     map[string]string // soft and hard, by /proc's names
	Memory     string            // limit in bytes
	Network    string            // namespace
	IPC        string            // namespace
	Links      []string          // network interfaces
}

// insideFile is in the allocation's shared directory, where the test can read
// it.
const insideFile = "inside.json"

// insideOfTest are the namespaces that the test shares with the engine.
func insideOfTest() (in inside) {
	in.Network, _ = os.Readlink("/proc/self/ns/net")
	in.IPC, _ = os.Readlink("/proc/self/ns/ipc")
	return in
}

func writeInside() error {
	in := insideOfTest()
	for _, m := range []*map[string]string{&in.Env, &in.Devices, &in.Mounts, &in.Limits} {
		*m = map[string]string{}
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		in.Env[name] = value
	}
	var statfs syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &statfs); err != nil {
		return err
	}
	in.Shm = statfs.Blocks * uint64(statfs.Bsize)
	args, _ := os.ReadFile("/proc/1/cmdline")
	in.Args = strings.Split(strings.TrimRight(string(args), "\x00"), "\x00")
	for _, file := range []string{"memory/memory.limit_in_bytes", "memory.max"} { // v1, v2
		if text, err := os.ReadFile("/sys/fs/cgroup/" + file); err == nil {
			in.Memory = strings.TrimSpace(string(text))
		}
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		in.Links = append(in.Links, l.Name)
	}
	slices.Sort(in.Links)
	in.lookAtDevices()
	in.lookAtMounts()
	in.lookAtLimits()
	text, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(os.Getenv("NOMAD_ALLOC_DIR"), insideFile)
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Errors of opening a device file if there is no driver.
const (
	allowed   = "allowed"
	forbidden = "forbidden"
)

func open(path string) string {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return allowed
	case errors.Is(err, syscall.ENXIO):
		return allowed // the container allows it; without a driver there is no device behind the file
	case errors.Is(err, syscall.EPERM):
		return forbidden
	}
	return err.Error()
}

const infinibandFile = "/dev/infiniband/uverbs0"

// lookAtDevices opens the existing device files of GPUs, and one that the task
// creates.
func (in *inside) lookAtDevices() {
	files, _ := filepath.Glob("/dev/nvidia*")
	caps, _ := filepath.Glob("/dev/nvidia-caps/*")
	for _, file := range slices.Concat(files, caps) {
		if st, err := os.Stat(file); err == nil && !st.IsDir() {
			in.Devices[file] = open(file)
		}
	}
	if _, err := os.Stat(infinibandFile); err == nil {
		in.Infiniband = open(infinibandFile)
	}
	const stranger = "/tmp/nvidia200"
	if err := syscall.Mknod(stranger, syscall.S_IFCHR|0o666, nvidiaMajor<<8|200); err != nil {
		in.Stranger = err.Error()
		return
	}
	in.Stranger = open(stranger)
}

// containerID matches the source of the files that the engine mounts into each
// container.
var containerID = regexp.MustCompile(`/containers/([0-9a-f]{64})/hostname /etc/hostname `)

func (in *inside) lookAtMounts() {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	if found := containerID.FindStringSubmatch(string(text)); found != nil {
		in.Container = found[1]
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 {
			in.Mounts[fields[4]], _, _ = strings.Cut(after, " ")
		}
	}
}

func (in *inside) lookAtLimits() {
	text, _ := os.ReadFile("/proc/self/limits")
	for line := range strings.Lines(string(text)) {
		if len(line) > 47 {
			name, values := strings.TrimSpace(line[:26]), strings.Fields(line[26:])
			in.Limits[name] = strings.Join(values[:2], " ")
		}
	}
}

// nvidiaRuntime runs as the engine's runtime: see [runtimeName].
func nvidiaRuntime() (int, error) {
	if i := slices.Index(os.Args, "--bundle"); i > 0 && slices.Contains(os.Args, "create") {
		if err := noteGPUs(os.Args[i+1], os.Args[len(os.Args)-1]); err != nil {
			return 0, err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return 0, err
	}
	return 0, syscall.Exec(runc, append([]string{"runc"}, os.Args[1:]...), os.Environ())
}

func noteGPUs(bundle, id string) error {
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return err
	}
	var config struct{ Process struct{ Env []string } }
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	for _, kv := range config.Process.Env {
		ids, ok := strings.CutPrefix(kv, "NVIDIA_VISIBLE_DEVICES=")
		if !ok {
			continue
		}
		for _, gpu := range strings.Split(ids, ",") {
			if !strings.HasPrefix(gpu, "GPU-") && !strings.HasPrefix(gpu, "MIG-") {
				return fmt.Errorf("nvidia-container-cli: device error: %s: unknown device", gpu)
			}
		}
		return os.WriteFile(filepath.Join(runtimeLog, id), []byte(ids), 0o644)
	}
	return nil
}

// gpusOfRuntime are the GPUs that the nvidia runtime gave a container, "" if the engine
// did not call it.
func gpusOfRuntime(id string) (string, error) {
	text, err := os.ReadFile(filepath.Join(runtimeLog, id))
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return string(text), nil
}

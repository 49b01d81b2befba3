// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Package programs has stand-ins for the programs in the images of jobspecs/. They train nothing,
// but fail in the same cases as the real programs: without GPUs, with placeholders instead of
// arguments, and if ranks do not meet.
package programs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// FirstStep is called by rank 1 of a gang after all ranks have met and before they take their first
// step. If FirstStep returns an error, the rank fails.
type FirstStep func() error

// Commands has the programs by name. Each program ends the process.
func Commands(first FirstStep) map[string]func() {
	return map[string]func(){
		"python":      func() { program(func() error { return python(first) }) },
		"torchrun":    func() { program(func() error { return torchrun(first) }) },
		"mpirun":      func() { program(func() error { return mpirun(first) }) },
		"orted":       func() { program(func() error { return orted(first) }) },
		"vllm-openai": func() { program(vllm) },
		"jupyter":     func() { program(jupyter) },
	}
}

func program(run func() error) {
	err := cmp.Or(checkArguments(), run())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func checkArguments() error {
	for _, arg := range os.Args {
		if strings.Contains(arg, "${") || strings.HasSuffix(arg, "=") {
			return fmt.Errorf("argument %q was not filled in", arg)
		}
	}
	if gpus() == 0 {
		return errors.New("no GPU")
	}
	return nil
}

func gpus() int {
	return len(strings.FieldsFunc(os.Getenv("NVIDIA_VISIBLE_DEVICES"), func(r rune) bool { return r == ',' }))
}

// python runs a training script, with rank and address from the environment if
// they are set.
func python(first FirstStep) error {
	if os.Getenv("RANK") == "" {
		return nil
	}
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return err
	}
	world, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return err
	}
	return train(first, rank, world, net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
}

// torchrun is the stand-in for torchrun on one node, with a static rendezvous.
func torchrun(first FirstStep) error {
	nodes := flag.Int("nnodes", 0, "")
	rank := flag.Int("node_rank", -1, "")
	local := flag.Int("nproc_per_node", 0, "")
	address := flag.String("master_addr", "", "")
	port := flag.String("master_port", "", "")
	flag.Parse()
	if *local != gpus() || path.Base(flag.Arg(0)) != "train.py" {
		return fmt.Errorf("train.py needs one process for each GPU, but there are %d processes on %d GPUs (arguments: %q)", *local, gpus(), flag.Args())
	}
	return train(first, *rank, *nodes, net.JoinHostPort(*address, *port))
}

// mpirun is the stand-in for Open MPI's launcher. Like the launcher, it runs the agent with the name
// of each other node and the command that this node must run.
func mpirun(first FirstStep) error {
	hosts := flag.String("host", "", "")
	for _, name := range []string{"allow-run-as-root", "leave-session-attached"} {
		_ = flag.Bool(name, false, "")
	}
	_ = flag.String("bind-to", "", "")
	// The real mpirun reads -mca NAME VALUE.
	args, agent := []string{}, ""
	for i := 1; i < len(os.Args); i++ {
		if os.Args[i] != "--mca" {
			args = append(args, os.Args[i])
			continue
		}
		if os.Args[i+1] == "plm_rsh_agent" {
			agent = os.Args[i+2]
		}
		i += 2
	}
	if err := flag.CommandLine.Parse(args); err != nil {
		return err
	}
	nodes := strings.Split(*hosts, ",")
	for rank, node := range nodes {
		name, slots, _ := strings.Cut(node, ":")
		if slots != strconv.Itoa(gpus()) {
			return fmt.Errorf("%q: %s has %s slots and %d GPUs", *hosts, name, slots, gpus())
		}
		if rank == 0 {
			continue
		}
		command := append(strings.Fields(agent), name, "orted", strconv.Itoa(rank), strconv.Itoa(len(nodes)))
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%q: %w: %s", command, err, out)
		}
	}
	return train(first, 0, len(nodes), net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
}

// orted is the stand-in for Open MPI's daemon on another node. Its arguments are its rank and the
// number of nodes.
func orted(first FirstStep) error {
	var rank, size int
	if _, err := fmt.Sscan(strings.Join(os.Args[1:], " "), &rank, &size); err != nil {
		return err
	}
	return train(first, rank, size, net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
}

// train meets the other ranks at rank 0's address, takes one step, and ends when all
// ranks have taken it.
func train(first FirstStep, rank, world int, address string) error {
	if rank == 0 {
		return lead(world, address)
	}
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	fmt.Fprintln(conn, rank)
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("rank %d could not connect to the other ranks: %w", rank, err)
	}
	if rank == 1 {
		if err := first(); err != nil {
			return err
		}
	}
	fmt.Fprintln(conn, "done")
	if _, err := in.ReadString('\n'); err != nil {
		return fmt.Errorf("another rank has failed: %w", err)
	}
	return nil
}

// longest is how long ranks wait for each other; the test gives up earlier.
const longest = 15 * time.Minute

func dial(address string) (net.Conn, error) {
	for end := time.Now().Add(longest); ; {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn, conn.SetDeadline(end)
		}
		if time.Now().After(end) {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// lead is rank 0. It listens at the address that the other ranks use, which must be an address of
// rank 0's own host.
func lead(world int, address string) error {
	if own := os.Getenv("NOMAD_ADDR_rendezvous"); address != own {
		return fmt.Errorf("rank 0 has address %s but was told to listen at %s", own, address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	end := time.Now().Add(longest) // rank 0 waits for the other ranks until then
	if err := listener.(*net.TCPListener).SetDeadline(end); err != nil {
		return err
	}
	peers := map[string]*bufio.ReadWriter{}
	for len(peers) < world-1 {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("%d of %d ranks came: %w", len(peers)+1, world, err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(end); err != nil {
			return err
		}
		peer := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriterSize(conn, 0))
		rank, err := peer.ReadString('\n')
		if err != nil || peers[rank] != nil {
			return fmt.Errorf("rank %q came twice, or left: %v", rank, err)
		}
		peers[rank] = peer
	}
	for _, step := range []string{"start", "end"} {
		for rank, peer := range peers {
			if _, err := fmt.Fprintln(peer, step); err != nil || peer.Flush() != nil {
				return fmt.Errorf("rank %q: %v", rank, err)
			}
		}
		for rank, peer := range peers {
			if _, err := peer.ReadString('\n'); step == "start" && err != nil {
				return fmt.Errorf("rank %q has failed: %w", rank, err)
			}
		}
	}
	return nil
}

// vllm answers health checks at its port until the process is stopped.
func vllm() error {
	model := flag.String("model", "", "")
	port := flag.Int("port", 0, "")
	_ = flag.Float64("gpu-memory-utilization", 0.9, "")
	flag.Parse()
	return serve(*port, "GET /health", *model)
}

// jupyter is the stand-in for a notebook server.
func jupyter() error {
	flags := flag.NewFlagSet("jupyter", flag.ContinueOnError)
	port := flags.Int("port", 0, "")
	_ = flags.String("ip", "", "")
	_ = flags.Bool("no-browser", false, "")
	_ = flags.Bool("allow-root", false, "")
	_ = flags.Int("MappingKernelManager.cull_idle_timeout", 0, "")
	_ = flags.Int("ServerApp.shutdown_no_activity_timeout", 0, "")
	if len(os.Args) < 2 || os.Args[1] != "lab" {
		return fmt.Errorf("command %q is not lab", os.Args[1:])
	}
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	return serve(*port, "GET /lab", "a notebook")
}

// serve answers one kind of request until the process is stopped.
func serve(port int, request, answer string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc(request, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	server := &http.Server{Addr: fmt.Sprintf(":%d", port), Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return server.Close()
	}
}

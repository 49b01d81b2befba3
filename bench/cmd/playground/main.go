// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command playground is `make playground`. It starts a real Nomad cluster with emulated GPUs, the
// placer and its page. After an interrupt, the playground removes everything that it created.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/nomad-pal/nomad-pal/bench/command"
	"github.com/nomad-pal/nomad-pal/bench/replay"
	"github.com/nomad-pal/nomad-pal/e2e/cluster"
)

//go:embed jobs
var jobs embed.FS

type options struct {
	nomad, bin string
	nodes      int
	others     int
	seed       uint64
	outliers   int
}

func main() {
	var o options
	flag.StringVar(&o.nomad, "nomad", "", "nomad binary")
	flag.StringVar(&o.bin, "bin", "build/bin", "folder with nomad-pal's binaries")
	flag.IntVar(&o.nodes, "nodes", 4, "clients, of 4 GPUs each")
	flag.IntVar(&o.others, "others", 1, "number of additional clients with GPUs of a second model (0: none)")
	flag.Uint64Var(&o.seed, "seed", 1, "random seed of the GPUs")
	flag.IntVar(&o.outliers, "outliers", 1, "number of outlier GPUs; their speeds are drawn from the outliers measured on TACC Longhorn")
	flag.Parse()
	command.Main("playground", func(ctx context.Context) error { return play(ctx, o) })
}

const gpusPerNode = 4

func play(ctx context.Context, o options) (err error) {
	if o.nomad == "" {
		if o.nomad, err = cluster.FindNomad(); err != nil {
			return err
		}
	}
	gpus, source, err := replay.DrawTwoModels(o.nodes, o.others, gpusPerNode, o.outliers, o.seed)
	if err != nil {
		return err
	}
	fmt.Printf("Starting Nomad with %d clients of %d emulated GPUs: %s\n", o.nodes+o.others, gpusPerNode, source)
	bed, err := replay.Start(ctx, replay.Setup{Nomad: o.nomad, Bin: o.bin, GPUs: gpus, Penalty: 1.7, Progress: func(what string) { fmt.Println("  " + what) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	placer, err := bed.StartPlacer(cluster.PlacerOptions{Config: config(bed.Servers()[0].RPCAddr())})
	if err != nil {
		return err
	}
	if err := placer.Serves(ctx); err != nil {
		return err
	}
	files, err := os.MkdirTemp("", "pal-playground-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	if err := writeJobs(files, o.nodes); err != nil {
		return fmt.Errorf("writing the example jobs: %w", err)
	}
	fmt.Print(explain(typed{
		bin: filepath.Dir(bed.Program("nomad-pal")), nomad: o.nomad, address: bed.API().Address(), url: placer.URL(),
		files: filepath.Join(files, "jobs"), twoModels: o.others > 0,
	}, time.Now()))
	<-ctx.Done()
	fmt.Println("\nStopping everything …")
	return placer.Stop()
}

// gangSize matches the count of a job's group.
var gangSize = regexp.MustCompile(`(?m)^(    count = )\d+`)

// writeJobs writes the example jobs into a folder, with counts that suit the number of nodes.
func writeJobs(folder string, nodes int) error {
	if err := os.CopyFS(folder, jobs); err != nil {
		return err
	}
	for job, count := range map[string]int{"train": min(2, nodes), "whole": nodes, "never": 16 * nodes} {
		path := filepath.Join(folder, "jobs", job+".nomad.hcl")
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, gangSize.ReplaceAll(text, fmt.Appendf(nil, "${1}%d", count)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// config returns the demo's agent configuration, plus support for dispatched and periodic jobs.
func config(rpc string) string {
	return replay.Rules{Penalty: 1.7}.HCL() + fmt.Sprintf("nomad {\n  rpc_address = %q\n}\n", rpc)
}

// typed has the values to insert into the commands that [explain] prints.
type typed struct {
	bin, nomad   string
	address, url string // addresses of Nomad and of the placer
	files        string // folder of the example jobs
	twoModels    bool
}

// explain returns the text that tells the user what to type.
func explain(t typed, now time.Time) string {
	light := `  nomad-pal run -detach light.nomad.hcl # runs on an RTX 5000, to leave the V100s to whole
  nomad-pal explain light
`
	if !t.twoModels {
		light = ""
	}
	return fmt.Sprintf(`
The cluster is up. In another terminal:

  export NOMAD_ADDR=%s NOMAD_PAL_ADDR=%s PATH=%s:$PATH
  alias nomad=%s
  cd %s

  nomad-pal gpus                        # which GPUs are slow, and for what
  nomad-pal plan train.nomad.hcl        # where a gang would run, and why
  nomad-pal run -detach train.nomad.hcl
  nomad-pal explain train
  nomad-pal run -detach fails.nomad.hcl # fails: nomad-pal tries other GPUs, then gives up
  nomad-pal run -detach whole.nomad.hcl # needs every V100: it waits for train
%s  nomad-pal queue
  nomad-pal plan never.nomad.hcl        # asks for more GPUs than the cluster has
  nomad-pal events -failures
  nomad-pal gpus -live                  # the load of each GPU

The page: %s/ui/   Nomad's own: %s/ui/

Ctrl-C stops everything and leaves nothing. (started %s)
`, t.address, t.url, t.bin, t.nomad, t.files, light, t.url, t.address, now.Format("15:04"))
}

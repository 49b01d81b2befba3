// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

// Command release packs what release/build.sh has staged: deb and rpm packages, a container image
// and a bill of materials. Equal staged files give byte-identical results; all times in the results
// are the commit's time.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// release is one staged version of the product.
type release struct {
	version string    // without the leading v
	time    time.Time // modification time of all files
	root    string    // root of the repository
	stage   string    // linux_ARCH/BINARY, LICENSES.txt
	out     string
}

// architectures are the architectures to build for, by Go's names.
var architectures = []string{"amd64", "arm64"}

func main() {
	r := release{}
	flag.StringVar(&r.version, "version", "", "the version, without the v")
	seconds := flag.Int64("time", 0, "the modification time of all packed files, in seconds since 1970")
	flag.StringVar(&r.root, "root", ".", "the repository")
	flag.StringVar(&r.stage, "stage", "build/release/stage", "what to pack")
	flag.StringVar(&r.out, "out", "build/release/out", "the folder to write to")
	flag.Parse()
	r.time = time.Unix(*seconds, 0).UTC()
	if err := r.pack(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r release) pack() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{r.materials, r.packages, r.image} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r release) binary(name, arch string) string {
	return filepath.Join(r.stage, "linux_"+arch, name)
}

// write creates a file of the release.
func (r release) write(name string, content func(*os.File) error) error {
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := content(f); err != nil {
		return fmt.Errorf("writing %q: %w", name, err)
	}
	return f.Close()
}

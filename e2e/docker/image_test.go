// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// buildImage returns the tar of an image with this test binary as the programs of [imagePrograms],
// and what shell scripts need of the machine, with the libraries of all of them.
func buildImage() ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files := map[string]string{"/usr/local/bin/nomad-pal-test": self}
	for _, name := range []string{"bash", "sh", "sleep", "date", "grep", "mkdir", "mv", "seq"} {
		if files["/bin/"+name], err = exec.LookPath(name); err != nil {
			return nil, err
		}
	}
	links := map[string]string{}
	for name := range imagePrograms() {
		links["/usr/local/bin/"+name] = "nomad-pal-test"
	}
	return pack(files, links)
}

// pack returns the tar of an image with programs (by their path in the image), their
// libraries, and links.
func pack(programs, links map[string]string) ([]byte, error) {
	files := maps.Clone(programs)
	for _, program := range programs {
		if err := addLibraries(files, program); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, path := range files {
		if err := addFile(w, name, path); err != nil {
			return nil, err
		}
	}
	for name, to := range links {
		h := tar.Header{Typeflag: tar.TypeSymlink, Name: name[1:], Linkname: to, Mode: 0o777}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"tmp/", "workspace/"} {
		h := tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o777}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func addFile(w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h := tar.Header{Name: strings.TrimPrefix(name, "/"), Size: st.Size(), Mode: 0o755}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// library matches a path in the output of ldd, including the loader's.
var library = regexp.MustCompile(`(/\S+) \(0x`)

func addLibraries(files map[string]string, program string) error {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		return fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	for _, found := range library.FindAllStringSubmatch(string(out), -1) {
		path := filepath.Clean(found[1])
		files[path] = path
	}
	return nil
}

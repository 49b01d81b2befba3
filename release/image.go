// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes an OCI archive with the agent for all architectures. The image needs no base image,
// because the binary is static and contains the time zones.
func (r release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.imageOf(arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "nomad-pal-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := "nomad-pal:" + strings.ReplaceAll(r.version, "+", "-") // a tag cannot contain "+"
	// Annotations with the name that podman and docker give the loaded image.
	names := map[string]string{"org.opencontainers.image.ref.name": name, "io.containerd.image.name": "docker.io/library/" + name}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	return r.write("nomad-pal_"+r.version+".oci.tar", func(f *os.File) error {
		w := tree{tar.NewWriter(f), r}
		if err := w.folder(dir); err != nil {
			return err
		}
		return w.Close()
	})
}

func (r release) imageOf(arch string) (v1.Image, error) {
	content, err := r.layer(arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release"}}); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.configOf(arch, image))
}

func (r release) configOf(arch string, image v1.Image) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		panic(err) // cannot fail: the image is in memory
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: r.time}
	file.Config = v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/usr/bin/nomad-pal"},
		Cmd:          []string{"agent"},
		ExposedPorts: map[string]struct{}{"8090/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "nomad-pal",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.source":   "https://github.com/nomad-pal/nomad-pal",
			"org.opencontainers.image.licenses": "MPL-2.0",
		},
	}
	return file
}

// layer returns the file system of the image: the binary, a user, root certificates for
// TLS, and the licences.
func (r release) layer(arch string) ([]byte, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	w := tree{tar.NewWriter(&out), r}
	for _, dir := range []string{"etc", "etc/nomad-pal.d", "etc/ssl", "etc/ssl/certs", "usr", "usr/bin", "usr/share", "usr/share/doc", "usr/share/doc/nomad-pal"} {
		if err := w.dir(dir); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		name, from string
		text       []byte
		mode       fs.FileMode
	}{
		{name: "etc/passwd", text: []byte("root:x:0:0:root:/root:/sbin/nologin\nnomad-pal:x:65532:65532:nomad-pal:/nonexistent:/sbin/nologin\n"), mode: 0o644},
		{name: "etc/group", text: []byte("root:x:0:\nnomad-pal:x:65532:\n"), mode: 0o644},
		{name: "etc/ssl/certs/ca-certificates.crt", text: roots.Bytes(), mode: 0o644},
		{name: "usr/bin/nomad-pal", from: r.binary("nomad-pal", arch), mode: 0o755},
		{name: "usr/share/doc/nomad-pal/LICENSE", from: r.source("LICENSE"), mode: 0o644},
		{name: "usr/share/doc/nomad-pal/NOTICE", from: r.source("NOTICE"), mode: 0o644},
		{name: "usr/share/doc/nomad-pal/LICENSES.txt", from: filepath.Join(r.stage, "LICENSES.txt"), mode: 0o644},
	} {
		if f.from != "" {
			var err error
			if f.text, err = os.ReadFile(f.from); err != nil {
				return nil, err
			}
		}
		if err := w.file(f.name, f.text, f.mode); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// tree writes files that belong to root, all with the release's time.
type tree struct {
	*tar.Writer
	r release
}

func (t tree) dir(name string) error {
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: t.r.time, Format: tar.FormatUSTAR})
}

func (t tree) file(name string, content []byte, mode fs.FileMode) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: int64(mode), ModTime: t.r.time, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

// folder adds all files below a directory, sorted by name.
func (t tree) folder(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			return t.dir(name)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return t.file(name, content, 0o644)
	})
}

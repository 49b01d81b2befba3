// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

var binaries = []string{"nomad-pal", "nomad-device-pal"}

// materials writes a bill of materials for each binary, as CycloneDX, and all licences. The source
// is the build information that the linker wrote into the binaries.
func (r release) materials() error {
	linked := map[string]*debug.Module{}
	for _, name := range binaries {
		for _, arch := range architectures {
			info, err := buildinfo.ReadFile(r.binary(name, arch))
			if err != nil {
				return err
			}
			content, err := os.ReadFile(r.binary(name, arch))
			if err != nil {
				return err
			}
			bom := r.bill(name, info, content)
			if err := r.write(fmt.Sprintf("%s_%s_linux_%s.cdx.json", name, r.version, arch), func(f *os.File) error {
				return cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
			}); err != nil {
				return err
			}
			for _, m := range info.Deps {
				linked[m.Path] = m
			}
		}
	}
	return r.licences(linked)
}

func (r release) bill(name string, info *debug.BuildInfo, content []byte) *cdx.BOM {
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: r.version,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hash}}},
	}
	needs := []string{}
	components := []cdx.Component{}
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + version
		components = append(components, cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url})
		needs = append(needs, url)
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		m = actual(m)
		add(m.Path, m.Version)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: name, Dependencies: &needs}}
	return bom
}

// actual returns the module that was linked, which a replace directive can change.
func actual(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// licences writes the licences of Go and of all linked modules into the stage. The packages and the
// image take the licences from the stage.
func (r release) licences(linked map[string]*debug.Module) error {
	list := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Dir}}", "all")
	list.Dir, list.Stderr = r.root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing modules: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("finding Go: %w", err)
	}
	var text bytes.Buffer
	if err := licence(&text, "The Go standard library", strings.TrimSpace(string(root))); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	found := 0
	for _, line := range lines {
		path, dir, _ := strings.Cut(line, " ")
		m := linked[path]
		if m == nil {
			continue
		}
		found++
		if err := licence(&text, actual(m).Path+" "+actual(m).Version, dir); err != nil {
			return err
		}
	}
	if found != len(linked) {
		return fmt.Errorf("%d modules are linked, but go list knows only %d of these modules", len(linked), found)
	}
	return os.WriteFile(filepath.Join(r.stage, "LICENSES.txt"), text.Bytes(), 0o644)
}

func licence(text *bytes.Buffer, name, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	had := text.Len()
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "==== %s: %s\n\n%s\n\n", name, e.Name(), bytes.TrimSpace(content))
	}
	if text.Len() == had {
		return fmt.Errorf("%s has no licence in %s", name, dir)
	}
	return nil
}

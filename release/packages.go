// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes a deb and an rpm of each product for each architecture.
func (r release) packages() error {
	for _, arch := range architectures {
		for _, format := range []string{"deb", "rpm"} {
			for _, describe := range []func(arch, format string) *nfpm.Info{r.agent, r.plugin} {
				if err := r.packed(describe(arch, format), format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r release) packed(info *nfpm.Info, format string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	return r.write(packager.ConventionalFileName(info), func(f *os.File) error { return packager.Package(info, f) })
}

// agent describes the package nomad-pal.
func (r release) agent(arch, _ string) *nfpm.Info {
	info := r.info("nomad-pal", arch, "MPL-2.0")
	info.Description = "Variability-aware GPU placement for Nomad: the agent and its command line.\n" +
		"Places gangs on fast GPUs that are close to each other, with the policy PAL (SC'24)."
	info.Scripts = nfpm.Scripts{PreInstall: r.source("release/scripts/preinst"), PostInstall: r.source("release/scripts/postinst"), PreRemove: r.source("release/scripts/prerm"), PostRemove: r.source("release/scripts/postrm")}
	deploy := r.source("placer/deploy")
	info.Contents = append(info.Contents,
		file(r.binary("nomad-pal", arch), "/usr/bin/nomad-pal", 0o755),
		// The folder holds the token.
		&files.Content{Destination: "/etc/nomad-pal.d", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o750, Group: "nomad-pal"}},
		&files.Content{Source: deploy + "/systemd/nomad-pal.hcl", Destination: "/etc/nomad-pal.d/nomad-pal.hcl", Type: files.TypeConfigNoReplace, FileInfo: mode(0o644)},
		file(deploy+"/systemd/nomad-pal.service", "/usr/lib/systemd/system/nomad-pal.service", 0o644),
		file(r.source("jobspecs/nomad-pal.nomad.hcl"), "/usr/share/doc/nomad-pal/examples/nomad-pal.nomad.hcl", 0o644),
	)
	for _, name := range []string{"acl/node.policy.hcl", "acl/nomad-pal.policy.hcl", "acl/user.policy.hcl", "monitoring/alerts.yml", "monitoring/grafana.json"} {
		info.Contents = append(info.Contents, file(deploy+"/"+name, "/usr/share/doc/nomad-pal/examples/"+filepath.Base(name), 0o644))
	}
	r.papers(info)
	return info
}

// plugin describes the package nomad-device-pal. The operator chooses Nomad's plugin_dir, so the
// package installs the binary into a folder of its own, which can serve as plugin_dir.
func (r release) plugin(arch, format string) *nfpm.Info {
	info := r.info("nomad-device-pal", arch, "MPL-2.0 AND BUSL-1.1") // NOTICE says which licence covers what
	info.Description = "Nomad device plugin that measures GPUs.\n" +
		"A drop-in replacement for nomad-device-nvidia that shows how fast each GPU is."
	info.Scripts = nfpm.Scripts{PreRemove: r.source("release/scripts/plugin-prerm")}
	libc := map[string]string{"deb": "libc6 (>= " + oldestGlibc + ")", "rpm": "glibc >= " + oldestGlibc}
	info.Depends = []string{libc[format]}
	info.Contents = append(info.Contents,
		dir("/usr/lib/nomad"), dir("/usr/lib/nomad/plugins"),
		file(r.binary("nomad-device-pal", arch), "/usr/lib/nomad/plugins/nomad-device-pal", 0o755),
		&files.Content{Source: "../lib/nomad/plugins/nomad-device-pal", Destination: "/usr/bin/nomad-device-pal", Type: files.TypeSymlink},
		file(r.source("release/nomad-device-pal.hcl"), "/usr/share/doc/nomad-device-pal/examples/nomad-device-pal.hcl", 0o644),
		file(r.source("device-plugin/deploy/nvidia-mps.service"), "/usr/share/doc/nomad-device-pal/examples/nvidia-mps.service", 0o644),
	)
	r.papers(info)
	return info
}

// oldestGlibc is the oldest glibc that the plugin's binaries run on, as release/build.sh checks.
const oldestGlibc = "2.17"

func (r release) info(name, arch, licence string) *nfpm.Info {
	return &nfpm.Info{
		Name:       name,
		Arch:       arch,
		Platform:   "linux",
		Version:    r.version,
		Section:    "admin",
		Maintainer: "The nomad-pal Authors <nomad-pal@users.noreply.github.com>",
		Homepage:   "https://github.com/nomad-pal/nomad-pal",
		License:    licence,
		MTime:      r.time,
		Overridables: nfpm.Overridables{
			// Without BuildHost, rpm records the build machine's name.
			RPM: nfpm.RPM{BuildHost: "nomad-pal"},
		},
	}
}

// papers adds licences and changelog.
func (r release) papers(info *nfpm.Info) {
	doc := "/usr/share/doc/" + info.Name
	info.Contents = append(info.Contents,
		dir(doc), dir(doc+"/examples"),
		file(r.source("LICENSE"), doc+"/LICENSE", 0o644),
		file(r.source("NOTICE"), doc+"/copyright", 0o644),
		file(filepath.Join(r.stage, "LICENSES.txt"), doc+"/LICENSES.txt", 0o644),
		file(r.source("CHANGELOG.md"), doc+"/CHANGELOG.md", 0o644),
	)
}

func (r release) source(path string) string { return filepath.Join(r.root, path) }

func file(source, destination string, m os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: mode(m)}
}

// dir returns a folder that the package owns, so that rpm removes it with the package.
func dir(path string) *files.Content {
	return &files.Content{Destination: path, Type: files.TypeDir, FileInfo: mode(0o755)}
}

func mode(m os.FileMode) *files.ContentFileInfo { return &files.ContentFileInfo{Mode: m} }

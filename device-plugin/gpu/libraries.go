// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// LibraryDirs returns the folders in which GKE's installer, the driver container of NVIDIA's GPU
// operator, WSL2 and NixOS put the driver's libraries. The dynamic linker does not know these
// folders.
func LibraryDirs() []string {
	return []string{
		"/usr/local/nvidia/lib64",
		"/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
		"/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
		"/run/nvidia/driver/usr/lib64",
		WSLLibraries,
		"/run/opengl-driver/lib",
	}
}

// FindLibrary returns the path of a driver library in the first of [LibraryDirs] that has the
// library. It returns name if name is a path, if the dynamic linker knows name, or if no folder has
// the library. root is the root of the file system.
func FindLibrary(root, name string) string {
	if strings.Contains(name, "/") || linkerKnows(root, name) {
		return name
	}
	for _, dir := range LibraryDirs() {
		path := filepath.Join(root, dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return name
}

// linkerKnows reports whether the dynamic linker finds a library by its name: in
// LD_LIBRARY_PATH, in its cache, or in the folders that it always searches.
func linkerKnows(root, name string) bool {
	dirs := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), filepath.Join(root, "/lib"), filepath.Join(root, "/usr/lib"),
		filepath.Join(root, "/lib64"), filepath.Join(root, "/usr/lib64"))
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, name)); dir != "" && err == nil {
			return true
		}
	}
	cache, _ := os.ReadFile(filepath.Join(root, "/etc/ld.so.cache")) // not every system has one
	for entry := range bytes.SplitSeq(cache, []byte{0}) {            // the cache has names and paths among numbers
		path := string(entry)
		if !strings.HasPrefix(path, "/") || filepath.Base(path) != name {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return true
		}
	}
	return false
}

// LibraryPath returns LD_LIBRARY_PATH with the folder of a driver library added, because the
// library loads other libraries from its folder. If library is a name without a folder, LibraryPath
// returns the current value.
func LibraryPath(library string) string {
	path := os.Getenv("LD_LIBRARY_PATH")
	if !strings.Contains(library, "/") {
		return path
	}
	dir := filepath.Dir(library)
	if path == "" {
		return dir
	}
	return path + ":" + dir
}

// Under WSL2 the driver is part of Windows. Linux has no kernel module and no device files for it.
const (
	WSLDevice    = "/dev/dxg"
	WSLLibraries = "/usr/lib/wsl/lib"
)

// IsWSL reports whether the system with this root runs under WSL2: it has WSL2's device
// file and no NVIDIA kernel module.
func IsWSL(root string) bool {
	_, module := os.Stat(filepath.Join(root, "proc/driver/nvidia"))
	_, dxg := os.Stat(filepath.Join(root, WSLDevice))
	return module != nil && dxg == nil
}

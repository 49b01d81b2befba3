// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package gpu

import (
	"os"
	"path/filepath"
	"testing"
)

// FindLibrary returns a library's name if the linker knows it, else the path in the first
// folder where drivers put libraries.
func TestFindLibrary(t *testing.T) {
	const name = "libcuda.so.1"
	cached := "glibc-ld.so.cache1.1\x03\x00\x00libcuda.so.1\x00/usr/lib/x/libcuda.so.1\x00libc.so.6\x00/usr/lib/x/libc.so.6\x00"
	for _, tc := range []struct {
		what  string
		files map[string]string
		ask   string
		want  string // path below the root; "" for the unchanged name
	}{
		{"nowhere", nil, name, ""},
		{"GKE", map[string]string{"/usr/local/nvidia/lib64/libcuda.so.1": ""}, name, "/usr/local/nvidia/lib64/libcuda.so.1"},
		{"GPU operator", map[string]string{"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1": ""}, name, "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.1"},
		{"WSL2", map[string]string{"/usr/lib/wsl/lib/libcuda.so.1": ""}, name, "/usr/lib/wsl/lib/libcuda.so.1"},
		{"two of them", map[string]string{"/usr/lib/wsl/lib/libcuda.so.1": "", "/usr/local/nvidia/lib64/libcuda.so.1": ""}, name, "/usr/local/nvidia/lib64/libcuda.so.1"},
		{"the linker's folder", map[string]string{"/usr/lib64/libcuda.so.1": "", "/usr/lib/wsl/lib/libcuda.so.1": ""}, name, ""},
		{"the linker's cache", map[string]string{"/etc/ld.so.cache": cached, "/usr/lib/x/libcuda.so.1": "", "/usr/lib/wsl/lib/libcuda.so.1": ""}, name, ""},
		{"an old cache", map[string]string{"/etc/ld.so.cache": cached, "/usr/lib/wsl/lib/libcuda.so.1": ""}, name, "/usr/lib/wsl/lib/libcuda.so.1"},
		{"another name in the cache", map[string]string{"/etc/ld.so.cache": cached, "/usr/lib/x/libcuda.so.1": "", "/usr/lib/wsl/lib/libnvidia-ml.so.1": ""}, "libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"},
		{"a path", map[string]string{"/usr/lib/wsl/lib/libcuda.so.1": ""}, "/opt/libcuda.so.1", ""},
	} {
		root := t.TempDir()
		for path, text := range tc.files {
			full := filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := tc.ask
		if tc.want != "" {
			want = filepath.Join(root, tc.want)
		}
		if got := FindLibrary(root, tc.ask); got != want {
			t.Errorf("%s: %s, want %s", tc.what, got, want)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", "/nowhere:"+root)
	if got := FindLibrary(t.TempDir(), name); got != name {
		t.Errorf("in LD_LIBRARY_PATH: %s", got)
	}
}

// A library that is opened by its path finds the compiler of kernels beside it.
func TestLibraryPath(t *testing.T) {
	for _, tc := range []struct{ now, library, want string }{
		{"", "libcuda.so.1", ""},
		{"/a", "libcuda.so.1", "/a"},
		{"", "/b/libcuda.so.1", "/b"},
		{"/a", "/b/libcuda.so.1", "/a:/b"},
	} {
		t.Setenv("LD_LIBRARY_PATH", tc.now)
		if got := LibraryPath(tc.library); got != tc.want {
			t.Errorf("%q, %s: %q, want %q", tc.now, tc.library, got, tc.want)
		}
	}
}

// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl"
)

// nomadConfig holds the parts of Nomad's agent configuration that doctor checks.
type nomadConfig struct {
	pluginDir, dataDir string
	blocks             []pluginBlock
}

// readNomadConfig reads a file, or all .hcl and .json files of a directory.
func readNomadConfig(path string) (nomadConfig, error) {
	var c nomadConfig
	st, err := os.Stat(path)
	if err != nil {
		return c, err
	}
	files := []string{path}
	if st.IsDir() {
		files = nil
		entries, err := os.ReadDir(path)
		if err != nil {
			return c, err
		}
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if ext == ".hcl" || ext == ".json" {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(files) == 0 {
		return c, fmt.Errorf("%s contains no .hcl or .json file", path)
	}
	for _, f := range files {
		if err := c.read(f); err != nil {
			return c, fmt.Errorf("%s: %w", f, err)
		}
	}
	return c, nil
}

// agentFile is the part of a configuration file that doctor reads. Nomad reads these files as HCL
// 1, which allows keys that HCL 2 does not.
type agentFile struct {
	PluginDir string        `hcl:"plugin_dir"`
	DataDir   string        `hcl:"data_dir"`
	Plugins   []pluginBlock `hcl:"plugin"`
}

// pluginBlock is a plugin block: its label and its configuration.
type pluginBlock struct {
	Name   string         `hcl:",key"`
	Config map[string]any `hcl:"config"`
}

// read adds one file. The value in the last file wins, as in Nomad.
func (c *nomadConfig) read(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var f agentFile
	if err := hcl.Decode(&f, string(data)); err != nil {
		return err
	}
	c.pluginDir, c.dataDir = cmp.Or(f.PluginDir, c.pluginDir), cmp.Or(f.DataDir, c.dataDir)
	c.blocks = append(c.blocks, f.Plugins...)
	return nil
}

// plugins returns the plugin directory; "" if the configuration has none.
func (c *nomadConfig) plugins() string {
	if c.pluginDir == "" && c.dataDir != "" {
		return filepath.Join(c.dataDir, "plugins")
	}
	return c.pluginDir
}

// installed returns the name of a binary, or of a link to the binary, in the plugin directory.
// installed returns "" if the directory has neither.
func (c *nomadConfig) installed(binary string) string {
	entries, _ := os.ReadDir(c.plugins()) // without the directory, nothing is installed
	own, err := os.Stat(binary)
	for _, e := range entries {
		st, err2 := os.Stat(filepath.Join(c.plugins(), e.Name()))
		if err == nil && err2 == nil && os.SameFile(own, st) {
			return e.Name()
		}
	}
	return ""
}

// labels returns the labels of all plugin blocks.
func (c *nomadConfig) labels() []string {
	var out []string
	for _, b := range c.blocks {
		out = append(out, b.Name)
	}
	return out
}

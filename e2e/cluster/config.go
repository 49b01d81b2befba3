// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// object is a JSON object of an agent's configuration file.
type object map[string]any

// configure writes the agent's configuration, with the current ports, into the agent's directory.
func (a *Agent) configure(c *Cluster) error {
	conf := a.common(c)
	extra := c.options.ServerHCL
	if a.client != nil {
		conf["client"] = a.clientBlock(c)
		conf["datacenter"] = a.client.Datacenter
		conf["plugin_dir"] = filepath.Join(a.Dir, "plugins")
		extra = a.client.HCL
		if err := a.linkPlugins(); err != nil {
			return err
		}
		extra += a.pluginBlocks()
	} else {
		conf["server"] = a.serverBlock(c)
	}
	text, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding configuration of %s: %w", a.Name, err)
	}
	dir := filepath.Join(a.Dir, "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "10-agent.json"), text, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "20-extra.hcl"), []byte(extra), 0o600)
}

// common is the part of the configuration that servers and clients share.
func (a *Agent) common(c *Cluster) object {
	addr := func(port int) string { return fmt.Sprintf("%s:%d", a.ip, port) }
	conf := object{
		"name":                 a.Name,
		"region":               "global",
		"datacenter":           "dc1",
		"data_dir":             filepath.Join(a.Dir, "data"),
		"bind_addr":            a.ip,
		"advertise":            object{"http": addr(a.ports.http), "rpc": addr(a.ports.rpc), "serf": addr(a.ports.serf)},
		"ports":                object{"http": a.ports.http, "rpc": a.ports.rpc, "serf": a.ports.serf},
		"disable_update_check": true,
		"log_level":            "INFO",
		"leave_on_interrupt":   false,
		"leave_on_terminate":   false,
		"consul":               object{"auto_advertise": false, "client_auto_join": false, "server_auto_join": false},
		// The default of 1 s keeps a core busy if many agents share a machine.
		"telemetry": object{"collection_interval": "5s"},
		"ui":        object{"enabled": false},
	}
	if c.options.ACL {
		conf["acl"] = object{"enabled": true}
	}
	if c.options.TLS {
		conf["tls"] = c.tls.agentBlock(a.client == nil)
	}
	return conf
}

func (a *Agent) serverBlock(c *Cluster) object {
	block := object{
		"enabled":           true,
		"bootstrap_expect":  c.options.Servers,
		"raft_multiplier":   1,
		"min_heartbeat_ttl": c.options.HeartbeatTTL.String(),
		"heartbeat_grace":   c.options.HeartbeatTTL.String(),
		// With Nomad's default of 50 heartbeats a second, servers tell clients to wait longer than
		// min_heartbeat_ttl.
		"max_heartbeats_per_second": 10_000,
	}
	if c.options.Servers > 1 {
		join := make([]string, 0, c.options.Servers)
		for _, s := range c.servers {
			join = append(join, fmt.Sprintf("%s:%d", s.ip, s.ports.serf))
		}
		block["server_join"] = object{"retry_join": join, "retry_interval": "1s"}
	}
	return block
}

func (a *Agent) clientBlock(c *Cluster) object {
	servers := make([]string, len(c.servers))
	for i, s := range c.servers {
		servers[i] = s.RPCAddr()
	}
	block := object{
		"enabled":           true,
		"servers":           servers,
		"no_host_uuid":      true, // the agents share a host: without this, they would share the node id
		"cpu_total_compute": a.client.CPUMHz,
		"memory_total_mb":   a.client.MemoryMB,
		// The real disk is shared and may be nearly full, which must not affect where jobs are
		// placed.
		"disk_total_mb":            1_000_000,
		"disk_free_mb":             900_000,
		"gc_disk_usage_threshold":  99,
		"gc_inode_usage_threshold": 99,
		"gc_max_allocs":            100,
		"options": object{
			// Nomad's cloud fingerprinters would wait for a metadata service that does not exist
			// here.
			"fingerprint.denylist": "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,plugins_cni,landlock",
			"driver.allowlist":     "raw_exec,rank", // "rank" if bench/rankdriver is among the plugins
		},
	}
	if a.client.NodePool != "" {
		block["node_pool"] = a.client.NodePool
	}
	if a.client.NodeClass != "" {
		block["node_class"] = a.client.NodeClass
	}
	if len(a.client.Meta) > 0 {
		block["meta"] = a.client.Meta
	}
	return block
}

// linkPlugins fills the agent's own plugin directory, so that a client loads only its own plugins.
func (a *Agent) linkPlugins() error {
	dir := filepath.Join(a.Dir, "plugins")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range a.client.Plugins {
		target, err := filepath.Abs(p.Path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("plugin of %s: %w", a.Name, err)
		}
		link := filepath.Join(dir, p.name())
		if err := os.Symlink(target, link); err != nil && !os.IsExist(err) {
			return fmt.Errorf("plugin of %s: %w", a.Name, err)
		}
	}
	return nil
}

// OwnAddress is a placeholder in a plugin's configuration for the API address of the agent that
// starts the plugin.
const OwnAddress = "{{own address}}"

func (a *Agent) pluginBlocks() string {
	var b strings.Builder
	b.WriteString("\nplugin \"raw_exec\" {\n  config {\n    enabled = true\n  }\n}\n")
	for _, p := range a.client.Plugins {
		fmt.Fprintf(&b, "\nplugin %q {\n  config {\n%s\n  }\n}\n", p.name(), strings.ReplaceAll(p.Config, OwnAddress, a.HTTPAddr()))
	}
	return b.String()
}

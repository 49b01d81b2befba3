// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/measure"
	"github.com/nomad-pal/nomad-pal/pal/attr"
)

// finding is the result of one check.
type finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"` // "ok", "warn" or "fail"
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"` // what to do about it
}

const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "fail"
)

// diagnosis runs the checks in order. Later checks use the results of earlier checks.
type diagnosis struct {
	source
	nomadConfig string
	cudaLibrary string
	patience    time.Duration // how long to wait for the driver
	cfg         deviceplugin.Config
	hasBlock    bool   // Nomad's configuration has a block for this plugin
	blockErr    error  // why the plugin does not accept the block
	stateless   bool   // the configuration sets no state_dir
	self        string // path of this binary
	root        string // parent of /dev and /proc
	agent       nomadConfig
	agentErr    error // why Nomad's configuration could not be read
	inv         *gpu.Inventory
	findings    []finding
}

func doctorCommand(ui cli.Ui) *command {
	return &command{
		synopsis: "Check driver, GPUs and installation, and say how to fix what is wrong",
		help: `Usage: nomad-device-pal doctor [options]

  Checks the driver, NVML, CUDA, permissions, the GPUs, the state directory with its
  faults and failed measurements, where this plugin is installed, its block in Nomad's
  configuration, and the profile. It also checks whether Nomad reports which GPUs
  allocations hold, because the plugin measures no GPU without this report. Options that
  you leave out come from the plugin's block. Exits with 1 if a check fails.
` + sourceHelp + `  -nomad-config=PATH
                   Nomad's configuration file or directory (default /etc/nomad.d).
  -state-dir=DIR   The plugin's state_dir.
  -cuda=LIBRARY    CUDA driver library (default libcuda.so.1).
`,
		run: func(args []string) int {
			d := diagnosis{patience: gpu.DriverWithin, root: "/"}
			code, ok := d.parse(ui, "doctor", args, func(fs *flag.FlagSet) {
				fs.StringVar(&d.nomadConfig, "nomad-config", "/etc/nomad.d", "")
				fs.StringVar(&d.stateDir, "state-dir", "", "")
				fs.StringVar(&d.cudaLibrary, "cuda", "", "")
			})
			if !ok {
				return code
			}
			var err error
			if d.self, err = os.Executable(); err != nil {
				return fail(ui, "doctor", err)
			}
			d.run()
			return d.print(ui)
		},
	}
}

func (d *diagnosis) run() {
	d.agent, d.agentErr = readNomadConfig(d.nomadConfig)
	d.configured()
	d.hardware()
	d.state()
	d.placement()
	d.block()
	d.calibration()
}

// hardware checks the driver, the GPUs and CUDA. hardware skips GPUs and CUDA while the driver is
// released, because an open driver blocks a reset.
func (d *diagnosis) hardware() {
	real := d.inventory == ""
	if real {
		d.driver()
	}
	if d.leftAlone() {
		return
	}
	if real {
		d.permissions()
	}
	d.devices()
	if real && d.cfg.Measure.Mode != measure.Off {
		d.cuda()
	}
	if real && d.cfg.Measure.Mode == measure.Idle {
		d.books()
	}
}

func (d *diagnosis) add(status, check, message, fix string) {
	d.findings = append(d.findings, finding{check, status, message, fix})
}

// driver checks in /proc, without NVML, whether the kernel driver is loaded.
func (d *diagnosis) driver() {
	data, err := os.ReadFile(d.path("/proc/driver/nvidia/version"))
	switch {
	case err == nil:
		first, _, _ := strings.Cut(string(data), "\n")
		d.add(statusOK, "driver", first, "")
	case !gpu.IsWSL(d.root):
		d.add(statusFail, "driver", "the NVIDIA kernel driver is not loaded", "install the driver for this kernel, then: modprobe nvidia")
	default:
		d.wsl()
	}
}

// wsl checks the driver under WSL2, which is the driver of Windows.
func (d *diagnosis) wsl() {
	if _, err := os.Stat(d.path(gpu.WSLLibraries)); err != nil {
		d.add(statusFail, "driver", "this is WSL2, and "+gpu.WSLLibraries+" is missing: Windows has no NVIDIA driver for WSL2",
			"install NVIDIA's driver on Windows, not in Linux; then run in Windows: wsl --update, wsl --shutdown")
		return
	}
	d.add(statusOK, "driver", "this is WSL2: the driver runs on Windows, and its libraries are in "+gpu.WSLLibraries+"; under WSL2 the driver reports no events (Xid), so the plugin sees faults only in its next scan", "")
}

// path returns the path of a file below root.
func (d *diagnosis) path(name string) string { return filepath.Join(d.root, name) }

// permissions checks the access to the device files.
func (d *diagnosis) permissions() {
	const control, memory = "/dev/nvidiactl", "/dev/nvidia-uvm"
	makes := map[string]string{control: "run nvidia-smi as root to make this file; nvidia-persistenced makes the file at boot", memory: "nvidia-modprobe -u -c=0 makes this file"}
	files := []string{control, memory}
	if gpu.IsWSL(d.root) {
		files = []string{gpu.WSLDevice}
	}
	for _, path := range files {
		f, err := os.OpenFile(d.path(path), os.O_RDWR, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.add(statusWarn, "permissions", path+" does not exist", makes[path])
		case err != nil:
			d.add(statusFail, "permissions", err.Error(), "run Nomad's client as root, as Nomad requires")
		default:
			f.Close()
			d.add(statusOK, "permissions", path+" can be opened", "")
		}
	}
}

// devices lists the GPUs, and then checks their health.
func (d *diagnosis) devices() {
	cfg := d.config()
	b := open(cfg)
	inv, err := gpu.Within(d.patience, "listing the GPUs", b.Scan)
	if errors.Is(err, gpu.ErrNoAnswer) {
		d.add(statusFail, "gpus", err.Error(), deviceplugin.Remedy("driver-not-answering", "UUID", d.stateDir))
		return
	}
	defer b.Close()
	if err != nil {
		d.add(statusFail, "gpus", err.Error(), "nvidia-smi must work first; "+d.library+" comes with the driver")
		return
	}
	for _, w := range inv.Warnings {
		d.add(statusWarn, "gpus", w, "")
	}
	d.hidden(inv)
	d.inv = &inv
	if len(inv.Devices) == 0 && len(inv.Hidden) == 0 {
		d.add(statusFail, "gpus", "the driver works but lists no GPU", "lspci -d 10de: shows which NVIDIA GPUs the machine has")
	}
	if len(inv.Devices) == 0 {
		return
	}
	for _, g := range inv.Devices {
		if err := measure.Supported(g); err != nil && len(g.Measured.Times) == 0 {
			d.add(statusWarn, "measure", g.ID+" ("+g.Model+") is not measured: "+err.Error(), "no action is needed: jobs run on this GPU, and nomad-pal counts it as a median GPU, although the node publishes it in class 5, the slowest")
		}
	}
	for _, g := range inv.Devices {
		if g.PersistenceMode == "Disabled" {
			d.add(statusWarn, "persistence", g.ID+" has persistence mode off, so the first job on an idle GPU waits for the driver, and NVML calls are slow", "systemctl enable --now nvidia-persistenced")
			break
		}
	}
	d.health()
}

// health reports the GPUs' health as the plugin would publish it.
func (d *diagnosis) health() {
	groups, err := firstFingerprint(d.plugin())
	if err != nil {
		d.add(statusFail, "gpus", err.Error(), "")
		return
	}
	for _, g := range groups {
		unhealthy := 0
		for _, dev := range g.Devices {
			if !dev.Healthy {
				unhealthy++
				d.add(statusFail, "health", d.name(dev.ID)+" is unhealthy: "+dev.HealthDesc, deviceplugin.Remedy(dev.HealthDesc, d.physical(dev.ID), d.stateDir))
			} else if reasons, ok := strings.CutPrefix(dev.HealthDesc, attr.DegradedPrefix); ok {
				d.degraded(dev.ID, reasons)
			}
		}
		d.add(statusOK, "gpus", fmt.Sprintf("%d × %s, %d healthy", len(g.Devices), g.Name, len(g.Devices)-unhealthy), "")
	}
}

// degraded reports a degraded GPU. If the driver could not answer a question about the GPU, the
// check fails, because an operator must find the cause.
func (d *diagnosis) degraded(id, reasons string) {
	status := statusWarn
	var fixes []string
	for reason := range strings.SplitSeq(reasons, ",") {
		kind, _, _ := strings.Cut(reason, ":")
		if kind == "nvml" {
			status = statusFail
		}
		fix := deviceplugin.Remedy(reason, d.physical(id), d.stateDir)
		if !slices.Contains(fixes, fix) {
			fixes = append(fixes, fix)
		}
	}
	d.add(status, "health", d.name(id)+" is degraded: "+reasons, strings.Join(fixes, "; ")+"; as long as the GPU is degraded, it is in class 5, the slowest")
}

// name returns an instance's id, with nvidia-smi's number of its GPU.
func (d *diagnosis) name(id string) string {
	for _, dev := range d.inv.Devices {
		slot := dev.Slot()
		if slot.Index != nil && dev.ID == attr.GPUOf(id) {
			return fmt.Sprintf("%s (GPU %d)", id, *slot.Index)
		}
	}
	return id
}

// physical returns the GPU that a device belongs to.
func (d *diagnosis) physical(id string) string {
	for _, dev := range d.inv.Devices {
		if dev.ID == id {
			return dev.Physical()
		}
	}
	return id
}

// hidden reports the GPUs that the driver lists but the plugin cannot publish.
func (d *diagnosis) hidden(inv gpu.Inventory) {
	for _, h := range inv.Hidden {
		d.add(statusFail, "gpus", h.String()+": this GPU is not published to Nomad", deviceplugin.RemedyHidden(h))
	}
}

// placement checks that Nomad can find this binary under the right name.
func (d *diagnosis) placement() {
	c := d.agent
	if d.agentErr != nil {
		d.add(statusWarn, "placement", fmt.Sprintf("Nomad's configuration cannot be read, so plugin_dir is unknown: %v", d.agentErr),
			"pass the path of Nomad's configuration with -nomad-config; put this binary into plugin_dir, and add to the configuration: plugin \"nomad-device-pal\" { config {} }")
		return
	}
	dir, name := c.plugins(), filepath.Base(d.self)
	_, unread := os.ReadDir(dir)
	installed := c.installed(d.self)
	switch {
	case dir == "":
		d.add(statusFail, "placement", "neither plugin_dir nor data_dir is set in "+d.nomadConfig, "set plugin_dir and put "+name+" there")
	case unread != nil && !os.IsNotExist(unread):
		d.add(statusWarn, "placement", "plugin_dir cannot be read: "+unread.Error(), "correct plugin_dir, or run doctor as root, like Nomad's client")
	case installed == "":
		d.add(statusWarn, "placement", fmt.Sprintf("this binary is not in plugin_dir (plugin_dir is %s, this binary is %s)", dir, d.self),
			"mkdir -p "+dir+" && ln -sfn "+d.self+" "+filepath.Join(dir, name))
	default:
		d.add(statusOK, "placement", "plugin_dir "+dir+" contains this binary as "+installed, "")
	}
	d.label(c, d.blockName())
}

// blockName returns the label of this plugin's block: the binary's file name in plugin_dir, without
// extension.
func (d *diagnosis) blockName() string {
	name := cmp.Or(d.agent.installed(d.self), filepath.Base(d.self))
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// label checks that a plugin block in Nomad's configuration names this plugin. Nomad loads an
// external plugin only if the label of a block is the file's name.
func (d *diagnosis) label(c nomadConfig, want string) {
	if slices.Contains(c.labels(), want) {
		d.add(statusOK, "placement", fmt.Sprintf("the configuration has a plugin block %q", want), "")
		return
	}
	d.add(statusFail, "placement", fmt.Sprintf("there is no plugin block %q in %s (found: %s)", want, d.nomadConfig, cmp.Or(strings.Join(c.labels(), ", "), "none")),
		fmt.Sprintf("add: plugin %q { config {} }  — the label is the name of the binary, not \"nvidia\"", want))
}

// calibration checks the profile.
func (d *diagnosis) calibration() {
	path := d.cfg.ProfilePath
	switch {
	case d.cfg.ProfileFromNomad != nil:
		d.add(statusOK, "profile", "comes from Nomad's variables (profile_from_nomad)", "")
		return
	case path == "":
		d.add(statusOK, "profile", "no profile is set, so measured GPUs are compared only with GPUs of the same model on this node", "")
		return
	}
	p, err := deviceplugin.ReadProfile(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.add(statusFail, "profile", err.Error(), "nomad-pal profile export -o "+path+" writes it")
		return
	}
	if err != nil {
		d.add(statusFail, "profile", path+": "+err.Error(), "write the profile again; until then the plugin keeps the previous profile")
		return
	}
	d.add(statusOK, "profile", fmt.Sprintf("version %d", p.Version), "")
}

func (d *diagnosis) print(ui cli.Ui) int {
	code := 0
	if slices.ContainsFunc(d.findings, func(f finding) bool { return f.Status == statusFail }) {
		code = 1
	}
	if d.json {
		return max(code, printJSON(ui, "doctor", d.findings))
	}
	for _, f := range d.findings {
		ui.Output(fmt.Sprintf("%-4s  %-11s  %s", f.Status, f.Check, f.Message))
		if f.Fix != "" {
			ui.Output("                   → " + f.Fix)
		}
	}
	return code
}

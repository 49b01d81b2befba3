// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/hashicorp/cli"

	deviceplugin "github.com/nomad-pal/nomad-pal/device-plugin"
	"github.com/nomad-pal/nomad-pal/device-plugin/cuda/fakecuda"
	"github.com/nomad-pal/nomad-pal/device-plugin/gpu"
	"github.com/nomad-pal/nomad-pal/device-plugin/nvml/nvmltest"
	"github.com/nomad-pal/nomad-pal/internal/advice"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// followedBy are texts with advice that doctor never shows, each with the test that follows it.
var followedBy = map[string]string{
	"GPUs %s have one MPS control daemon each, but a process can use only one daemon: request parts of one GPU (count = 1)": "TestReserveByMPS",
	"make room on the disk of state_dir; until then, the plugin cannot store changes and loses them when it restarts":       "TestDoctorOfAFullDisk",
	"write sharing blocks yourself to choose other values":                                                                  "TestBlockOfTheIncumbentsSharing",
	// Advice in the log. These faults take a while to appear, or appear while tasks run.
	"have its cooling checked": "TestLogNamesTheRemedy", "have the machine's power supplies checked": "TestLogNamesTheRemedy",
	"end all tasks that share the GPU; the next task then gets a new server":                                                      "TestLogNamesTheRemedy",
	"end the tasks that hold the GPU (the plugin's log names these tasks); if no task holds the GPU: nomad-device-pal clear $GPU": "TestLogNamesTheRemedy",
	"the plugin's log has the error; the daemon's own log is in the folder of config key sharing.directory":                       "TestLogNamesTheRemedy",
	"nomad-device-pal remeasure $GPU; if the GPU is slow again, have cooling and power checked":                                   "TestLogNamesTheRemedy", "take the GPU out and have it tested": "TestLogNamesTheRemedy",
	"in %s at the earliest": "TestMeasuringThatTakesTheMachineDownIsNotTriedAgainAtOnce",
	"let the plugin ask Nomad (config block nomad), or measure with: nomad-pal measure":                                                                                                     "TestNothingIsMeasuredWithoutProof",
	"only on request: nomad-pal measure or nomad-device-pal remeasure":                                                                                                                      "TestMeasuringIsOrderedAfterCrashes",
	"is measured only on request (nomad-pal measure or nomad-device-pal remeasure): the measurement was cut short %d times in a row, because the plugin or the machine went down each time": "TestMeasuringIsOrderedAfterCrashes",
	"let the plugin ask Nomad (config block nomad), or drain the node, then: ":                                                                                                              "TestLogNamesTheRemedy",
	"the MPS control daemon of config key \"sharing.pipe_directory\" does not run: start it with nvidia-cuda-mps-control -d":                                                                "TestOperatorsDaemon",
}

// Once an operator has followed the advice of doctor or another command, that advice is gone. For
// faults of GPUs, following means a driver without the fault.
func TestAdvice(t *testing.T) {
	followed, ran := &advice.Followed{}, 0
	for name, part := range map[string]func(*testing.T, *advice.Followed){"GPUs": adviceOnGPUs, "orders": adviceOnOrders, "CUDA": adviceOnCUDA, "installation": adviceOnInstallation, "typing": adviceOnTyping} {
		t.Run(name, func(t *testing.T) {
			ran++
			part(t, followed)
			if t.Failed() {
				ran--
			}
		})
	}
	if t.Failed() || ran < 5 {
		return
	}
	finder, err := advice.NewFinder("../../../docs", "stub.go", "pal/reason/text.go")
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := advice.Linked(".")
	if err != nil {
		t.Fatal(err)
	}
	texts, err := finder.In(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	var tests []byte
	for _, in := range []string{"*_test.go", "../../*_test.go", "../../*/*_test.go"} {
		paths, err := filepath.Glob(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, text...)
		}
	}
	for _, text := range followed.Rest(texts) {
		if by := followedBy[text.Text]; by == "" || !strings.Contains(string(tests), "\nfunc "+by+"(") {
			t.Errorf("%s: no test follows the advice %q", text.Where, text.Text)
		}
	}
}

// adviceOnGPUs runs doctor on GPUs with faults, and again once they are repaired.
func adviceOnGPUs(t *testing.T, f *advice.Followed) {
	lib := fakeNVML(t)
	told := func(text string) (said string) {
		for line := range strings.Lines(text) {
			if status, _, _ := strings.Cut(strings.TrimSpace(line), " "); status == "→" || status == statusWarn || status == statusFail {
				said += line
			}
		}
		return said
	}
	healthy := told(oddNode(t, lib, &datadriven.TestData{Cmd: "node"}))
	if healthy != "" {
		t.Fatalf("a healthy node: %s", healthy)
	}
	stories := []string{ // in addition to testdata/odd
		"sys init 18", "sys init 4", "sys init 999", "gpu0 field.230 2", "gpu0 nvlinks 0", "gpu0 persistence 0",
	}
	datadriven.Walk(t, "testdata/odd", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			for line := range strings.Lines(d.Expected) {
				if text, advised := strings.CutPrefix(strings.TrimSpace(line), "→ "); advised {
					f.Add(text, text)
				} else if strings.HasPrefix(line, statusWarn) || strings.HasPrefix(line, statusFail) {
					f.Add(line, line)
				}
			}
			return d.Expected // TestOddNodes compares the output
		})
	})
	none := told(oddNode(t, lib, &datadriven.TestData{Cmd: "node", CmdArgs: []datadriven.CmdArg{{Key: "gpus", Vals: []string{"0"}}}}))
	if !f.Add(none, "lspci -d 10de: shows which NVIDIA GPUs the machine has") {
		t.Errorf("without GPUs: %s", none)
	}
	for _, story := range stories {
		text := told(oddNode(t, lib, &datadriven.TestData{Cmd: "node", Input: story}))
		if text == "" {
			t.Errorf("%s: nothing is said", story)
			continue
		}
		f.Add(text, text)
	}
	if healthy := told(oddNode(t, lib, &datadriven.TestData{Cmd: "node"})); healthy != "" {
		t.Errorf("repaired: %s", healthy)
	}
	i := installed{t: t, dir: t.TempDir()}
	emulated := func(lines string) string {
		path := i.write("gpus.hcl", "gpu \"GPU-a\" {\n"+lines+"}\n")
		d := diagnosis{source: source{inventory: path}, stateless: true, patience: 5 * time.Second, root: oddMachine(t, "driver")}
		d.devices()
		var b strings.Builder
		for _, f := range d.findings {
			if f.Status != statusOK {
				b.WriteString(f.Message + " → " + f.Fix + "\n")
			}
		}
		return b.String()
	}
	for _, fault := range []string{"lost", "reset", "hang", "remap", "remap-pending", "fabric", "nvlink", "thermal", "power-brake", "pcie"} {
		text := emulated("  fault = \"" + fault + "\"\n")
		f.Add(text, text)
	}
	if text := emulated(""); text != "" {
		t.Errorf("without a fault: %s", text)
	}
}

// installed is a machine with a plugin directory and a configuration of Nomad's client.
type installed struct {
	t    *testing.T
	dir  string
	self string
}

func (i installed) write(name, text string) string {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
		i.t.Fatal(err)
	}
	return path
}

// findings returns doctor's findings for a configuration of Nomad: for each check one line
// with message and advice.
func (i installed) findings(config string, change func(*diagnosis)) string {
	i.t.Helper()
	d := diagnosis{nomadConfig: config, patience: gpu.DriverWithin, root: oddMachine(i.t, "driver"), self: i.self}
	d.source.inventory = i.write("gpus.hcl", "gpu \"GPU-a\" {\n}\n")
	if change != nil {
		change(&d)
	}
	d.run()
	var b strings.Builder
	for _, f := range d.findings {
		if f.Status != statusOK {
			b.WriteString(f.Check + ": " + f.Message + " → " + f.Fix + "\n")
		}
	}
	return b.String()
}

// adviceOnInstallation follows doctor's advice about plugin_dir, the block in Nomad's
// configuration, the state, CUDA and the profile.
func adviceOnInstallation(t *testing.T, f *advice.Followed) {
	i := installed{t: t, dir: t.TempDir()}
	i.self = i.write("bin/nomad-device-pal", "")
	plugins := filepath.Join(i.dir, "plugins")
	state := filepath.Join(i.dir, "state")
	if err := errors.Join(os.Mkdir(plugins, 0o755), os.Mkdir(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	dir, block := "plugin_dir = \""+plugins+"\"\n", "plugin \"nomad-device-pal\" {\n  config {\n    state_dir = \""+state+"\"\n  }\n}\n"
	garbage, good := i.write("garbage.json", "{"), i.write("good.hcl", dir+block)
	p, err := profile.Build([]profile.Sample{{GPU: "GPU-a", Model: "NVIDIA H200", App: "A", Key: "k", Time: 1}}, profile.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := i.write("valid.json", string(p.Encode()))
	other := i.write("other.json", strings.ReplaceAll(string(p.Encode()), "GPU-a", "GPU-other"))
	elsewhere := i.otherFolders(block)
	typed := func(config string) func(string) string { // runs the advised command
		return func(said string) string {
			command := regexp.MustCompile(`(?m)^placement: this binary is not in .*?((mkdir|ln) -.*)$`).FindStringSubmatch(said)[1]
			if out, err := exec.Command("/bin/sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", command, err, out)
			}
			return config
		}
	}
	open := filepath.Join(i.dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	without := func(name string) func(string) string { // like the plugin, which writes the file again
		return func(string) string {
			if err := os.Remove(filepath.Join(i.dir, name)); err != nil {
				t.Fatal(err)
			}
			return good
		}
	}
	file := func(name, text string) string { return i.write(name, text) }
	with := func(of string) string {
		return dir + strings.Replace(block, "config {\n", "config {\n"+of, 1)
	}
	library := func(d *diagnosis) { d.inventory, d.library, d.cudaLibrary = "", fakeNVML(t), "libnone.so.1" }
	for _, c := range []struct {
		wrong, says string
		follow      func(said string) (right string)
		change      func(*diagnosis) // for both runs of doctor
		first       func(*diagnosis) // only for the first run
	}{
		{wrong: filepath.Join(i.dir, "nowhere"), says: "pass the path of Nomad's configuration with -nomad-config", follow: func(string) string { return good }},
		{wrong: file("nodir.hcl", block), says: "set plugin_dir and put nomad-device-pal there", follow: func(string) string { return good }},
		{wrong: good, says: "ln -s ", follow: typed(good)},
		{wrong: elsewhere["missing"], says: "mkdir -p ", follow: typed(elsewhere["missing"])},
		{wrong: elsewhere["linked"], says: "replace the link to another file: ln -sfn ", follow: typed(elsewhere["linked"])},
		{wrong: elsewhere["copied"], says: "if it is an old copy of this plugin, and then: ", follow: func(said string) string {
			if err := os.Remove(filepath.Join(i.dir, "copied", "nomad-device-pal")); err != nil {
				t.Fatal(err)
			}
			return typed(elsewhere["copied"])(said)
		}},
		{wrong: elsewhere["file"], says: "correct plugin_dir, or run doctor as root, like Nomad's client", follow: func(string) string { return good }},
		{wrong: file("nolabel.hcl", dir+strings.Replace(block, "nomad-device-pal", "nvidia", 1)), says: `add: plugin "nomad-device-pal" { config {} }`, follow: func(said string) string {
			add := regexp.MustCompile(`add: (plugin .*\})  —`).FindStringSubmatch(said)[1]
			return file("label.hcl", dir+strings.NewReplacer("{ config {} }", "{\n  config {}\n}").Replace(add)+"\n")
		}},
		{wrong: file("mistyped.hcl", with("fingerprint_priod = \"1m\"\n")), says: "fix the plugin block, because Nomad's agent does not start with an invalid block", follow: func(string) string { return file("mended.hcl", with("fingerprint_period = \"1m\"\n")) }},
		{wrong: file("twice.hcl", with("sharing {\n  replicas = 2\n  gpus = [\"GPU-a\"]\n}\nsharing {\n  replicas = 3\n  gpus = [\"NVIDIA H200\"]\n}\n")), says: "fix the sharing block, then restart Nomad's client", follow: func(string) string {
			return file("once.hcl", with("sharing {\n  replicas = 2\n}\n"))
		}},
		{wrong: file("stateless.hcl", dir+strings.Replace(block, state, "", 1)), says: "set state_dir to a directory that only the plugin uses", follow: func(string) string { return good }},
		{wrong: good, says: "write the profile again; until then the plugin keeps the previous profile", follow: func(string) string { return good }, change: func(d *diagnosis) { d.profile = valid }, first: func(d *diagnosis) { d.profile = garbage }},
		{wrong: good, says: "nomad-pal measure; then write the file again: nomad-pal profile export -o", follow: func(string) string { return good }, change: func(d *diagnosis) { d.profile = valid }, first: func(d *diagnosis) { d.profile = other }},
		{wrong: good, says: "no action is needed if the plugin runs as root, because the plugin then makes the directory", follow: func(string) string { return good }, first: func(d *diagnosis) { d.stateDir = filepath.Join(i.dir, "nowhere") }},
		{wrong: good, says: "other users can write to it (mode 0777): give the plugin a directory of its own", follow: func(string) string { return good }, first: func(d *diagnosis) { d.stateDir = open }},
		{wrong: good, says: "chmod 700 the directory and chown it to the user that Nomad's client runs as", follow: func(string) string {
			if err := os.Chmod(open, 0o700); err != nil {
				t.Fatal(err)
			}
			return good
		}, change: func(d *diagnosis) { d.stateDir = open }},
		{wrong: good, says: "the plugin starts without this file and writes a new one", follow: without("state/state.json"), first: func(*diagnosis) { i.write("state/state.json", "{") }},
		{wrong: good, says: "the plugin starts without this file and measures again", follow: without("state/measurements.json"), first: func(*diagnosis) { i.write("state/measurements.json", "{") }},
		{wrong: good, says: "the plugin writes a new list with its next scan", follow: without("state/inventory.json"), first: func(*diagnosis) { i.write("state/inventory.json", "{") }},
		{wrong: good, says: "chmod +x ", follow: func(said string) string {
			if err := os.Chmod(regexp.MustCompile(`chmod \+x (\S+)`).FindStringSubmatch(said)[1], 0o755); err != nil {
				t.Fatal(err)
			}
			return good
		}, first: func(*diagnosis) {
			if err := os.Chmod(i.self, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{wrong: good, says: "nomad-pal profile export -o " + filepath.Join(i.dir, "none.json") + " writes it", follow: func(string) string { return good }, change: func(d *diagnosis) { d.profile = valid }, first: func(d *diagnosis) { d.profile = filepath.Join(i.dir, "none.json") }},
		{wrong: good, says: `or set measure { mode = "off" }`, follow: func(string) string {
			return file("unmeasured.hcl", with("measure {\n  mode = \"off\"\n}\n"))
		}, change: library},
		{wrong: good, says: "run Nomad's client as root, as Nomad requires", follow: func(string) string { return good }, change: library, first: func(d *diagnosis) {
			library(d)
			if err := errors.Join(os.Remove(filepath.Join(d.root, "/dev/nvidiactl")), os.Mkdir(filepath.Join(d.root, "/dev/nvidiactl"), 0o755)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}},
		{wrong: good, says: "if this check still fails, fix the owner and mode of the directory", follow: func(string) string { return good }, first: func(d *diagnosis) {
			if d.stateDir = "/sys/kernel"; os.Geteuid() != 0 { // nobody may write there
				d.stateDir = t.TempDir()
				if err := os.Chmod(d.stateDir, 0o500); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		said := i.findings(c.wrong, func(d *diagnosis) {
			switch {
			case c.first != nil:
				c.first(d)
			case c.change != nil:
				c.change(d)
			}
		})
		if !f.Add(said, c.says) {
			t.Errorf("%s: want advice %q, got\n%s", c.wrong, c.says, said)
			continue
		}
		if again := i.findings(c.follow(said), c.change); strings.Contains(again, c.says) {
			t.Errorf("%s: followed %q, but doctor still gives it:\n%s", c.wrong, c.says, again)
		}
	}
	i.followsHung(f)
	text := help(commands(cli.NewMockUi()))
	if !f.Add(text, "put this file into the client's plugin_dir") {
		t.Errorf("help: %s", text)
	}
	own := regexp.MustCompile(`(?s)      plugin .*?\n      \}\n`).FindString(text)
	if said := i.findings(file("helped.hcl", dir+own), nil); strings.Contains(said, "placement") {
		t.Errorf("the block of the help, %s: %s", own, said)
	}
}

// otherFolders returns configurations with plugin folders in which "ln -s" fails: the folder is
// missing, is a file, or already contains a link to another file or a file of the plugin's name.
func (i installed) otherFolders(block string) map[string]string {
	i.t.Helper()
	at := func(name string) string { return filepath.Join(i.dir, name, "nomad-device-pal") }
	i.write("copied/nomad-device-pal", "old")
	i.write("file", "")
	if err := errors.Join(os.Mkdir(filepath.Join(i.dir, "linked"), 0o755), os.Symlink("/none", at("linked"))); err != nil {
		i.t.Fatal(err)
	}
	configs := map[string]string{}
	for _, name := range []string{"missing", "linked", "copied", "file"} {
		configs[name] = i.write(name+".hcl", "plugin_dir = \""+filepath.Join(i.dir, name)+"\"\n"+block)
	}
	return configs
}

// followsHung runs doctor with a CUDA driver that does not answer in time, and then with
// one that does.
func (i installed) followsHung(f *advice.Followed) {
	const says = "look for hung processes on the GPUs"
	starts := func(patience time.Duration) string {
		d := diagnosis{cudaLibrary: "libnone.so.1", patience: patience}
		d.cuda()
		return d.findings[0].Fix
	}
	for range 1000 { // the driver may be faster than the limit
		if f.Add(starts(time.Nanosecond), says) {
			break
		}
	}
	if said := starts(gpu.DriverWithin); strings.Contains(said, says) {
		i.t.Errorf("with a driver that answers: %s", said)
	}
}

// adviceOnTyping types what commands advise about their own arguments.
func adviceOnTyping(t *testing.T, f *advice.Followed) {
	all := commands(cli.NewMockUi())
	said := unknownCommand([]string{"docter"}, all)
	if !f.Add(said, `did you mean "doctor"?`) || unknownCommand([]string{"doctor"}, all) != "" {
		t.Error(said)
	}
	ui := cli.NewMockUi()
	if code := statsCommand(ui).Run([]string{"-jsn"}); code != 2 || !f.Add(ui.ErrorWriter.String(), "(did you mean -json?)") {
		t.Errorf("a mistyped option: exit code %d, %s", code, ui.ErrorWriter)
	}
	if said := unknownCommand([]string{"xyzzy"}, all); !f.Add(said, "see nomad-device-pal -help.") || !strings.Contains(help(all), "doctor") {
		t.Error(said)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inventory.json"), []byte(`{"Devices": [{"ID": "GPU-a"}, {"ID": "GPU-b"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	does := func(args ...string) (int, string) { return doesCommand(t, args...) }
	if code, text := does("clear", "-state-dir", dir, "GPU-"); code == 0 || !f.Add(text, "type a longer prefix (GPU-a, GPU-b)") {
		t.Errorf("clear: %d %s", code, text)
	}
	if code, text := does("clear", "-state-dir", dir, "GPU-b"); code != 0 {
		t.Errorf("clear GPU-b: %d %s", code, text)
	}
}

// doesCommand runs a command.
func doesCommand(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	c, err := commands(&cli.BasicUi{Writer: &out, ErrorWriter: &errs})[args[0]]()
	if err != nil {
		t.Fatal(err)
	}
	return c.Run(args[1:]), out.String() + errs.String()
}

// orderIn matches an order to the running plugin in a text.
var orderIn = regexp.MustCompile(`nomad-device-pal (resume|clear|remeasure)( [^;.\n→]*)?`)

// adviceOnOrders gives the running plugin the orders that doctor and other commands name.
func adviceOnOrders(t *testing.T, f *advice.Followed) {
	i := installed{t: t, dir: t.TempDir()}
	dir := filepath.Join(i.dir, "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	of := func(d *diagnosis) { d.stateDir = dir }
	gives := func(said, order string) { // typed exactly as the text has it
		t.Helper()
		for _, m := range orderIn.FindAllStringSubmatch(said, -1) {
			if m[1] != order {
				continue
			}
			f.Add(said, said)
			if code, text := doesCommand(t, append([]string{order}, strings.Fields(m[2])...)...); code != 0 {
				t.Errorf("%s: %d %s", m[0], code, text)
			}
			return
		}
		t.Errorf("no order %s: %s\n%s", order, said, i.findings("", of))
	}
	i.write("state/inventory.json", `{"Devices": [{"ID": "GPU-a"}, {"ID": "GPU-gone", "BusID": "0000:99:00.0"}]}`)
	until := time.Now().Add(time.Minute)
	if err := deviceplugin.Release(dir, until); err != nil {
		t.Fatal(err)
	}
	library := func(d *diagnosis) { of(d); d.inventory, d.library = "", "libnone.so" }
	if code, text := doesCommand(t, "fingerprint", "-nvml=libnone.so", "-state-dir="+dir); code != 1 {
		t.Errorf("fingerprint: %d %s", code, text)
	} else {
		gives(text, "resume")
	}
	if code, text := doesCommand(t, "fingerprint", "-nvml=libnone.so", "-state-dir="+dir); code != 1 || strings.Contains(text, "is released") {
		t.Errorf("fingerprint, resumed: %d %s", code, text)
	}
	if err := deviceplugin.Release(dir, until); err != nil {
		t.Fatal(err)
	}
	gives(i.findings("", library), "resume")
	if again := i.findings("", library); strings.Contains(again, "left alone") {
		t.Errorf("resumed: %s", again)
	}
	lib := fakeNVML(t)
	state := nvmltest.H200(1)
	if err := state.Write(lib + ".state"); err != nil {
		t.Fatal(err)
	}
	i.write("state/inventory.json", fmt.Sprintf(`{"Devices": [{"ID": %q}, {"ID": "GPU-gone", "BusID": "0000:99:00.0"}]}`, nvmltest.UUID(0)))
	said := i.findings("", func(d *diagnosis) { of(d); d.inventory, d.library = "", lib })
	gives(lineWith(said, "GPU-gone"), "clear")
	i.write("state/inventory.json", `{"Devices": [{"ID": "GPU-a"}]}`)
	i.write("state/state.json", `{"version": 1, "latches": {"GPU-a": [{"xid": 79}]}}`)
	said = i.findings("", of)
	gives(lineWith(said, "is unhealthy"), "clear")
	i.write("state/measurements.json", `{"format": "nomad-pal/measurements/1", "gpus": {"GPU-a": {"problem": "the GPU did not answer", "failures": 1}}}`)
	gives(i.findings("", of), "remeasure")
}

// lineWith returns the line of a text that contains these words.
func lineWith(text, words string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, words) {
			return line
		}
	}
	return ""
}

// adviceOnCUDA runs doctor with CUDA drivers that fail, and then with one that works.
func adviceOnCUDA(t *testing.T, f *advice.Followed) {
	lib, err := fakecuda.Build(t.TempDir())
	if errors.Is(err, fakecuda.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tell := filepath.Join(t.TempDir(), "fake")
	t.Setenv(fakecuda.Env, tell)
	starts := func(text string) finding {
		if err := os.WriteFile(tell, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d := diagnosis{cudaLibrary: lib, patience: gpu.DriverWithin}
		d.cuda()
		return d.findings[0]
	}
	for code, says := range map[int]string{
		46: "(nvidia-smi -c)", 802: "(nvidia-smi conf-compute -srs 1)", 221: "install this library with the driver's compute libraries", 803: "reload the driver or reboot",
		804: "remove the package's folder from LD_LIBRARY_PATH and ld.so.conf", 34: "remove the stub's folder from LD_LIBRARY_PATH", 999: "load the module with nvidia-modprobe -u -c=0",
	} {
		if said := starts(fmt.Sprintf("gpus=1\ninit=%d\n", code)); said.Status != statusFail || !f.Add(said.Message, says) {
			t.Errorf("%d: want %q, got %+v", code, says, said)
		}
	}
	if said := starts("gpus=1\n"); said.Status != statusOK {
		t.Errorf("a driver without faults: %+v", said)
	}
}

// commandsIn matches the plugin's commands in texts, with their options.
var commandsIn = regexp.MustCompile("(?:^|[ (:`;'\"])nomad-device-pal ([a-z]+)((?: +(?:-[a-z][a-z-]*(?:=\\S+| \\S+)?|[A-Z$]\\S*))*)")

// notCommands are words that may follow the plugin's name in a sentence.
var notCommands = regexp.MustCompile(`^(is|has|was|on|in|of|and|or|links|measures|says|there|as|with|to|does|knows|runs|replaces|keeps|publishes|reads|under|for|needs|from|job|it|which|that|must|may|instead|writes|stays|then|calls|into)$`)

// TestCommandsInTexts: the commands in code and docs exist, with their options.
func TestCommandsInTexts(t *testing.T) {
	all, seen := commands(cli.NewMockUi()), 0
	check := func(where, text string) {
		for _, m := range commandsIn.FindAllStringSubmatch(text, -1) {
			if notCommands.MatchString(m[1]) {
				continue
			}
			seen++
			make, ok := all[m[1]]
			if !ok {
				t.Errorf("%s: there is no command nomad-device-pal %s: %s", where, m[1], m[0])
				continue
			}
			c, err := make()
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range regexp.MustCompile(`(?:^| )(-[a-z][a-z-]*)`).FindAllStringSubmatch(m[2], -1) {
				if o[1] != "-h" && o[1] != "-help" && !regexp.MustCompile(`(?m)(^|[\s,(\[])`+o[1]+`\b`).MatchString(c.Help()) {
					t.Errorf("%s: nomad-device-pal %s has no option %s: %s", where, m[1], o[1], m[0])
				}
			}
		}
	}
	root := filepath.Join("..", "..", "..")
	for _, dir := range []string{"docs", "device-plugin", "jobspecs", "placer", "README.md"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			switch filepath.Ext(path) {
			case ".go":
				texts, err := advice.Texts(path)
				for _, text := range texts {
					check(text.Where, text.Text)
				}
				return err
			case ".md", ".hcl":
				text, err := os.ReadFile(path)
				for _, span := range regexp.MustCompile("(?m)`[^`\n]+`|^\\$ .*$").FindAllString(string(text), -1) {
					check(path, strings.TrimPrefix(span, "$ "))
				}
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 50 {
		t.Errorf("%d commands only", seen)
	}
}

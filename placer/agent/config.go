// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/profile"
	"github.com/nomad-pal/nomad-pal/pal/queue"
	"github.com/nomad-pal/nomad-pal/placer/model"
	"github.com/nomad-pal/nomad-pal/placer/rewrite"
	"github.com/nomad-pal/nomad-pal/placer/window"
)

// File is the configuration as written. docs/reference/configuration.md describes each key with its
// unit and default.
type File struct {
	LogLevel string        `hcl:"log_level,optional"`
	Locality *Locality     `hcl:"locality,block"`
	Queue    *Queue        `hcl:"queue,block"`
	Tenants  []Tenant      `hcl:"tenant,block"`
	Windows  []windowBlock `hcl:"window,block"`
	Apps     []App         `hcl:"app,block"`
	// Calibration configures how measured times become classes; see [profile.Options].
	Calibration *profile.Options `hcl:"calibration,block"`
	Nomad       *Nomad           `hcl:"nomad,block"`
	HTTP        *HTTP            `hcl:"http,block"`
	HA          *HA              `hcl:"high_availability,block"`
	Admission   *Admission       `hcl:"admission,block"`
	History     *History         `hcl:"history,block"`
	// Rest are the keys of [model.Keys] that are in no block.
	Rest hcl.Body `hcl:",remain"`

	settings []setting
}

// Queue configures the order of the queue: the keys of [model.Keys] in the block queue.
type Queue struct {
	Rest hcl.Body `hcl:",remain"`
}

// setting is a key of [model.Keys] with its value in a file.
type setting struct {
	key   model.Key
	value string
	at    hcl.Range
}

// Locality holds the locality penalty of each tier: the slowdown factor, at least 1, of a gang
// whose members span that tier. A tier without a penalty is merged with the next wider tier.
type Locality struct {
	Penalties penalties       `hcl:",remain"`
	Classes   []LocalityClass `hcl:"class,block"`
}

// LocalityClass holds those penalties of one application class that differ from the general
// penalties.
type LocalityClass struct {
	Name      string    `hcl:"name,label"`
	Penalties penalties `hcl:",remain"`
}

type penalties struct {
	Island     float64 `hcl:"island,optional"`
	NUMA       float64 `hcl:"numa,optional"`
	Node       float64 `hcl:"node,optional"`
	Rack       float64 `hcl:"rack,optional"`
	Datacenter float64 `hcl:"datacenter,optional"`
	Cluster    float64 `hcl:"cluster,optional"`
}

// Tenant limits what a group of namespaces may use.
type Tenant struct {
	Name string       `hcl:"name,label"`
	Rest queue.Tenant `hcl:",remain"`
}

// windowBlock reserves nodes for maintenance, or for some jobs: see [window.Window].
type windowBlock struct {
	Name     string        `hcl:"name,label"`
	Start    string        `hcl:"start,optional"`
	Duration string        `hcl:"duration"`
	Rest     window.Window `hcl:",remain"`
}

// rule returns the block as a [window.Window].
func (w windowBlock) rule() (window.Window, error) {
	r := w.Rest
	r.Name = w.Name
	if err := duration(fmt.Sprintf("window %q: duration", w.Name), w.Duration, &r.Duration); err != nil {
		return r, err
	}
	if w.Start != "" {
		start, err := time.Parse(time.RFC3339, w.Start)
		if err != nil {
			return r, fmt.Errorf("window %q: start = %q is not a time such as 2026-11-25T02:00:00Z", w.Name, w.Start)
		}
		r.Start = start
	}
	return r, nil
}

// App maps the name of an application in `pal_class` to an application class.
type App struct {
	Name  string `hcl:"name,label"`
	Class string `hcl:"class"`
}

// Nomad configures how to reach Nomad. Values that are not set come from Nomad's environment
// variables.
type Nomad struct {
	Address       string `hcl:"address,optional"`
	Region        string `hcl:"region,optional"`
	Namespace     string `hcl:"namespace,optional"`
	Token         string `hcl:"token,optional"`
	TokenFile     string `hcl:"token_file,optional"`
	CACert        string `hcl:"ca_cert,optional"`
	ClientCert    string `hcl:"client_cert,optional"`
	ClientKey     string `hcl:"client_key,optional"`
	TLSServerName string `hcl:"tls_server_name,optional"`
	// RPCAddress has the RPC addresses of servers, host:port separated by commas. The placer needs
	// these addresses to place dispatched and periodic children. If RPCAddress is "", the placer
	// does not place children.
	RPCAddress string `hcl:"rpc_address,optional"`

	// opened has the connections of all clients of this configuration.
	opened sync.Mutex
	conns  *connections
}

// HTTP configures the agent's own API.
type HTTP struct {
	BindAddress string `hcl:"bind_address,optional"`
	BindPort    *int   `hcl:"bind_port,optional"`
	CertFile    string `hcl:"cert_file,optional"`
	KeyFile     string `hcl:"key_file,optional"`
	ClientCA    string `hcl:"client_ca_file,optional"`
	// AllowedHosts are further host names that the agent accepts. The agent always accepts
	// localhost, the machine's own name, IP addresses, the hosts of bind_address and advertise, and
	// the names in its certificate.
	AllowedHosts []string `hcl:"allowed_hosts,optional"`
	// Advertise is the API address that the agent publishes in Nomad, where commands find it.
	Advertise string `hcl:"advertise,optional"`
}

// HA elects one active placer among several.
type HA struct {
	Enabled *bool  `hcl:"enabled,optional"`
	LockTTL string `hcl:"lock_ttl,optional"`
}

// blank returns the configuration that applies without any file. A block in a file changes only the
// values that it sets. Blocks that switch on a feature are nil.
func blank() File {
	calibration := profile.DefaultOptions()
	return File{Calibration: &calibration, Locality: &Locality{}, Nomad: &Nomad{}, HTTP: &HTTP{}, HA: &HA{}}
}

// Load reads configuration files, and the *.hcl and *.json files of directories in lexical order,
// as one configuration. A directory without *.hcl and *.json files is an error. Errors name file
// and line.
func Load(paths []string) (File, error) {
	f := blank()
	parser := hclparse.NewParser()
	var files []*hcl.File
	names, err := list(paths)
	if err != nil {
		return f, err
	}
	for _, name := range names {
		parse := parser.ParseHCLFile
		if filepath.Ext(name) == ".json" {
			parse = parser.ParseJSONFile
		}
		file, diags := parse(name)
		if diags.HasErrors() {
			return f, fmt.Errorf("reading configuration: %w", diags)
		}
		files = append(files, file)
	}
	diags := gohcl.DecodeBody(hcl.MergeFiles(files), nil, &f)
	if diags.HasErrors() {
		return f, fmt.Errorf("reading configuration: %w", all(diags))
	}
	diags = f.readSettings()
	if diags.HasErrors() {
		return f, fmt.Errorf("reading configuration: %w", all(diags))
	}
	return f, nil
}

// all joins the errors among the diagnostics, one per line.
func all(diags hcl.Diagnostics) error {
	var errs []error
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			errs = append(errs, d)
		}
	}
	return errors.Join(errs...)
}

// readSettings reads the keys of [model.Keys], and checks each value.
func (f *File) readSettings() hcl.Diagnostics {
	diags := f.readBlock("", f.Rest)
	if f.Queue != nil {
		diags = append(diags, f.readBlock("queue", f.Queue.Rest)...)
	}
	return diags
}

func (f *File) readBlock(block string, body hcl.Body) hcl.Diagnostics {
	schema, known := &hcl.BodySchema{}, map[string]model.Key{}
	for _, k := range model.Keys() {
		if k.Block == block {
			known[k.Name] = k
			schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: k.Name})
		}
	}
	content, diags := body.Content(schema)
	for _, name := range slices.Sorted(maps.Keys(content.Attributes)) {
		s, more := settingOf(known[name], content.Attributes[name])
		diags = append(diags, more...)
		if !more.HasErrors() {
			f.settings = append(f.settings, s)
		}
	}
	return diags
}

// settingOf returns an attribute's value as text, checked against the key.
func settingOf(key model.Key, a *hcl.Attribute) (setting, hcl.Diagnostics) {
	at := a.Expr.Range()
	value, diags := a.Expr.Value(nil)
	if diags.HasErrors() {
		return setting{}, diags
	}
	text, err := convert.Convert(value, cty.String)
	switch {
	case err == nil && text.IsNull():
		err = errors.New("it has no value")
	case err == nil:
		scratch := model.DefaultConfig()
		err = key.Set(&scratch, text.AsString())
	}
	if err != nil {
		return setting{}, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Invalid value of " + key.Path(), Detail: err.Error(), Subject: &at}}
	}
	return setting{key, text.AsString(), at}, nil
}

func list(paths []string) ([]string, error) {
	var names []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("reading configuration: %w", err)
		}
		if !st.IsDir() {
			names = append(names, p)
			continue
		}
		entries, err := os.ReadDir(p)
		if err != nil {
			return nil, fmt.Errorf("reading configuration: %w", err)
		}
		before := len(names)
		for _, e := range entries {
			hidden := e.Name()[0] == '.' // such as Emacs' lock of a file that somebody edits
			ext := filepath.Ext(e.Name())
			if !e.IsDir() && !hidden && (ext == ".hcl" || ext == ".json") {
				names = append(names, filepath.Join(p, e.Name()))
			}
		}
		if len(names) == before {
			return nil, fmt.Errorf("reading configuration: %s has no file whose name ends in .hcl or .json", p)
		}
	}
	return names, nil
}

// PlacerConfig returns the placer's configuration: the defaults, overridden by the file.
func (f File) PlacerConfig() (model.Config, error) {
	c := model.DefaultConfig()
	var err error
	for _, s := range f.settings {
		if err := s.key.Set(&c, s.value); err != nil {
			return c, fmt.Errorf("%s: %s: %w", s.at, s.key.Path(), err)
		}
	}
	for i, a := range f.Apps {
		if c.Apps[a.Name], err = pal.ParseAppClass(a.Class); err != nil {
			return c, fmt.Errorf("app %q: %w", a.Name, err)
		}
		if slices.ContainsFunc(f.Apps[:i], func(o App) bool { return o.Name == a.Name }) {
			return c, fmt.Errorf("app %q is defined twice", a.Name)
		}
	}
	if err := f.Locality.apply(&c.Locality); err != nil {
		return c, err
	}
	for _, t := range f.Tenants {
		if c.Queue.Tenants == nil {
			c.Queue.Tenants = map[string]queue.Tenant{}
		}
		_, twice := c.Queue.Tenants[t.Name]
		if twice {
			return c, fmt.Errorf("tenant %q is defined twice", t.Name)
		}
		c.Queue.Tenants[t.Name] = t.Rest
	}
	for _, w := range f.Windows {
		rule, err := w.rule()
		if err != nil {
			return c, err
		}
		c.Windows = append(c.Windows, rule)
	}
	c.Calibration = *f.Calibration
	if _, err := f.History.retention(); err != nil {
		return c, err
	}
	c.Children = f.Nomad.RPCAddress != ""
	if err := c.Validate(); err != nil {
		return c, err
	}
	return c, f.validateEndpoints(c)
}

// LogLevel parses a log level.
func LogLevel(text string) (hclog.Level, error) {
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		return level, fmt.Errorf("log level %q is unknown; it must be one of trace, debug, info, warn, error", text)
	}
	return level, nil
}

func duration(key, value string, to *time.Duration) error {
	if value == "" {
		return nil
	}
	d, err := rewrite.ParseSpan(value)
	if err != nil {
		return fmt.Errorf("%s = %q is %w", key, value, err)
	}
	*to = d
	return nil
}

func (l *Locality) apply(to *pal.Locality) error {
	set := func(class int, p penalties) {
		for i, p := range []float64{p.Island, p.NUMA, p.Node, p.Rack, p.Datacenter, p.Cluster} {
			if p != 0 {
				to[int(pal.TierIsland)+i][class] = p
			}
		}
	}
	for class := range pal.NumClasses {
		set(class, l.Penalties)
	}
	for i, c := range l.Classes {
		class, err := pal.ParseAppClass(c.Name)
		if err != nil {
			return fmt.Errorf("locality: %w", err)
		}
		if slices.ContainsFunc(l.Classes[:i], func(o LocalityClass) bool { return strings.EqualFold(o.Name, c.Name) }) {
			return fmt.Errorf("locality: class %q is defined twice", c.Name)
		}
		set(class.Index(), c.Penalties)
	}
	fillTiers(to)
	return nil
}

// fillTiers completes the tiers for which only some classes have a penalty: the other classes get
// their penalty for the next wider tier.
func fillTiers(l *pal.Locality) {
	none := [pal.NumClasses]float64{}
	wider := l[pal.TierCluster]
	for t := pal.TierCluster - 1; t >= pal.TierIsland; t-- {
		if l[t] == none {
			continue
		}
		for class := range l[t] {
			l[t][class] = cmp.Or(l[t][class], wider[class])
		}
		wider = l[t]
	}
}

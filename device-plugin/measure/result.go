// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package measure

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/attr"
	"github.com/nomad-pal/nomad-pal/pal/profile"
)

// Format names the JSON form of a [Report].
const Format = profile.MeasurementFormat

// Report is what one call of measure found; a file of it can be imported.
type Report struct {
	Format  string    `json:"format"`
	Node    string    `json:"node,omitempty"` // host name
	Started time.Time `json:"started"`
	Results []Result  `json:"results"` // by GPU
}

// Limit is what held a GPU's clocks down while it was measured.
type Limit string

// The limits.
const (
	LimitPower   Limit = "power"   // the power cap: what variability comes from
	LimitThermal Limit = "thermal" // temperature
	LimitNone    Limit = "none"    // nothing: a compute kernel measures little then
	LimitUnknown Limit = "unknown" // no telemetry
)

// Result is one GPU's session.
type Result struct {
	GPU   string `json:"gpu"`
	Model string `json:"model"`
	// Key is the comparability key: times of different keys are not comparable.
	Key     string    `json:"key"`
	Driver  string    `json:"driver,omitempty"`
	CUDA    string    `json:"cuda,omitempty"`
	PowerW  int64     `json:"power_limit_w,omitempty"` // enforced
	ECC     *bool     `json:"ecc,omitempty"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	Warmup  *Warmup   `json:"warmup,omitempty"`
	// Compile is how long the driver took to compile each kernel, in seconds.
	Compile map[string]float64 `json:"compile_seconds,omitempty"`
	// CPUSeconds is what the measuring process took of the machine's cores.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// Apps are the application classes, or the user's application, in the order
	// in which they were measured.
	Apps []App `json:"apps"`
	// Partial: the session ended early, for the reason in Problem. Apps is valid.
	Partial bool   `json:"partial,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Corrupt: the same work did not always give the same result.
	Corrupt bool `json:"corrupt,omitempty"`
	// Warnings are what a person should know.
	Warnings []string `json:"warnings,omitempty"`
	// Beside is how many other GPUs of the node, of Of in all, began to be measured with this one
	// or were being measured: they share air and power.
	Beside int `json:"beside"`
	Of     int `json:"of"`
	// refused: CUDA did not start, as the system is not ready for it.
	refused bool
}

// Provisional reports whether GPUs of the node were idle meanwhile: in a job that uses the whole
// node this one is hotter, and perhaps slower.
func (r Result) Provisional() bool { return r.Beside+1 < r.Of }

// Warmup is the time before measuring.
type Warmup struct {
	Seconds float64 `json:"seconds"`
	Steady  bool    `json:"steady"` // the clock had settled at the end, and the temperature if the plan waits for it
}

// App is one application class, or application, of a session.
type App struct {
	App    pal.AppClass `json:"app"`
	Kernel string       `json:"kernel,omitempty"`
	Work   string       `json:"work,omitempty"` // what one unit is
	// Ms is the median time of a unit of work, CI the relative half width of
	// its 95 % confidence interval, Sigma the relative standard deviation of a
	// window.
	Ms    float64 `json:"ms"`
	CI    float64 `json:"ci"`
	Sigma float64 `json:"sigma"`
	// Rate of work in Unit; Share of what the hardware can do at the clock it
	// had. 0 if it is not known.
	Rate      float64 `json:"rate,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	Share     float64 `json:"share_of_peak,omitempty"`
	LimitedBy Limit   `json:"limited_by"`
	// Slow: far below what any sound GPU of the model reaches: an outlier, even
	// without others to compare it with.
	Slow bool `json:"slow,omitempty"`
	// Sum is the checksum of what a unit computes: GPUs of one key have the same.
	Sum string `json:"sum,omitempty"`
	// Converged: CI is within the bound asked for.
	Converged bool         `json:"converged"`
	Windows   []Repetition `json:"windows"`
}

// Repetition is one run of the work, kept or dropped.
type Repetition struct {
	Ms    float64 `json:"ms"` // per unit
	Units int     `json:"units"`
	// Means of the telemetry during the window; nil if there was none.
	ClockMHz *float64 `json:"sm_clock_mhz,omitempty"`
	PowerW   *float64 `json:"power_w,omitempty"`
	TempC    *float64 `json:"temperature_c,omitempty"`
	Throttle string   `json:"throttle,omitempty"` // reasons, comma-joined
	// Dropped is why the window does not count; "" if it does.
	Dropped string `json:"dropped,omitempty"`
}

// Measurement is the result in the form that the plugin publishes; ok is false
// when it holds no time.
func (r Result) Measurement() (m attr.Measurement, ok bool) {
	m = attr.Measurement{GPU: r.GPU, Key: r.Key, Times: map[pal.AppClass]float64{}}
	for _, a := range r.Apps {
		m.Times[a.App] = a.Ms
	}
	return m, len(m.Times) > 0
}

// rates are the rates of the classes whose unit compares across models.
func (r Result) rates() map[pal.AppClass]float64 {
	out := map[pal.AppClass]float64{}
	for _, a := range r.Apps {
		if a.Rate > 0 && a.Unit == attr.RateUnit(a.App) {
			out[a.App] = a.Rate
		}
	}
	return out
}

// Encode writes the report as indented JSON.
func (r Report) Encode() ([]byte, error) {
	r.Format = Format
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return append(data, '\n'), nil
}

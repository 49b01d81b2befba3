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

// Report is the result of one measure command. nomad-pal can import a file that contains a Report.
type Report struct {
	Format  string    `json:"format"`
	Node    string    `json:"node,omitempty"` // host name
	Started time.Time `json:"started"`
	Results []Result  `json:"results"` // one result per GPU
}

// Limit is the cause that held a GPU's clocks down during a measurement.
type Limit string

// The limits.
const (
	LimitPower   Limit = "power"   // the power cap: the usual source of variability
	LimitThermal Limit = "thermal" // temperature
	LimitNone    Limit = "none"    // nothing: the time of such a compute kernel says little
	LimitUnknown Limit = "unknown" // no telemetry, or a reason without a name here
)

// Result is the result of one GPU's session.
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
	// Compile is the time for compiling each kernel, in seconds.
	Compile map[string]float64 `json:"compile_seconds,omitempty"`
	// CPUSeconds is the measuring process's CPU time.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// Apps are the application classes, or the user's application, in the order
	// in which they were measured.
	Apps []App `json:"apps"`
	// Partial means that the session ended early, for the reason in Problem. Apps is valid.
	Partial bool   `json:"partial,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Corrupt means that the same work did not always give the same result.
	Corrupt  bool     `json:"corrupt,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Beside is the number of other GPUs of the node that were being measured when this session
	// began. Of is the number of GPUs of the node.
	Beside int `json:"beside"`
	Of     int `json:"of"`
}

// Provisional reports whether some of the node's other GPUs were not measured at the same time. In
// a job that uses all GPUs of the node, this GPU may be hotter, and so slower, than in this
// session.
func (r Result) Provisional() bool { return r.Beside+1 < r.Of }

// Warmup describes the time before measuring.
type Warmup struct {
	Seconds float64 `json:"seconds"`
	Steady  bool    `json:"steady"` // at the end the clock had settled, and also the temperature if the plan waits for it
}

// App is the result of one application class, or application, in a session.
type App struct {
	App    pal.AppClass `json:"app"`
	Kernel string       `json:"kernel,omitempty"`
	Work   string       `json:"work,omitempty"` // what one unit is
	// Ms is the median time of a unit of work. CI is the half width of the median's 95 % confidence
	// interval, divided by the median. Sigma is the relative standard deviation of the windows.
	Ms    float64 `json:"ms"`
	CI    float64 `json:"ci"`
	Sigma float64 `json:"sigma"`
	// Rate is the rate of work in Unit. Share is the rate's share of the hardware's peak at the
	// measured clock. Rate and Share are 0 if unknown.
	Rate      float64 `json:"rate,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	Share     float64 `json:"share_of_peak,omitempty"`
	LimitedBy Limit   `json:"limited_by"`
	// Slow means that the rate is far below the rate of any healthy GPU of the model. A slow GPU is
	// an outlier, even without other GPUs to compare it with.
	Slow bool `json:"slow,omitempty"`
	// Sum is the checksum of a unit's output. All GPUs with the same key must have the same
	// checksum.
	Sum string `json:"sum,omitempty"`
	// Converged means that enough windows were measured, and CI is within the requested bound.
	Converged bool         `json:"converged"`
	Windows   []Repetition `json:"windows"`
}

// Repetition is one run of the work, kept or dropped.
type Repetition struct {
	Ms    float64 `json:"ms"` // per unit
	Units int     `json:"units"`
	// Means of the telemetry during the window; nil without telemetry.
	ClockMHz *float64 `json:"sm_clock_mhz,omitempty"`
	PowerW   *float64 `json:"power_w,omitempty"`
	TempC    *float64 `json:"temperature_c,omitempty"`
	Throttle string   `json:"throttle,omitempty"` // reasons, comma-joined
	// Dropped is the reason why the window does not count, or "".
	Dropped string `json:"dropped,omitempty"`
}

// Measurement returns the result as the plugin publishes it. ok is false if the result has no time.
func (r Result) Measurement() (m attr.Measurement, ok bool) {
	m = attr.Measurement{GPU: r.GPU, Key: r.Key, Times: map[pal.AppClass]float64{}}
	for _, a := range r.Apps {
		m.Times[a.App] = a.Ms
	}
	return m, len(m.Times) > 0
}

// rates returns the rates of the classes whose unit is comparable across models.
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

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Whose code is measured.
const (
	upstreamSide = "upstream"
	graftSide    = "graft"
)

func sides() []string { return []string{upstreamSide, graftSide} }

// A figure is something that was measured, a value each time.
type figure struct {
	Name   string    `json:"name"` // What, of how many, whose, and which measure.
	Unit   string    `json:"unit,omitempty"`
	Values []float64 `json:"values"`
}

func (f *figure) low() float64  { return slices.Min(f.Values) }
func (f *figure) high() float64 { return slices.Max(f.Values) }

// median is the middle value, or the mean of both.
func (f *figure) median() float64 {
	s := slices.Sorted(slices.Values(f.Values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// A course is how something changed over time.
type course struct {
	Name    string    `json:"name"`
	Seconds []float64 `json:"seconds"`
	Values  []float64 `json:"values"`
}

// results of a run.
type results struct {
	Machine   string    `json:"machine"`
	Arguments []string  `json:"arguments,omitempty"`
	Sizes     []int     `json:"sizes"`
	Poll      string    `json:"poll"`
	Rounds    int       `json:"rounds"`
	Torture   int       `json:"torture"`
	Figures   []*figure `json:"figures"`
	Courses   []*course `json:"courses,omitempty"`
}

// add a value to a figure.
func (r *results) add(name, unit string, value float64) {
	// More digits say nothing.
	if value = significant(value, 5); math.Abs(value) < 1e-9 {
		value = 0
	}
	if f := r.figure(name); f != nil {
		f.Values = append(f.Values, value)
		return
	}
	r.Figures = append(r.Figures, &figure{Name: name, Unit: unit, Values: []float64{value}})
}

// adder returns a function that adds the figures whose names begin with a prefix.
func (r *results) adder(prefix string, args ...any) func(measure, unit string, value float64) {
	return func(measure, unit string, value float64) { r.add(fmt.Sprintf(prefix, args...)+measure, unit, value) }
}

// figure returns the figure with a name, or nil.
func (r *results) figure(name string) *figure {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return r.Figures[i]
}

// cell shows the median of a figure.
func (r *results) cell(name string, args ...any) string {
	f := r.figure(fmt.Sprintf(name, args...))
	if f == nil {
		return "-"
	}
	return number(f.median())
}

func (r *results) sizes() []string { return strings.Fields(strings.Trim(fmt.Sprint(r.Sizes), "[]")) }

// has reports whether there is a figure whose name begins so.
func (r *results) has(prefix string) bool {
	return slices.ContainsFunc(r.Figures, func(f *figure) bool { return strings.HasPrefix(f.Name, prefix) })
}

func (r *results) write(t *testing.T, file string) {
	text, err := json.MarshalIndent(r, "", " ")
	must(t, err)
	// A list of numbers is one line.
	text = regexp.MustCompile(`\[[-+.,0-9e\s]+\]`).ReplaceAllFunc(text, func(list []byte) []byte {
		return bytes.Join(bytes.Fields(list), []byte(" "))
	})
	must(t, os.WriteFile(file, append(text, '\n'), 0o644))
}

func readResults(t *testing.T, file string) *results {
	text, err := os.ReadFile(file)
	must(t, err)
	r := &results{}
	must(t, json.Unmarshal(text, r))
	r.addModel()
	return r
}

// significant rounds a number to so many digits.
func significant(v float64, digits int) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// number writes a number with three significant digits, or all of an integer.
func number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return message.NewPrinter(language.English).Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// label writes a size with its thousands.
func label(column string) string {
	if n, err := strconv.Atoi(column); err == nil {
		return number(float64(n))
	}
	return column
}

// machine describes the machine, without its name.
func machine() string {
	cpu, memory := "", 0.0
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			cpu = cpus[0].ModelName
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotal != nil {
			memory = float64(*m.MemTotal)
		}
	}
	return fmt.Sprintf("%d cores, %.0f GiB (%s, %s/%s, %s)", runtime.NumCPU(), math.Ceil(memory/(1<<20)), cpu,
		runtime.GOOS, runtime.GOARCH, runtime.Version())
}

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
	if value != 0 {
		scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(value))))
		if value = math.Round(value*scale) / scale; math.Abs(value) < 1e-9 {
			value = 0
		}
	}

	if f := r.figure(name); f != nil {
		f.Values = append(f.Values, value)
		return
	}
	r.Figures = append(r.Figures, &figure{Name: name, Unit: unit, Values: []float64{value}})
}

// figure returns the figure with a name, or nil.
func (r *results) figure(name string) *figure {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return r.Figures[i]
}

// cell shows a figure: its median, and its spread if it has one.
func (r *results) cell(name string) string {
	f := r.figure(name)
	if f == nil {
		return "-"
	}
	low, median, high := number(f.low()), number(f.median()), number(f.high())
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

func (r *results) sizes() []string {
	out := make([]string, len(r.Sizes))
	for i, n := range r.Sizes {
		out[i] = fmt.Sprint(n)
	}
	return out
}

// has reports whether there is a figure whose name begins so.
func (r *results) has(prefix string) bool {
	for _, f := range r.Figures {
		if strings.HasPrefix(f.Name, prefix) {
			return true
		}
	}
	return false
}

func (r *results) write(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}

	// A list of numbers is one line.
	text = regexp.MustCompile(`(\[|[0-9],)\n\s+(-?[0-9])`).ReplaceAll(text, []byte("$1 $2"))
	text = regexp.MustCompile(`(\[|[0-9],)\n\s+(-?[0-9])`).ReplaceAll(text, []byte("$1 $2"))
	text = regexp.MustCompile(`([0-9])\n\s+\]`).ReplaceAll(text, []byte("$1 ]"))
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func readResults(file string) (*results, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the figures: %w", err)
	}
	r := &results{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("cannot read the figures: %w", err)
	}
	r.addModel()
	return r, nil
}

// number writes a number with three significant digits, or all of an integer.
func number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', digits, 64), "0"), ".")
}

// label writes a size with its thousands.
func label(column string) string {
	if strings.Trim(column, "0123456789") == "" {
		return thousands(column)
	}
	return column
}

func thousands(s string) string {
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// machine describes the machine, without its name.
func machine() string {
	cpu := field("/proc/cpuinfo", "model name")
	memory, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	return fmt.Sprintf("%d cores, %.0f GiB (%s, %s/%s, %s)", runtime.NumCPU(),
		math.Ceil(float64(memory)/(1<<20)), cpu, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// field returns the value of a line of a file in /proc, or "".
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

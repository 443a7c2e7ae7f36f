package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	root    = filepath.Join("..", "..")
	figures = filepath.Join(root, "docs", "figures")
)

// The page and the plots show the figures, and each number that a document quotes lies within
// the spread of its figure.
func TestDocuments(t *testing.T) {
	r := readResults(t, filepath.Join(figures, "figures.json"))
	text, charts := page(t, r)
	if diff := cmp.Diff(text, read(t, filepath.Join(figures, "README.md"))); diff != "" {
		t.Errorf(
			"docs/figures/README.md is not the page of figures.json: run make compare ARGS=-render: -want, +got:\n%s",
			diff,
		)
	}
	for _, c := range charts {
		isPicture(t, filepath.Join(figures, c.file+".svg"), c.title)
	}
	n, err := checkQuotes(root, r)
	if err != nil {
		t.Error(err)
	}
	if n < 10 {
		t.Errorf("want the documents to quote at least 10 figures, got %d", n)
	}
}

// The model holds for the sizes that it was not made of.
func TestModel(t *testing.T) {
	const (
		most  = 0.35 // of what was measured
		least = 0.3  // seconds, or MB, which is what chance makes of nothing
	)
	r := readResults(t, filepath.Join(figures, "figures.json"))
	checked := 0
	for _, n := range r.sizes() {
		for _, side := range sides() {
			for _, measure := range modelled() {
				name := n + "/" + side + "/" + measure
				is, says := r.figure("steady/"+name), r.figure("model/"+name)
				if is == nil || says == nil {
					t.Errorf("%s: want it measured and modelled", name)
					continue
				}
				checked++
				if off := math.Abs(says.median() - is.median()); off > max(least, most*is.median()) {
					t.Errorf("%s: the model says %v, measured was %s", name, says.median(), r.cell("%s", is.Name))
				}
			}
		}
	}
	if checked < 12 {
		t.Errorf("want the model checked at 12 points, got %d", checked)
	}
}

func TestQuoted(t *testing.T) {
	r := &results{
		Figures: []*figure{{Name: "f", Values: []float64{0.128, 0.14}}, {Name: "many", Values: []float64{6712, 6690}}},
	}
	for _, ok := range []string{
		"0.13<!-- figure f -->", "6,700<!-- figure many -->", "6,705<!-- figure many -->", "0.9",
	} {
		if _, err := checkQuotes(document(t, ok), r); err != nil {
			t.Errorf("%s: want no error, got %v", ok, err)
		}
	}
	for _, wrong := range []string{
		"0.12<!-- figure f -->", "0.1<!-- figure f -->", "0.2<!-- figure f -->", "6,713<!-- figure many -->",
		"6,800<!-- figure many -->", "0<!-- figure f -->", "1<!-- figure none -->",
	} {
		if _, err := checkQuotes(document(t, wrong), r); err == nil {
			t.Errorf("%s: want an error", wrong)
		}
	}
	dir := document(t, "0.5<!-- figure f -->, 6,600<!-- figure many -->")
	must(t, updateQuotes(dir, r))
	if got, want := read(
		t, filepath.Join(dir, "a.md"),
	), "0.13<!-- figure f -->, 6,700<!-- figure many -->"; got != want {
		t.Errorf("updateQuotes(): want %s, got %s", want, got)
	}
}

// checkQuotes returns an error for each number below a folder that does not lie within
// the spread of its figure, and how many there are.
func checkQuotes(dir string, r *results) (int, error) {
	n := 0
	var errs []error
	err := eachQuote(dir, func(file, number, name string) string {
		n++
		if err := r.quoted(number, name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		return number
	})
	return n, errors.Join(append(errs, err)...)
}

func isPicture(t *testing.T, file, text string) {
	t.Helper()
	svg := read(t, file)
	if err := xml.NewDecoder(bytes.NewReader([]byte(svg))).Decode(new(struct {
		XMLName xml.Name `xml:"svg"`
	})); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	if !strings.Contains(svg, ">"+text+"<") {
		t.Errorf("%s: want it to show %q", file, text)
	}
}

func document(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600))
	return dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

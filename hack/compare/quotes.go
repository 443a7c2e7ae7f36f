package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// quotes are numbers in a document, each followed by a comment that names its figure.
func quotes() *regexp.Regexp { return regexp.MustCompile(`([0-9][0-9,.]*)<!-- figure ([^>]+) -->`) }

// checkQuotes returns an error for each number below a folder that does not lie within
// the spread of its figure, and how many there are.
func checkQuotes(dir string, r *results) (int, error) {
	n := 0
	var errs []error

	err := eachDocument(dir, func(file string, text []byte) error {
		for _, m := range quotes().FindAllSubmatch(text, -1) {
			n++
			if err := r.quoted(string(m[1]), string(m[2])); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
			}
		}
		return nil
	})
	return n, errors.Join(append(errs, err)...)
}

// updateQuotes writes the median in place of each number that does not lie within the
// spread of its figure.
func updateQuotes(dir string, r *results) error {
	return eachDocument(dir, func(file string, text []byte) error {
		updated := quotes().ReplaceAllFunc(text, func(was []byte) []byte {
			m := quotes().FindSubmatch(was)
			f := r.figure(string(m[2]))
			if f == nil || r.quoted(string(m[1]), f.Name) == nil {
				return was
			}
			return fmt.Appendf(nil, "%s<!-- figure %s -->", f.rounded(), f.Name)
		})
		if string(updated) == string(text) {
			return nil
		}
		return os.WriteFile(file, updated, 0o644)
	})
}

// rounded returns the median with two significant digits, or all of them if it is always
// the same number of things.
func (f *figure) rounded() string {
	v := f.median()
	if v == 0 || f.low() == f.high() && v == math.Trunc(v) {
		return number(v)
	}
	scale := math.Pow(10, 1-math.Floor(math.Log10(math.Abs(v))))
	return number(math.Round(v*scale) / scale)
}

// quoted returns an error unless a number lies within the spread of a figure, given how
// it is rounded.
func (r *results) quoted(number, name string) error {
	f := r.figure(name)
	if f == nil {
		return fmt.Errorf("there is no figure %q", name)
	}
	digits := strings.ReplaceAll(number, ",", "")
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return fmt.Errorf("%q is no number: %w", number, err)
	}

	// Half a unit of the last digit that says something, and of the second at least, as
	// rounded writes it. Zero is none at all.
	unit := 0.0
	if v != 0 {
		unit = math.Pow(10, math.Floor(math.Log10(v))-1)
	}

	if _, after, ok := strings.Cut(digits, "."); ok {
		unit = min(unit, math.Pow(10, -float64(len(after))))
	} else {
		unit = min(unit, math.Pow(10, float64(len(digits)-len(strings.TrimRight(digits, "0")))))
	}

	if v < f.low()-unit/2 || v > f.high()+unit/2 {
		return fmt.Errorf("%s is quoted for %s, which is %s: change the text, or run make compare",
			number, name, r.cell(name))
	}
	return nil
}

// eachDocument calls fn for each Markdown file below a folder, except the table.
func eachDocument(dir string, fn func(file string, text []byte) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "figures"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return fn(path, text)
	})
}

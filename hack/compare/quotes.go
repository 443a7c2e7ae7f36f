package main

import (
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

// updateQuotes writes the median in place of each number below a folder that does not lie
// within the spread of its figure.
func updateQuotes(dir string, r *results) error {
	return eachQuote(dir, func(_, quoted, name string) string {
		f := r.figure(name)
		if f == nil || r.quoted(quoted, name) == nil {
			return quoted
		}

		// Two significant digits, or all of them if it is always the same number of things.
		v := f.median()
		if f.low() != f.high() || v != math.Trunc(v) {
			v = significant(v, 2)
		}
		return number(v)
	})
}

// eachQuote calls fn with each number in the Markdown files below a folder, except the table,
// that is followed by a comment with the name of its figure. It writes what fn returns in its place.
func eachQuote(dir string, fn func(file, number, name string) string) error {
	quotes := regexp.MustCompile(`([0-9][0-9,.]*)<!-- figure ([^>]+) -->`)
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
		updated := quotes.ReplaceAllStringFunc(string(text), func(quote string) string {
			m := quotes.FindStringSubmatch(quote)
			return fn(path, m[1], m[2]) + quote[len(m[1]):]
		})
		if updated == string(text) {
			return nil
		}
		return os.WriteFile(path, []byte(updated), 0o644)
	})
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
	// updateQuotes writes it. Zero is none at all.
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	if _, after, ok := strings.Cut(digits, "."); ok {
		unit = min(unit, math.Pow(10, -float64(len(after))))
	} else {
		unit = min(unit, math.Pow(10, float64(len(digits)-len(strings.TrimRight(digits, "0")))))
	}
	if v < f.low()-unit/2 || v > f.high()+unit/2 {
		return fmt.Errorf("%s is quoted for %s, which is %v to %v: change the text, or run make compare",
			number, name, f.low(), f.high())
	}
	return nil
}

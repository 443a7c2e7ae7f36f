package main

import (
	"bytes"
	"path"
	"slices"
)

// mentions returns the lines on which a file names upstream's package without importing it:
// templates that write Go files, linter settings, golden files, strings and go:generate
// comments. g is nil if the file isn't Go of this module.
func mentions(name string, src []byte, g *goFile) []int {
	binary := bytes.IndexByte(src, 0) >= 0
	if !containsAny(src, upstreamManaged) || g == nil && (isProse(name) || binary) {
		return nil
	}
	var ignored []int
	if g != nil {
		for _, s := range g.imports(upstreamManaged) {
			ignored = append(ignored, g.line(s))
		}
	}

	var found []int
	at := 0
	for line := range bytes.Lines(src) {
		at++
		comment := g != nil && bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) &&
			!bytes.HasPrefix(line, []byte("//go:generate "))
		if containsAny(line, upstreamManaged) && !comment && !slices.Contains(ignored, at) {
			found = append(found, at)
		}
	}
	return found
}

// isProse reports whether a file is for people to read. No code is generated from it.
func isProse(name string) bool {
	return slices.Contains([]string{".md", ".txt", ".rst", ".adoc", ".html"}, path.Ext(name))
}

package main

import (
	"bytes"
	"path"
	"strings"
)

// maxText is the size, in bytes, of the largest file that isn't Go in which adopt looks for
// the import path. Templates and linter settings are smaller.
const maxText = 1 << 20

// mentions returns where a file names upstream's package without importing it: templates
// that write Go files, linter settings, golden files, strings and go:generate comments. g is
// nil if the file isn't Go of this module.
func mentions(name string, src []byte, g *goFile) []finding {
	if g == nil && (isProse(name) || len(src) > maxText || bytes.IndexByte(src, 0) >= 0) {
		return nil
	}
	imports := map[int]bool{}
	if g != nil {
		for _, s := range g.imports(upstreamManaged) {
			imports[g.line(s)] = true
		}
	}

	const text = "names upstream's package, not changed; " +
		"if Go code is generated or checked from it, change it by hand"
	var found []finding
	at := 0
	for line := range bytes.Lines(src) {
		at++
		prose := g != nil && bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) &&
			!bytes.HasPrefix(line, []byte("//go:generate "))
		if containsAny(line, upstreamManaged) && !imports[at] && !prose {
			found = append(found, finding{path: name, line: at, text: text})
		}
	}
	return found
}

// isProse reports whether a file is for people to read. No code is generated from it.
func isProse(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".txt", ".rst", ".adoc", ".html":
		return true
	default:
		return false
	}
}

package controlplane

import (
	"bytes"
	"io"
	"strings"
)

// A shareWriter reports which share of a program's packages are compiled, from the output of go build -v, which names
// each that is not in the build cache. Other lines pass through.
type shareWriter struct {
	out      io.Writer
	packages int // Of the program.
	report   func(compiled, packages int)

	compiled int
	rest     []byte // The begin of a line.
}

// Write the output of the go command.
func (w *shareWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		line := string(w.rest[:end+1])
		w.rest = w.rest[end+1:]
		if strings.ContainsAny(line, " \t:") || w.packages == 0 {
			if _, err := io.WriteString(w.out, line); err != nil {
				return 0, err
			}
			continue
		}
		w.compiled++
		if tenth := max(1, w.packages/10); w.compiled%tenth == 0 {
			w.report(w.compiled, w.packages)
		}
	}
}

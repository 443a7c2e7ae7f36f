package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// An explanation is a mutant that may survive: a block of a file in the directory
// explained, which names the mutant's file, the line before and after, and then says why
// no test is needed.
type explanation struct{ file, was, now string }

// explained reads the explanations for a package.
func explained(root, pkg string) (map[explanation]bool, error) {
	path := filepath.Join(root, "hack", "mutants", "explained", filepath.Base(pkg)+".txt")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[explanation]bool{}
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "-") || !strings.HasPrefix(lines[2], "+") {
			return nil, fmt.Errorf("%s: want a file, a line with -, a line with +, and why, got:\n%s", path, block)
		}
		all[explanation{lines[0], strings.TrimSpace(lines[1][1:]), strings.TrimSpace(lines[2][1:])}] = true
	}
	return all, nil
}

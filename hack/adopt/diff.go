package main

import (
	"bytes"
	"fmt"
)

// contextLines is the number of unchanged lines shown around a change.
const contextLines = 3

// unified returns the difference between two versions of a file in a form that
// patch understands: one hunk from the first changed line to the last.
func unified(name string, before, after []byte) string {
	a, b := splitLines(before), splitLines(after)
	head := 0
	for head < len(a) && head < len(b) && bytes.Equal(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && bytes.Equal(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	if head == len(a) && head == len(b) {
		return ""
	}
	lead, trail := min(head, contextLines), min(tail, contextLines)
	a, b = a[head-lead:len(a)-tail+trail], b[head-lead:len(b)-tail+trail]
	start := head - lead + 1
	var out bytes.Buffer
	fmt.Fprintf(&out, "--- a/%s\n+++ b/%s\n@@ -%d,%d +%d,%d @@\n", name, name, start, len(a), start, len(b))
	i, j := 0, 0
	for _, common := range append(commonLines(a, b), [2]int{len(a), len(b)}) {
		for ; i < common[0]; i++ {
			writeLine(&out, '-', a[i])
		}
		for ; j < common[1]; j++ {
			writeLine(&out, '+', b[j])
		}
		if i < len(a) && j < len(b) {
			writeLine(&out, ' ', a[i])
			i, j = i+1, j+1
		}
	}
	return out.String()
}

func writeLine(out *bytes.Buffer, sign byte, line []byte) {
	out.WriteByte(sign)
	out.Write(line)
	if !bytes.HasSuffix(line, []byte("\n")) {
		out.WriteString("\n\\ No newline at end of file\n")
	}
}

// splitLines splits text after each line feed.
func splitLines(text []byte) [][]byte {
	l := bytes.SplitAfter(text, []byte("\n"))
	if len(l[len(l)-1]) == 0 {
		l = l[:len(l)-1]
	}
	return l
}

// commonLines returns the indexes of a longest common subsequence. It takes
// time and space by the product of the lengths, which are those of a block of
// imports.
func commonLines(a, b [][]byte) [][2]int {
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if bytes.Equal(a[i], b[j]) {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var common [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case bytes.Equal(a[i], b[j]):
			common = append(common, [2]int{i, j})
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return common
}

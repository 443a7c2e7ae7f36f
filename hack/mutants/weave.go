package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
)

// mutantEnv selects the mutant in a program that woven files are part of.
const mutantEnv = "GRAFT_MUTANT"

// selector is the file that reads mutantEnv. It is added to the mutated package.
const selector = `package %s

import (
	"os"
	"strconv"
)

var graftMutant, _ = strconv.Atoi(os.Getenv(%q))
`

// weave returns a file with the given mutants of it, and those that are in it: the ones that
// change a function. The function begins with the changed body of each of its mutants, which
// runs in its place if the mutant is selected. So one program has all mutants, and is linked
// once.
func weave(path string, ms []*mutant) ([]byte, []*mutant, error) {
	original, err := parse(path)
	if err != nil {
		return nil, nil, err
	}
	cases := map[ast.Decl]string{}
	var in []*mutant
	for _, m := range ms {
		mutated, err := parse(m.path)
		if err != nil || len(mutated.Decls) != len(original.Decls) {
			continue
		}
		for i, d := range original.Decls {
			f, ok := d.(*ast.FuncDecl)
			mf, mok := mutated.Decls[i].(*ast.FuncDecl)
			if !ok || !mok || bytes.Equal(original.text(f), mutated.text(mf)) {
				continue
			}
			// The compiler's errors have the mutant's number in place of the file's name.
			body := fmt.Sprintf("{\n//line %s%d:1\n%s()", errorPrefix, m.id, mutated.text(mf.Body)[1:])
			if f.Type.Results != nil {
				cases[d] += fmt.Sprintf(" case %d: return func() %s %s;", m.id, original.text(f.Type.Results), body)
			} else {
				cases[d] += fmt.Sprintf(" case %d: func() %s; return;", m.id, body)
			}
			in = append(in, m)
			break
		}
	}

	var out []byte
	done := 0
	for _, d := range original.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && cases[d] != "" {
			at := original.offset(f.Body.Lbrace) + 1
			out = fmt.Appendf(out, "%s switch graftMutant {%s };", original.src[done:at], cases[d])
			done = at
		}
	}
	return append(out, original.src[done:]...), in, nil
}

// A goFile is a parsed file and its source.
type goFile struct {
	*ast.File

	src []byte
}

func parse(path string) (goFile, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return goFile{}, err
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	return goFile{File: f, src: src}, err
}

func (f goFile) offset(p token.Pos) int { return int(p - f.FileStart) }

func (f goFile) text(n ast.Node) []byte { return f.src[f.offset(n.Pos()):f.offset(n.End())] }

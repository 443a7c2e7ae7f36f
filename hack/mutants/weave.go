package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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

// weave returns a file with the given mutants that change a function in it. The function begins with the
// changed body of each of its mutants, which runs in its place if the mutant is selected. So one program has all
// mutants, and is linked once.
func weave(root, file string, ms []*mutant) ([]byte, error) {
	original, err := parse(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	cases := map[ast.Decl]string{}
	for _, m := range ms {
		if m.file != file {
			continue
		}
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
			m.woven = true
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
	return append(out, original.src[done:]...), nil
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

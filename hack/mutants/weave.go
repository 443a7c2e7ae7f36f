package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// A woven file has a function of its own for each mutant: the function that the
// mutant changes calls it if the mutant is selected. So one program has all mutants,
// and is linked once.
type woven struct {
	content []byte
	first   map[*mutant]int // The line at which a mutant's function starts.
}

// weave returns a file with the given mutants of it. It leaves out those that change
// something else than a function.
func weave(path string, ms []*mutant) (woven, error) {
	src, fset, decls, err := parse(path)
	if err != nil {
		return woven{}, err
	}
	var (
		w     = woven{first: map[*mutant]int{}}
		edits = map[int]string{} // What to insert, by offset.
		cases = map[*ast.FuncDecl]string{}
		tail  bytes.Buffer
	)

	for _, m := range ms {
		msrc, mfset, mdecls, err := parse(m.path)
		if err != nil || len(mdecls) != len(decls) {
			continue
		}
		i := 0
		for i < len(decls) && bytes.Equal(text(src, fset, decls[i]), text(msrc, mfset, mdecls[i])) {
			i++
		}

		if i == len(decls) {
			continue
		}
		f, ok := decls[i].(*ast.FuncDecl)
		mf, mok := mdecls[i].(*ast.FuncDecl)
		if !ok || !mok {
			continue
		}
		name := fmt.Sprintf("%s_mutant%d", f.Name.Name, m.id)
		call := callOf(f, name, func(at token.Pos, s string) { edits[fset.Position(at).Offset] = s })

		if f.Type.Results != nil {
			cases[f] += fmt.Sprintf(" case %d: return %s;", m.id, call)
		} else {
			cases[f] += fmt.Sprintf(" case %d: %s; return;", m.id, call)
		}

		body := text(msrc, mfset, mf)
		at := mfset.Position(mf.Name.Pos()).Offset - mfset.Position(mf.Pos()).Offset
		w.first[m] = bytes.Count(src, []byte("\n")) + bytes.Count(tail.Bytes(), []byte("\n")) + 2
		fmt.Fprintf(&tail, "\n%s%s%s\n", body[:at], name, body[at+len(mf.Name.Name):])
	}

	for f, c := range cases {
		edits[fset.Position(f.Body.Lbrace).Offset+1] = " switch graftMutant {" + c + " };"
	}
	w.content = append(insert(src, edits), tail.Bytes()...)
	return w, nil
}

// callOf returns a call of the function with that name with the parameters of f, and
// with its receiver. Those that have no name get one.
func callOf(f *ast.FuncDecl, name string, edit func(at token.Pos, s string)) string {
	n := 0
	names := func(l *ast.FieldList) []string {
		var out []string

		for _, field := range l.List {
			if len(field.Names) == 0 {
				n++
				edit(field.Type.Pos(), fmt.Sprintf("graft%d ", n))
				out = append(out, fmt.Sprintf("graft%d", n))
			}

			for _, id := range field.Names {
				s := id.Name
				if s == "_" { // The insertion makes a name of it.
					n++
					s = fmt.Sprintf("graft%d_", n)
					edit(id.Pos(), strings.TrimSuffix(s, "_"))
				}

				out = append(out, s)
			}
		}
		return out
	}

	args := names(f.Type.Params)

	if l := f.Type.Params.List; len(l) > 0 {
		if _, ok := l[len(l)-1].Type.(*ast.Ellipsis); ok {
			args[len(args)-1] += "..."
		}
	}

	if f.Recv != nil {
		name = names(f.Recv)[0] + "." + name
	} else if f.Type.TypeParams != nil {
		name += "[" + strings.Join(names(f.Type.TypeParams), ", ") + "]"
	}
	return name + "(" + strings.Join(args, ", ") + ")"
}

func parse(path string) ([]byte, *token.FileSet, []ast.Decl, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, filepath.Base(path), src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, nil, err
	}
	return src, fset, f.Decls, nil
}

func text(src []byte, fset *token.FileSet, n ast.Node) []byte {
	return src[fset.Position(n.Pos()).Offset:fset.Position(n.End()).Offset]
}

func insert(src []byte, edits map[int]string) []byte {
	var out []byte
	at := 0
	for _, offset := range slices.Sorted(maps.Keys(edits)) {
		out = append(append(out, src[at:offset]...), edits[offset]...)
		at = offset
	}
	return append(out, src[at:]...)
}

// mutantAt returns the mutant whose function has that line of the file.
func (w woven) mutantAt(line string) *mutant {
	n, err := strconv.Atoi(line)
	if err != nil {
		return nil
	}
	var found *mutant

	for m, first := range w.first {
		if first <= n && (found == nil || w.first[found] < first) {
			found = m
		}
	}
	return found
}

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"os"
	"path"
	"slices"
	"strings"
)

// Import paths.
const (
	upstreamModule  = "github.com/crossplane/crossplane-runtime/v2"
	upstreamManaged = upstreamModule + "/pkg/reconciler/managed"

	upstreamV1Module  = "github.com/crossplane/crossplane-runtime"
	upstreamV1Managed = upstreamV1Module + "/pkg/reconciler/managed"

	graftModule  = "github.com/crossplane-graft/graft"
	graftManaged = graftModule + "/pkg/managed"
)

type options struct {
	dir     string // Root of the provider's module.
	dryRun  bool
	verbose bool
	revert  bool
	// trackers also moves the constructors of usage trackers.
	trackers bool

	version    string // Of Graft, as asked for; may be empty.
	ownVersion string // Of this command, if it is a released one; may be empty.
	modCache   string // Where the source of other modules may be found.
}

// adopt plans all changes, then makes them unless it is a dry run. An error
// means that nothing was changed.
func adopt(o options) (*report, error) {
	m, err := openModule(o.dir)
	if err != nil {
		return nil, err
	}
	l, err := pickLine(m, o.version)
	if err != nil {
		return nil, err
	}
	r := &report{module: m.path, upjet: required(m.gomod, upjetModule), line: l, dryRun: o.dryRun, revert: o.revert, verbose: o.verbose}
	p := &planner{module: m, report: r, line: l, from: upstreamManaged, to: graftManaged, trackers: o.trackers, imports: map[string]bool{}}
	if o.revert {
		p.from, p.to = p.to, p.from
	} else {
		p.sources = newSources(m, o.modCache)
	}

	m.walk(p.visit, r.leave)
	p.nestedModules()
	switch {
	case o.revert || !r.uses:
		p.nextSteps()
	case p.isTooOld():
		p.raiseFirst()
	default:
		if err := p.requireGraft(o); err != nil {
			return nil, err
		}
		p.remarkVersions(o.version)
		p.tidyFails()
		p.nextSteps()
	}

	if !o.dryRun {
		r.edits = slices.DeleteFunc(r.edits, func(e edit) bool {
			if err := write(m.file(e.path), e); err != nil {
				r.leave(e.path, 0, fmt.Sprintf("not written: %v", err))
				return true
			}
			return false
		})
	}
	return r, nil
}

// A planner looks at one file of the module after the other, and records in its
// report what is to change and what isn't.
type planner struct {
	module   *providerModule
	report   *report
	line     line     // Of Graft, that the provider gets.
	from, to string   // Import paths.
	sources  *sources // Nil when going back to upstream.
	trackers bool

	imports map[string]bool // Of all Go files of the module.
	gone    []finding       // Imports that don't work with the line.

	nested map[string]bool // Nested modules, by directory: whether they have the import.
}

// visit plans for one file.
func (p *planner) visit(f treeFile) {
	src, err := p.module.read(f)
	if err != nil {
		p.report.leave(f.path, 0, fmt.Sprintf("not read: %v", err))
		return
	}
	isGo := path.Ext(f.path) == ".go"
	switch {
	case f.nested != "":
		if isGo && hasImportString(src, p.from) {
			if p.nested == nil {
				p.nested = map[string]bool{}
			}
			p.nested[f.nested] = true
		}
	case isGo && !f.ignored && f.mode.Type() != 0:
		if hasImportString(src, p.from) {
			p.report.leave(f.path, 0, "not changed, it is a symbolic link to a file outside the module")
		}
	case isGo && !f.ignored:
		p.visitGo(f, src)
	case !p.report.revert:
		p.mentionsInText(f, src)
	}
}

// visitGo plans for a Go file of this module.
func (p *planner) visitGo(f treeFile, src []byte) {
	if !p.report.revert {
		p.noteImports(f, src)
	}
	if !containsAny(src, upstreamManaged, upstreamV1Managed, graftModule+"/") && (p.report.revert || !containsAny(src, upstreamResource)) {
		return
	}
	g, err := parseGo(f.path, src)
	if err != nil {
		// Graft's path alone is no reason to complain: there is nothing to change.
		if hasImportString(src, p.from) {
			p.report.leave(f.path, syntaxErrorLine(err), "not changed, it doesn't parse: "+syntaxErrorText(err))
		}
		return
	}

	if !p.report.revert {
		for _, s := range g.imports(upstreamV1Managed) {
			p.report.leave(f.path, g.line(s), "imports crossplane-runtime v1; move the provider to "+upstreamModule+" first, then run adopt again")
		}
		p.mentionsInGo(f, g)
	}

	var from []*ast.ImportSpec
	for _, s := range g.imports(p.from) {
		if isKept(s) {
			p.report.note(f.path, g.line(s), "import left, as its "+keepDirective+" comment asks")
			continue
		}
		from = append(from, s)
	}
	to := g.imports(p.to)
	moves := p.usageTrackers(f, g)

	switch {
	case len(from) == 0 && !moves:
	case len(from) > 0 && len(to) > 0 && !p.report.revert:
		p.report.note(f.path, g.line(from[0]), "left, since the file imports both packages; drop one when you can")
	case !p.report.revert && len(from) > 0 && g.namesOf(p.from)["."] && g.namesOf(upstreamResource)["."]:
		p.report.leave(f.path, g.line(from[0]), "not changed, since Graft's package and "+upstreamResource+" can't both be imported with a dot: give one of them a name")
	case f.mode.Perm()&0o200 == 0:
		p.report.leave(f.path, 0, "not changed, the file is read-only")
	default:
		e := edit{path: f.path, mode: f.mode, before: g.src, after: p.changed(f, g, moves)}
		e.moved = len(from) > 0
		e.generated = ast.IsGenerated(g.ast)
		e.upjet = e.generated && byUpjet(g.src)
		p.report.edits = append(p.report.edits, e)
		p.report.uses = true
	}

	if len(to) > 0 {
		p.report.uses = true
	}
	switch {
	case p.report.revert:
		p.ownNames(f, g)
	case len(to) > 0:
		p.crossings(f, g, graftManaged)
	case len(from) > 0:
		p.crossings(f, g, upstreamManaged)
	}
}

// crossings reports where the types of which Graft has its own meet another
// module's code. ours is the import by which the file gets those types.
func (p *planner) crossings(f treeFile, g *goFile, ours string) {
	for _, c := range crossings(g, ours, p.sources) {
		p.report.leave(f.path, c.line, c.text)
	}
}

// usageTrackers reports whether the file's usage trackers are to be moved. If that
// was not asked for, it notes what the flag would do at each place.
func (p *planner) usageTrackers(f treeFile, g *goFile) bool {
	if p.report.revert {
		return len(g.trackers(graftManaged)) > 0
	}
	places := g.trackers(upstreamResource)
	if p.trackers {
		return len(places) > 0
	}
	for _, s := range places {
		text := "fails while the cache lacks a usage that exists; -trackers replaces it by Graft's tracker, which does not"
		if trackerName(s).Name == "NewProviderConfigUsageTracker" { // Others need no namespace.
			text = "keeps managed resources in a terminating namespace for ever; -trackers replaces it by Graft's tracker, which lets them be deleted"
		}
		p.report.note(f.path, g.line(s), text)
	}
	return false
}

// changed returns the file's source with the import replaced and, if it is to be so,
// the trackers moved. Trackers move between Graft's package, under either import,
// and package resource.
func (p *planner) changed(f treeFile, g *goFile, trackers bool) []byte {
	dir := p.module.file(path.Dir(f.path))
	switch {
	case !trackers:
		return g.replaceImport(p.from, p.to)
	case p.report.revert:
		return reparsed(f.path, g.moveTrackers(trackersBack(), dir)).replaceImport(p.from, p.to)
	default:
		return reparsed(f.path, g.replaceImport(p.from, p.to)).moveTrackers(trackersToGraft(), dir)
	}
}

// reparsed returns the file for source that was just written.
func reparsed(name string, src []byte) *goFile {
	g, err := parseGo(name, src)
	if err != nil {
		panic(fmt.Sprintf("adopt: %s doesn't parse after a change of its imports: %v", name, err))
	}
	return g
}

func (p *planner) nestedModules() {
	dirs := make([]string, 0, len(p.nested))
	for d := range p.nested {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	for _, d := range dirs {
		p.report.note(d, 0, "a module of its own that has the import too; run adopt there, with -C "+d)
	}
}

func (p *planner) nextSteps() {
	if len(p.report.edits) == 0 && len(p.report.next) == 0 {
		return
	}
	p.report.next = append(p.report.next, "go mod tidy")
	if p.module.vendored {
		vendor := "go mod vendor"
		if list, _ := os.ReadFile(p.module.file("vendor/modules.txt")); bytes.HasPrefix(list, []byte("## workspace")) {
			vendor = "go work vendor" // The other one refuses.
		}
		p.report.next = append(p.report.next, vendor)
	}
	p.report.next = append(p.report.next, "go build ./...")
}

// hasImportString reports whether src has the path in quotes, as an import does.
func hasImportString(src []byte, importPath string) bool {
	return containsAny(src, `"`+importPath+`"`, "`"+importPath+"`")
}

func containsAny(src []byte, substrings ...string) bool {
	return slices.ContainsFunc(substrings, func(s string) bool { return bytes.Contains(src, []byte(s)) })
}

// within reports whether an import path is a module's, or of a package in it.
func within(importPath, modulePath string) bool {
	rest, ok := strings.CutPrefix(importPath, modulePath)
	return ok && (rest == "" || rest[0] == '/')
}

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"slices"
)

type options struct {
	dir     string // Root of the provider's module.
	dryRun  bool
	verbose bool
	revert  bool
	// trackers also replaces the constructors of usage trackers.
	trackers bool

	version    string // Of Graft, from the flag; may be empty.
	ownVersion string // Of this command if it is a released one; may be empty.
}

// migrate plans all changes, then makes them unless it is a dry run. After an error nothing
// is changed.
func migrate(o options) (*report, error) {
	m, err := openModule(o.dir)
	if err != nil {
		return nil, err
	}
	l, err := pickLine(m.gomod, o.version)
	if err != nil {
		return nil, err
	}
	r := &report{module: m.path, dryRun: o.dryRun, revert: o.revert, verbose: o.verbose}
	p := &planner{
		options: o, module: m, report: r, line: l,
		from: upstreamManaged, to: graftManaged, nested: map[string]bool{},
	}
	if o.revert {
		p.from, p.to = p.to, p.from
	}

	m.walk(p.visit, r.leave)
	for _, dir := range slices.Sorted(maps.Keys(p.nested)) {
		r.note(dir, 0, "a module of its own that has the import too; run adopt there, with -C "+dir)
	}
	runtime, _ := runtimeRequired(m.gomod)
	switch {
	case o.revert || !r.uses:
	case runtime != "" && isTooOld(runtime):
		p.raiseFirst()
		return r, nil
	default:
		if err := p.requireGraft(); err != nil {
			return nil, err
		}
		r.notes = append(r.notes, versionRemarks(m.gomod, l, o.version)...)
		p.advise()
	}
	p.nextSteps()

	if !o.dryRun {
		r.edits = slices.DeleteFunc(r.edits, func(e edit) bool {
			if err := m.write(e.path, e.mode, e.after); err != nil {
				r.leave(e.path, 0, fmt.Sprintf("not written: %v", err))
				return true
			}
			return false
		})
	}
	return r, nil
}

// A planner reads the files of a module, and records the changes in its report.
type planner struct {
	options
	module   *providerModule
	report   *report
	line     line   // Of Graft, for this provider.
	from, to string // Import paths.

	named  bool            // A file names upstream's package without importing it.
	upjet  bool            // upjet generated a changed file.
	nested map[string]bool // Directories of nested modules that have the import.
}

// visit plans the change of one file.
func (p *planner) visit(f treeFile) {
	src, err := p.module.read(f)
	isGo := path.Ext(f.path) == ".go"
	switch {
	case err != nil:
		p.report.leave(f.path, 0, fmt.Sprintf("not read: %v", err))
	case f.nested != "":
		if isGo && quotes(src, p.from) {
			p.nested[f.nested] = true
		}
	case isGo && !f.ignored && f.mode.Type() != 0:
		if quotes(src, p.from) {
			p.report.leave(f.path, 0, "not changed, it is a symbolic link to a file outside the module")
		}
	case isGo && !f.ignored:
		p.visitGo(f, src)
	case !p.revert:
		p.mention(mentions(f.path, src, nil))
	}
}

// visitGo plans the change of a Go file.
func (p *planner) visitGo(f treeFile, src []byte) {
	concerned := containsAny(src, upstreamManaged, upstreamV1Managed, graftModule+"/")
	if !concerned && (p.revert || !containsAny(src, upstreamResource)) {
		return
	}
	g, err := parseGo(f.path, src)
	if err != nil {
		if quotes(src, p.from) {
			line, text := syntaxError(err)
			p.report.leave(f.path, line, "not changed, it doesn't parse: "+text)
		}
		return
	}

	if !p.revert {
		for _, s := range g.imports(upstreamV1Managed) {
			p.report.leave(f.path, g.line(s),
				"imports crossplane-runtime v1; move the provider to "+upstreamModule+" first, then run adopt again")
		}
		p.mention(mentions(f.path, src, g))
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
	p.report.uses = p.report.uses || len(to) > 0
	p.change(f, g, from, to)

	switch {
	case p.revert:
		p.report.left = append(p.report.left, remains(f.path, g)...)
	case len(to) > 0:
		p.report.left = append(p.report.left, assertions(f.path, g, p.to)...)
	case len(from) > 0:
		p.report.left = append(p.report.left, assertions(f.path, g, p.from)...)
	}
}

// mention notes places that name upstream's package.
func (p *planner) mention(found []finding) {
	p.report.notes = append(p.report.notes, found...)
	p.named = p.named || len(found) > 0
}

// change plans the change of a file that has imports of one package, of the other, or of
// neither: then it may have usage trackers.
func (p *planner) change(f treeFile, g *goFile, from, to []*ast.ImportSpec) {
	trackers := p.usageTrackers(f, g)
	switch {
	case len(from) == 0 && !trackers:
		return
	case len(from) > 0 && len(to) > 0 && !p.revert:
		p.report.note(f.path, g.line(from[0]),
			"left, since the file imports both packages; drop one when you can")
		return
	case !p.revert && len(from) > 0 && g.namesOf(p.from)["."] && g.namesOf(upstreamResource)["."]:
		p.report.leave(f.path, g.line(from[0]), "not changed, since Graft's package and "+upstreamResource+
			" can't both be imported with a dot: give one of them a name")
		return
	case f.mode.Perm()&0o200 == 0:
		p.report.leave(f.path, 0, "not changed, the file is read-only")
		return
	}

	after, err := p.changed(f, g, trackers)
	if err != nil {
		p.report.leave(f.path, 0, fmt.Sprintf("not changed: %v", err))
		return
	}
	generated := ast.IsGenerated(g.ast)
	p.report.edits = append(p.report.edits, edit{
		path: f.path, mode: f.mode, before: g.src, after: after, moved: len(from) > 0, generated: generated,
	})
	p.report.uses = true
	p.upjet = p.upjet || generated && byUpjet(g.src)
}

// usageTrackers reports whether to replace the file's usage trackers. Without -trackers it
// notes each place that the flag would change.
func (p *planner) usageTrackers(f treeFile, g *goFile) bool {
	if p.revert {
		return len(g.trackers(graftManaged)) > 0
	}
	places := g.trackers(upstreamResource)
	if p.trackers {
		return len(places) > 0
	}
	for _, t := range places {
		text := "fails while the cache lacks a usage that exists; " +
			"-trackers replaces it by Graft's tracker, which does not"
		if t.name.Name == "NewProviderConfigUsageTracker" { // Others need no namespace.
			text = "keeps managed resources in a terminating namespace for ever; " +
				"-trackers replaces it by Graft's tracker, which lets them be deleted"
		}
		p.report.note(f.path, g.line(t), text)
	}
	return false
}

// changed returns the file's source with the import replaced, and the trackers if they are
// to be. Trackers move between Graft's package, under either import, and package resource.
func (p *planner) changed(f treeFile, g *goFile, trackers bool) ([]byte, error) {
	dir := p.module.file(path.Dir(f.path))
	src := g.src
	var err error
	if trackers && p.revert {
		if src, err = g.moveTrackers(trackersBack(), dir); err != nil {
			return nil, err
		}
	}
	if g, err = parseGo(f.path, src); err != nil {
		return nil, err
	}
	src = g.replaceImport(p.from, p.to)
	if !trackers || p.revert {
		return src, nil
	}
	if g, err = parseGo(f.path, src); err != nil {
		return nil, err
	}
	return g.moveTrackers(trackersToGraft(), dir)
}

// requireGraft plans the change of go.mod, or names the command that makes it.
func (p *planner) requireGraft() error {
	want := p.version
	if has := required(p.module.gomod, graftModule); has != "" {
		l, _ := lineOf(has)
		if want == has || want == "" && l == p.line {
			return nil
		}
	}
	if want == "" {
		want = p.line.version(p.ownVersion)
	}
	if want == "" {
		p.report.next = append(p.report.next, "go get "+graftModule+"@"+p.line.graft)
		return nil
	}
	remark := "require " + graftModule + " " + want
	if p.module.gomodMode.Perm()&0o200 == 0 {
		p.report.leave("go.mod", 0, "not changed, the file is read-only; it needs: "+remark)
		return nil
	}
	after, err := addRequire(p.module.gomodSrc, graftModule, want)
	if err != nil {
		return fmt.Errorf("cannot add %s %s to go.mod: %w", graftModule, want, err)
	}
	p.report.edits = append(p.report.edits, edit{
		path: "go.mod", mode: p.module.gomodMode, before: p.module.gomodSrc, after: after, remark: remark,
	})
	return nil
}

// raiseFirst replaces the plan by the advice to raise crossplane-runtime.
func (p *planner) raiseFirst() {
	oldest := lines()[0].runtime
	v, at := runtimeRequired(p.module.gomod)
	p.report.edits, p.report.notes, p.report.tooOld = nil, nil, true
	p.report.leave("go.mod", at, fmt.Sprintf("crossplane-runtime %s is older than %s, which Graft's oldest line "+
		"requires: raise it first, in go.mod and in a change of its own; no import of crossplane-runtime changes, "+
		"but controller-runtime becomes v0.23 and Kubernetes v0.35", v, oldest))
	p.report.next = []string{"go get " + upstreamModule + "@" + oldest}
	p.nextSteps()
	p.report.next = append(p.report.next, "adopt")
}

// advise adds advice for changed files that a program generates again.
func (p *planner) advise() {
	if p.upjet {
		p.report.advice = append(p.report.advice, upjetAdvice(required(p.module.gomod, upjetModule)))
	}
	others := slices.ContainsFunc(p.report.edits, func(e edit) bool { return e.generated && !byUpjet(e.before) })
	if p.named && others {
		p.report.advice = append(p.report.advice, ""+
			"  Generated files come back with upstream's import if their generator writes it.\n"+
			"  The places in this module that name it are listed below: change them, or run\n"+
			"  adopt as the last step of make generate.\n")
	}
}

// nextSteps names the commands that complete a change.
func (p *planner) nextSteps() {
	if len(p.report.edits) == 0 && len(p.report.next) == 0 {
		return
	}
	p.report.next = append(p.report.next, "go mod tidy")
	if p.module.vendored {
		vendor := "go mod vendor"
		list, _ := os.ReadFile(p.module.file("vendor/modules.txt")) // An old go command writes none.
		if bytes.HasPrefix(list, []byte("## workspace")) {
			vendor = "go work vendor" // The other command fails in a workspace.
		}
		p.report.next = append(p.report.next, vendor)
	}
	p.report.next = append(p.report.next, "go build ./...")
}

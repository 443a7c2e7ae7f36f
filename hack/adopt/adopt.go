package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"os"
	"path"
	"slices"

	"golang.org/x/mod/semver"
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
	p := &planner{options: o, module: m, report: r, line: l, from: upstreamManaged, to: graftManaged}
	if o.revert {
		p.from, p.to = p.to, p.from
	}
	if v, at := runtimeRequired(m.gomod); !o.revert && v != "" && isTooOld(v) {
		p.raiseFirst(v, at)
		return r, nil
	}

	m.walk(p.visit, func(path string, err error) { r.leave(path, 0, "not read: %v", err) })
	if !o.revert && r.uses {
		if err := p.requireGraft(); err != nil {
			return nil, err
		}
	}
	p.fork()
	p.advise()
	if len(r.edits) > 0 || len(r.next) > 0 {
		p.nextSteps()
	}

	if !o.dryRun {
		r.edits = slices.DeleteFunc(r.edits, func(e edit) bool {
			err := os.WriteFile(m.file(e.path), e.after, 0o644) // The mode of a file that exists stays.
			if err != nil {
				r.leave(e.path, 0, "not written: %v", err)
			}
			return err != nil
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

	named     bool // A file names upstream's package without importing it.
	upjet     bool // upjet generated a changed file.
	generated bool // Another program did.
}

// visit plans the change of one file.
func (p *planner) visit(f treeFile) {
	src, err := os.ReadFile(p.module.file(f.path))
	isGo := path.Ext(f.path) == ".go"
	switch {
	case err != nil:
		p.report.leave(f.path, 0, "not read: %v", err)
	case f.nested != "":
		if isGo && quotes(src, p.from) {
			p.report.note(f.path, 0, "is in a module of its own; run adopt there, with -C "+f.nested)
		}
	case f.outside:
		if quotes(src, p.from) {
			p.report.leave(f.path, 0, "not changed, it is a symbolic link to a file outside the module")
		}
	case isGo && !f.ignored:
		p.visitGo(f.path, src)
	case !p.revert:
		p.mention(f.path, src, nil)
	}
}

// visitGo plans the change of a Go file.
func (p *planner) visitGo(name string, src []byte) {
	if !containsAny(src, upstreamManaged, upstreamV1Managed, upstreamResource, graftManaged) {
		return
	}
	g, err := parseGo(name, src)
	if err != nil {
		if quotes(src, p.from) {
			p.report.leave(name, 0, "not changed, it doesn't parse: %v", err)
		}
		return
	}
	if !p.revert {
		p.mention(name, src, g)
		for _, s := range g.imports(upstreamV1Managed) {
			p.report.leave(name, g.line(s),
				"imports crossplane-runtime v1; move the provider to %s first, then run adopt again", upstreamModule)
		}
	}

	var from []*ast.ImportSpec
	for _, s := range g.imports(p.from) {
		if isKept(s) {
			p.report.note(name, g.line(s), "import left, as its "+keepDirective+" comment asks")
			continue
		}
		from = append(from, s)
	}
	both := len(from) > 0 && len(g.imports(p.to)) > 0
	p.report.uses = p.report.uses || len(g.imports(p.to)) > 0
	trackers := p.usageTrackers(name, g)
	switch {
	case both && !p.revert:
		p.report.note(name, g.line(from[0]), "left, since the file imports both packages; drop one when you can")
	case len(from) > 0 || trackers:
		p.change(name, src, g, trackers)
	}
}

// mention notes places that name upstream's package.
func (p *planner) mention(name string, src []byte, g *goFile) {
	for _, line := range mentions(name, src, g) {
		p.report.note(name, line, "names upstream's package, not changed; "+
			"if Go code is generated or checked from it, change it by hand")
		p.named = true
	}
}

// usageTrackers reports whether to replace the file's usage trackers. Without -trackers it
// notes each place that the flag would change.
func (p *planner) usageTrackers(name string, g *goFile) bool {
	if p.revert {
		return len(g.trackers(graftUsage)) > 0
	}
	places := g.trackers(upstreamResource)
	if p.trackers {
		return len(places) > 0
	}
	for _, t := range places {
		p.report.note(name, g.line(t), trackerFault(t.Sel.Name))
	}
	return false
}

// change plans the change of a Go file: of its import, and of usage trackers. These move
// between Graft's package, under either import, and package resource.
func (p *planner) change(name string, src []byte, g *goFile, trackers bool) {
	after, err := g.replaceImport(p.from, p.to)
	if err == nil && trackers {
		move := trackersToGraft()
		if p.revert {
			move = trackersBack()
		}
		var moved *goFile
		if moved, err = parseGo(name, after); err == nil {
			after, err = moved.moveTrackers(move)
		}
	}
	if err != nil {
		p.report.leave(name, 0, "not changed: %v", err)
		return
	}
	generated := ast.IsGenerated(g.ast)
	p.plan(edit{path: name, before: src, after: after, generated: generated})
	p.report.uses = true
	byUpjet := containsAny(src, "// Code generated by upjet.")
	p.upjet = p.upjet || generated && byUpjet
	p.generated = p.generated || generated && !byUpjet
}

// plan adds an edit to the report. The file keeps its line endings.
func (p *planner) plan(e edit) {
	if info, err := os.Stat(p.module.file(e.path)); err == nil && info.Mode().Perm()&0o200 == 0 {
		p.report.leave(e.path, 0, "not changed, the file is read-only")
		return
	}
	if bytes.Contains(e.before, []byte("\r\n")) {
		e.after = bytes.ReplaceAll(e.after, []byte("\n"), []byte("\r\n"))
	}
	p.report.edits = append(p.report.edits, e)
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
	_, _, replaced := replacement(p.module.gomod, graftModule)
	switch {
	case want == "" && replaced:
		return nil
	case want == "" && p.ownVersion == "" && required(p.module.gomod, graftModule) == "":
		p.report.advice = append(p.report.advice, cloneAdvice)
		p.report.next = append(p.report.next, "go mod edit -replace "+graftModule+"="+p.line.clone())
		return nil
	}
	if want == "" {
		want = p.line.version(p.ownVersion)
	}
	if want == "" {
		p.report.next = append(p.report.next, "go get "+graftModule+"@"+p.line.graft)
		return nil
	}
	after, err := addRequire(p.module.gomodSrc, graftModule, want)
	if err != nil {
		return fmt.Errorf("cannot add %s %s to go.mod: %w", graftModule, want, err)
	}
	remark := fmt.Sprintf("require %s %s", graftModule, want)
	if l, ok := lineOf(want); ok {
		remark += fmt.Sprintf(", which requires crossplane-runtime %s and Go %s", l.runtime, l.golang)
	}
	p.plan(edit{path: "go.mod", before: p.module.gomodSrc, after: after, remark: remark})
	return nil
}

// raiseFirst advises to raise crossplane-runtime, which go.mod requires at a version that is
// older than all lines.
func (p *planner) raiseFirst(version string, at int) {
	oldest := lines()[0].runtime
	p.report.leave("go.mod", at, "crossplane-runtime %s is older than %s, which Graft's oldest line "+
		"requires: raise it first, in go.mod and in a change of its own; no import of crossplane-runtime changes, "+
		"but controller-runtime becomes v0.23 and Kubernetes v0.35", version, oldest)
	get := "go get " + upstreamModule + "@" + oldest
	if has := required(p.module.gomod, upjetModule); has != "" && semver.Compare(has, upjetWithTemplate) < 0 {
		p.report.advice = append(p.report.advice, webhookAdvice)
		get += " " + upjetModule + "@" + upjetWithTemplate + "\n  make generate"
	}
	p.report.next = []string{get}
	p.nextSteps()
	p.report.next = append(p.report.next, "adopt")
}

// fork notes that other code than a release of crossplane-runtime replaces it.
func (p *planner) fork() {
	if by, at, ok := replacement(p.module.gomod, upstreamModule); ok && by != upstreamModule {
		p.report.note("go.mod", at, "replaces crossplane-runtime by "+by+
			", on which Graft runs then, too; it is tested with the unmodified releases")
	}
}

// advise adds advice for changed files that a program generates again, and on what -revert
// doesn't undo.
func (p *planner) advise() {
	if p.revert && len(p.report.edits) > 0 {
		p.report.advice = append(p.report.advice, revertAdvice)
	}
	if !p.revert && p.upjet {
		p.report.advice = append(p.report.advice, upjetAdvice)
	}
	if p.named && p.generated {
		p.report.advice = append(p.report.advice, generatedAdvice)
	}
}

// nextSteps names the commands that complete a change. On the way back go build comes first: go mod tidy cannot find
// Graft's other packages, if they are still in use, when go.mod no longer names the module.
func (p *planner) nextSteps() {
	tidy := []string{"go mod tidy"}
	if _, err := os.Stat(p.module.file("vendor")); err == nil {
		tidy = append(tidy, "go mod vendor")
	}
	const build = "go build ./..."
	if p.revert {
		p.report.next = append(p.report.next, build, "go mod edit"+drops(p.module.gomod))
		p.report.next = append(p.report.next, tidy...)
		return
	}
	p.report.next = append(append(p.report.next, tidy...), build)
}

package main

import (
	"strings"
	"testing"
)

func TestGoMod(t *testing.T) {
	const runtime = "github.com/crossplane/crossplane-runtime/v2 "
	cases := map[string]adoption{
		"Added": {
			reason: "The requirement joins the direct ones; comments stay.",
			files: map[string]string{
				"go.mod": "module p // A provider.\n\ngo 1.25.11\n\nrequire (\n\t" + runtime +
					"v2.4.0\n\tz.org/z v1.0.0\n)\n\nrequire a.org/a v1.0.0 // indirect\n",
				"a.go": one,
			},
			args: []string{"-version", "v0.24.0"},
			changed: map[string]string{
				"go.mod": "module p // A provider.\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.24.0\n\t" +
					runtime +
					"v2.4.0\n\tz.org/z v1.0.0\n)\n\nrequire a.org/a v1.0.0 // indirect\n",
			},
			says: []string{"require github.com/crossplane-graft/graft v0.24.0", "  go mod tidy\n  go build ./..."},
		},
		"Asked": {
			reason: "A version that is asked for replaces another.",
			files: map[string]string{
				"go.mod": "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.0.9 // indirect\n\t" +
					runtime +
					"v2.4.0\n)\n",
				"a.go": one,
			},
			args: []string{"-version", "v0.24.0"},
			changed: map[string]string{
				"go.mod": "module p\n\ngo 1.25.11\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.24.0\n\t" +
					runtime +
					"v2.4.0\n)\n",
			},
		},
		"Raised": {
			reason: "The report should say what go mod tidy may raise.",
			files:  map[string]string{"go.mod": "module p\n\ngo 1.24\n\nrequire " + runtime + "v2.3.3\n", "a.go": one},
			args:   []string{"-version", "v0.24.0"},
			says:   []string{"v0.24.0, which requires crossplane-runtime v2.4.0 and Go 1.25.11"},
		},
		"OldRuntime": {
			reason: "A provider below all lines raises crossplane-runtime first.",
			files:  map[string]string{"go.mod": strings.Replace(goMod, "v2.4.0", "v2.1.1", 1)},
			src:    one, want: one, status: exitLeft,
			says: []string{
				"crossplane-runtime v2.1.1 is older than v2.2.1, which Graft's oldest line requires: raise it first",
				"go get " + upstreamModule + "@v2.2.1",
			},
		},
		"LineOfPseudoVersion": {
			reason: "A commit counts as its minor version.",
			files: map[string]string{
				"go.mod": "module p\n\ngo 1.26\n\nrequire " + runtime + "v2.2.0-rc.0.0.20260101000000-0123456789ab\n",
				"a.go":   one,
			},
			says: []string{"go mod edit -replace github.com/crossplane-graft/graft=../graft/bin/line/v2.2.1\n"},
		},
		"LineOfReplacement": {
			reason: "A replacement by another version decides.",
			files: map[string]string{
				"go.mod": "module p\n\ngo 1.26\n\nrequire " + runtime + "v2.4.0\n\nreplace " + runtime + "=> " +
					runtime +
					"v2.2.1\n",
				"a.go": one,
			},
			says: []string{"go mod edit -replace github.com/crossplane-graft/graft=../graft/bin/line/v2.2.1\n"},
			not:  "replaces crossplane-runtime",
		},
		"NotReleased": {
			reason: "An adopt that is not released should not name a go get that finds nothing.",
			files:  map[string]string{"a.go": one},
			says: []string{
				"replaces Graft's module by a clone",
				"next\n  go mod edit -replace github.com/crossplane-graft/graft=../graft\n  go mod tidy\n",
			},
			not: "go get",
		},
		"Replaced": {
			reason: "A replacement that is there should stay.",
			files:  map[string]string{"go.mod": goMod + "\nreplace " + graftModule + " => ../clone\n", "a.go": one},
			says:   []string{"next\n  go mod tidy\n"},
			not:    "go mod edit",
		},
		"Fork": {
			reason: "A fork that replaces crossplane-runtime should be named.",
			files: map[string]string{
				"go.mod": goMod + "\nreplace " + upstreamModule + " => example.org/fork v2.4.1\n", "a.go": one,
			},
			args: []string{"-version", "v0.24.0"},
			says: []string{"go.mod:7  replaces crossplane-runtime by example.org/fork, on which Graft runs then, too"},
			changed: map[string]string{
				"go.mod": strings.Replace(goMod, "require ", "require (\n\t"+graftModule+" v0.24.0\n\t", 1) +
					")\n\nreplace " + upstreamModule + " => example.org/fork v2.4.1\n",
			},
		},
		"OldUpjet": {
			reason: "Raising controller-runtime breaks each controller that an older upjet has generated.",
			files: map[string]string{
				"go.mod": strings.Replace(goMod, "v2.4.0", "v2.1.1", 1) + "\nrequire " + upjetModule + " v2.2.0\n",
			},
			src: one, want: one, status: exitLeft,
			says: []string{
				"ctrl.NewWebhookManagedBy(mgr).For(&T{}) is ctrl.NewWebhookManagedBy(mgr, &T{})",
				"go get " + upstreamModule + "@v2.2.1 " + upjetModule + "@v2.3.0\n  make generate\n",
			},
		},
		"OtherLinePresent": {
			reason: "A requirement of another line than the provider needs now is replaced.",
			files: map[string]string{
				"go.mod": "module p\n\ngo 1.26\n\nrequire (\n\tgithub.com/crossplane-graft/graft v0.22.3\n\t" +
					runtime +
					"v2.4.0\n)\n",
				"a.go": one,
			},
			says: []string{"  go get github.com/crossplane-graft/graft@v0.24\n  go mod tidy\n"},
		},
	}
	adoptions(t, cases)
}

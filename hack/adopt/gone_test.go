package main

import "testing"

// When go mod tidy is going to fail, adopt says why and where, and its status isn't 0.
func TestTidyFails(t *testing.T) {
	const common = upstreamModule + "/apis/common/v1"
	mod := func(runtime string, others ...string) string {
		m := "module example.org/provider\n\ngo 1.26\n\nrequire (\n\t" + upstreamModule + " " + runtime + "\n"
		for _, o := range others {
			m += "\t" + o + "\n"
		}
		return m + ")\n"
	}
	cases := map[string]adoption{
		"Fits": {
			reason: "On v2.2 the package is there, and so it is in the line for it.",
			files:  map[string]string{"go.mod": mod("v2.2.1"), "a.go": one, "b.go": "package p\n\nimport _ \"" + common + "\"\n"},
		},
		"Gone": {
			reason: "Each file is named that imports what v2.3 took away, tests and excluded files too, whether or not it imports the reconciler.",
			files: map[string]string{
				"go.mod":    mod("v2.3.3"),
				"a.go":      one,
				"b.go":      "//go:build ignore_me\n\npackage p\n\nimport (\n\t_ \"os\"\n\t_ \"" + common + "\"\n)\n",
				"c_test.go": "package p\n\nimport _ \"" + upstreamModule + "/pkg/parser\"\n",
			},
			says: []string{
				"b.go:7       imports " + common + ", which crossplane-runtime v2.4.0 doesn't have: go mod tidy will fail; its names are in github.com/crossplane/crossplane/apis/v2/core/v2",
				"c_test.go:3  imports " + upstreamModule + "/pkg/parser, which crossplane-runtime v2.4.0 doesn't have: go mod tidy will fail; its names are in " + upstreamModule + "/pkg/xpkg/parser",
			},
		},
		"Dependency": {
			reason: "A module that imports the package, itself or through another, doesn't fit.",
			files: map[string]string{
				"go.mod":                            mod("v2.4.0", "example.org/direct v1.0.0", "example.org/fine v1.0.0", "example.org/through v1.2.0"),
				"a.go":                              one,
				"b.go":                              "package p\n\nimport (\n\t_ \"example.org/direct\"\n\t_ \"example.org/fine\"\n\t_ \"example.org/through/a\"\n)\n",
				"vendor/example.org/direct/a.go":    "package direct\n\nimport _ \"" + common + "\"\n",
				"vendor/example.org/fine/a.go":      "package fine\n\nimport _ \"os\"\n",
				"vendor/example.org/fine/a_test.go": "package fine\n\nimport _ \"" + common + "\"\n",
				"vendor/example.org/through/a/a.go": "package a\n\nimport _ \"example.org/through/b\"\n",
				"vendor/example.org/through/b/b.go": "package b\n\nimport _ \"" + common + "\"\n",
			},
			says: []string{
				"go.mod:7  example.org/direct v1.0.0 doesn't work with crossplane-runtime v2.4.0, which has no " + common + " (imported by example.org/direct): go mod tidy will fail",
				"go.mod:9  example.org/through v1.2.0 doesn't work with crossplane-runtime v2.4.0, which has no " + common + " (imported by example.org/through/b): go mod tidy will fail",
			},
		},
		"Upjet": {
			reason: "Releases of upjet need the older line, also if their source isn't there to be read.",
			files:  map[string]string{"go.mod": mod("v2.4.0", "github.com/crossplane/upjet/v2 v2.4.1"), "a.go": one},
			says:   []string{"go.mod:7  upjet v2.4.1 doesn't work with crossplane-runtime v2.4.0, which has no " + upstreamModule + "/apis/common: go mod tidy will fail; upjet needs v0.22.x of Graft"},
		},
		"Ignored": {
			reason: "What go mod tidy doesn't read can't make it fail.",
			files: map[string]string{
				"go.mod":  mod("v2.4.0"),
				"a.go":    one,
				"gen.go":  "// Comment.\n\n//go:build ignore\n\npackage main\n\nimport _ \"" + common + "\"\n",
				"b/_b.go": "package b\n\nimport _ \"" + common + "\"\n",
			},
		},
		"Pinned": {
			reason: "A replacement keeps crossplane-runtime where it is.",
			files: map[string]string{
				"go.mod": mod("v2.4.0") + "\nreplace " + upstreamModule + " => " + upstreamModule + " v2.2.0\n",
				"a.go":   one,
				"b.go":   "package p\n\nimport _ \"" + common + "\"\n",
			},
			args: []string{"-version", "v0.24.0"},
		},
		"UpjetFork": {
			reason: "What upjet is replaced by may work.",
			files:  map[string]string{"go.mod": mod("v2.4.0", "github.com/crossplane/upjet/v2 v2.4.1") + "\nreplace github.com/crossplane/upjet/v2 => example.org/upjet/v2 v2.9.0\n", "a.go": one},
		},
	}
	adoptions(t, cases, "go mod tidy will fail")
}

package main

import (
	"strings"
	"testing"
)

const (
	up       = `"` + upstreamManaged + `"`
	graft    = `"` + graftManaged + `"`
	used     = `"` + graftUsage + `"`
	resource = `"` + upstreamResource + `"`
)

func TestTrackers(t *testing.T) {
	const use = "\nvar (\n\tt = resource.NewProviderConfigUsageTracker(c, u)\n\tm resource.Managed\n)\n"
	const alone = "\nvar t = resource.NewProviderConfigUsageTracker(c, u)\n"
	cases := map[string]adoption{
		"Beside": {
			reason: "A file that has both imports keeps them.",
			src: "package p\n\nimport (\n\t" + up + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" +
				use,
			want: "package p\n\nimport (\n\t" + graft + "\n\t" + used + "\n\t" + resource +
				"\n)\n\nvar _ managed.ExternalClient\n" + strings.Replace(use, "resource.New", "usage.New", 1),
		},
		"NotNeeded": {
			reason: "An import that nothing else needs goes with its line.",
			src: "package p\n\nimport (\n\t" + up + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" +
				alone,
			want: "package p\n\nimport (\n\t" + graft + "\n\t" + used + "\n)\n\nvar _ managed.ExternalClient\n" +
				strings.Replace(alone, "resource.", "usage.", 1),
		},
		"Replaced": {
			reason: "Graft's import should replace an import that nothing else needs, also one with an alias.",
			src: "package p\n\nimport xpresource " + resource + "\n" + strings.Replace(
				alone, "resource.", "xpresource.", 1,
			),
			want: "package p\n\nimport " + used + "\n" + strings.Replace(alone, "resource.", "usage.", 1),
		},
		"Shadowed": {
			reason: "Also if the import has that name, and a function's parameter, too.",
			src: "package p\n\nimport (\n\t" + up + "\n\t" + resource +
				"\n)\n\nvar _ managed.ExternalClient\n\nfunc f(usage resource.Managed) any { return resource.NewProviderConfigUsageTracker(c, u) }\n",
			want: "package p\n\nimport (\n\t" + graft + "\n\tgraftusage " + used + "\n\t" + resource +
				"\n)\n\nvar _ managed.ExternalClient\n\nfunc f(usage resource.Managed) any { return graftusage.NewProviderConfigUsageTracker(c, u) }\n",
		},
		"DeclaredInAnotherPackage": {
			reason: "A name in an external test should not count, because that is another package.",
			src:    "package p\n\nimport " + resource + "\n" + alone,
			want:   "package p\n\nimport " + used + "\n" + strings.Replace(alone, "resource.", "usage.", 1),
			files:  map[string]string{"b_test.go": "package p_test\n\nconst usage = 1\n"},
		},
		"Legacy": {
			reason: "Legacy trackers move too, and so do values.",
			src: "package p\n\nimport " + resource +
				"\n\nvar f, _ = resource.NewLegacyProviderConfigUsageTracker, resource.NewProviderConfigUsageTracker\n",
			want: "package p\n\nimport " + used +
				"\n\nvar f, _ = usage.NewLegacyProviderConfigUsageTracker, usage.NewProviderConfigUsageTracker\n",
		},
		"Kept": {
			reason: "An import with a keep comment should stay.",
			src:    "package p\n\nimport " + resource + " //graft:keep\n" + use,
			want:   "package p\n\nimport " + resource + " //graft:keep\n" + use,
		},
		"CRLF": {
			reason: "Line endings should stay when gofmt formats the file.",
			src:    strings.ReplaceAll("package p\n\nimport "+resource+"\n"+alone, "\n", "\r\n"),
			want: strings.ReplaceAll(
				"package p\n\nimport "+used+"\n"+strings.Replace(alone, "resource.", "usage.", 1), "\n", "\r\n",
			),
		},
		"Others": {
			reason: "Another package's functions of the name are another's.",
			src:    "package p\n\nimport \"example.org/resource\"\n" + use,
			want:   "package p\n\nimport \"example.org/resource\"\n" + use,
		},
	}
	adoptions(t, cases, "-version", "v0.24.0", "-trackers")
}

func TestTrackersSummary(t *testing.T) {
	moved := "package p\n\nimport (\n\t\"" + graftManaged + "\"\n\t" + resource +
		"\n)\n\nvar (\n\t_ managed.ExternalClient\n\tt = resource.NewProviderConfigUsageTracker(c, u)\n)\n"
	cases := map[string]struct {
		reason string
		files  map[string]string
		args   []string
		want   string
	}{
		"TrackersOnly": {
			reason: "The summary should not count files that were moved before.",
			files:  map[string]string{"a.go": moved},
			want:   "1 Go file moved to Graft",
		},
		"DryRun": {
			reason: "The summary of a dry run should say that nothing is changed yet.",
			files:  map[string]string{"a.go": moved},
			args:   []string{"-n"},
			want:   "1 Go file would move to Graft",
		},
		"Both": {
			reason: "The summary should count files whose trackers move, and those whose import does.",
			files:  map[string]string{"a.go": moved, "b.go": one},
			want:   "2 Go files moved to Graft",
		},
		"BothInOne": {
			reason: "A file that is moved should be counted once.",
			files:  map[string]string{"a.go": strings.Replace(moved, graftManaged, upstreamManaged, 1)},
			want:   "1 Go file moved to Graft",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.files["go.mod"] = goMod
			adopted(t, tc.reason, writeTree(t, tc.files), exitDone, []string{": " + tc.want + "\n"}, append([]string{
				"-version", "v0.24.0", "-trackers",
			}, tc.args...)...)
		})
	}
}

func TestTrackersBack(t *testing.T) {
	const use = "\nvar (\n\tt = usage.NewProviderConfigUsageTracker(c, u)\n\tm resource.Managed\n)\n"
	const alone = "\nvar t = usage.NewProviderConfigUsageTracker(c, u)\n"
	cases := map[string]adoption{
		"Beside": {
			reason: "A file that has both imports keeps them.",
			src: "package p\n\nimport (\n\t" + graft + "\n\t" + used + "\n\t" + resource +
				"\n)\n\nvar _ managed.ExternalClient\n" + use,
			want: "package p\n\nimport (\n\t" + up + "\n\t" + resource + "\n)\n\nvar _ managed.ExternalClient\n" +
				strings.Replace(use, "usage.New", "resource.New", 1),
		},
		"Added": {
			reason: "A file that doesn't import the trackers' package gets the import, in gofmt's order.",
			src: "package p\n\nimport (\n\t" + graft + "\n\t" + used +
				"\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n)\n\nvar _ managed.ExternalClient\n" +
				alone,
			want: "package p\n\nimport (\n\t\"github.com/crossplane/crossplane-runtime/v2/pkg/event\"\n\t" + up +
				"\n\t" +
				resource +
				"\n)\n\nvar _ managed.ExternalClient\n" +
				strings.Replace(alone, "usage.", "resource.", 1),
		},
		"Replaced": {
			reason: "An import that nothing else needs goes.",
			src: "package p\n\nimport graftusage " + used + "\n\nvar usage int\n" + strings.Replace(
				alone, "usage.", "graftusage.", 1,
			),
			want: "package p\n\nimport " + resource + "\n\nvar usage int\n" + strings.Replace(
				alone, "usage.", "resource.", 1,
			),
		},
		"OneLine": {
			reason: "An import that goes may share its line with others.",
			src: "package p\n\nimport (\n\t_ \"os\"; g " + used + "; " + resource + "\n)\n\nvar m resource.Managed\n" +
				strings.Replace(alone, "usage.", "g.", 1),
			want: "package p\n\nimport (\n\t" + resource + "\n\t_ \"os\"\n)\n\nvar m resource.Managed\n" +
				strings.Replace(alone, "usage.", "resource.", 1),
		},
		"LastOfOneLine": {
			reason: "Also if it is the last.",
			src: "package p\n\nimport " + resource + "; import g " + used + "\n\nvar m resource.Managed\n" +
				strings.Replace(alone, "usage.", "g.", 1),
			want: "package p\n\nimport " + resource + "\n\nvar m resource.Managed\n" + strings.Replace(
				alone, "usage.", "resource.", 1,
			),
		},
		"Alias": {
			reason: "The name that the file has for the package is used.",
			src: "package p\n\nimport (\n\t" + graft + "\n\t" + used + "\n\txpr " + resource +
				"\n)\n\nvar _ xpr.Managed\n\nvar _ managed.ExternalClient\n" +
				alone,
			want: "package p\n\nimport (\n\t" + up + "\n\txpr " + resource +
				"\n)\n\nvar _ xpr.Managed\n\nvar _ managed.ExternalClient\n" +
				strings.Replace(alone, "usage.", "xpr.", 1),
		},
	}
	adoptions(t, cases, "-revert")
}

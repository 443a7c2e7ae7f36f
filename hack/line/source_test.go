package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRewrite(t *testing.T) {
	const metaPath, managedPath = runtimeModule + "/pkg/meta", runtimeModule + "/pkg/reconciler/managed"
	cases := map[string]struct {
		reason string
		path   string
		text   string
		want   string
	}{
		"Same": {
			reason: "A file that uses nothing that differs should be left as it is, also if gofmt would change it.",
			path:   "a.go",
			text:   "package p\n\nimport \"" + metaPath + "\"\n\nvar  a = meta.AnnotationKeyExternalName\n",
			want:   "package p\n\nimport \"" + metaPath + "\"\n\nvar  a = meta.AnnotationKeyExternalName\n",
		},
		"CoreTypes": {
			reason: "Core types should come from the package that has them, by their name there.",
			path:   "a.go",
			text: "package p\n\nimport (\n\t\"time\"\n\n\txpv2 \"" + coreModule + "/core/v2\"\n)\n\n" +
				"type t struct {\n\txpv2.ManagedResourceSpec\n\txpv2.ManagedResourceStatus\n\ttime.Time\n}\n",
			want: "package p\n\nimport (\n\t\"time\"\n\n\txpv1 \"" + runtimeModule + "/apis/common/v1\"\n" +
				"\txpv2 \"" + runtimeModule + "/apis/common/v2\"\n)\n\n" +
				"type t struct {\n\txpv2.ManagedResourceSpec\n\txpv1.ResourceStatus\n\ttime.Time\n}\n",
		},
		"OneImport": {
			reason: "A package of core types that the file does not use should not be imported.",
			path:   "a.go",
			text:   "package p\n\nimport xpv2 \"" + coreModule + "/core/v2\"\n\nvar a = xpv2.Available()\n",
			want: "package p\n\nimport xpv1 \"" + runtimeModule + "/apis/common/v1\"\n\n" +
				"var a = xpv1.Available()\n",
		},
		"Case": {
			reason: "A case of a table that the release can't pass should be left out, with the imports that only it uses.",
			path:   "pkg/managed/bench_test.go",
			text: "package p\n\nimport \"" + metaPath + "\"\n\nfunc TestA(t *testing.T) {\n" +
				"\tcases := map[string]struct{ key string }{\n\t\t\"One\": {key: \"a\"},\n\t\t\"ReconcileRequested\": {\n" +
				"\t\t\tkey: meta.AnnotationKeyReconcileRequestedAt,\n\t\t},\n\t\t\"Two\": {key: \"b\"},\n\t}\n\trun(cases)\n}\n",
			want: "package p\n\nfunc TestA(t *testing.T) {\n\tcases := map[string]struct{ key string }{\n" +
				"\t\t\"One\": {key: \"a\"},\n\t\t\"Two\": {key: \"b\"},\n\t}\n\trun(cases)\n}\n",
		},
		"OtherFile": {
			reason: "An edit of one file should not change another.",
			path:   "pkg/managed/bench_test.go",
			text:   "package p\n\nimport upstream \"" + managedPath + "\"\n\nvar a = f(\n\tupstream.WithMinPollInterval(time.Second),\n)\n",
			want:   "package p\n\nimport upstream \"" + managedPath + "\"\n\nvar a = f(\n\tupstream.WithMinPollInterval(time.Second),\n)\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := lines()["v2.2.1"].rewrite(tc.path, []byte(tc.text), map[edit]bool{})
			must(t, err)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("\n%s\nrewrite(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	metaPath    = runtimeModule + "/pkg/meta"
	managedPath = runtimeModule + "/pkg/reconciler/managed"
)

func TestRewrite(t *testing.T) {
	type want struct {
		text    string // Empty if nothing changes.
		leftOut []string
		err     string
	}
	cases := map[string]struct {
		reason string
		name   string // a.go unless it is given.
		text   string
		want   want
	}{
		"Same": {
			reason: "A file that uses nothing that differs is left as it is, also if gofmt would change it.",
			text:   "package p\n\nimport \"" + metaPath + "\"\n\nvar  a = meta.AnnotationKeyExternalName\n",
		},
		"NoStandIn": {
			reason: "Code that isn't a test can't be left out, so a person must say what stands for the name.",
			text:   "package p\n\nimport \"" + managedPath + "\"\n\nvar a = managed.WithMinPollInterval(1)\n",
			want: want{
				err: "a.go:5:9: crossplane-runtime v2.2.1 has no WithMinPollInterval: hack/line/lines.go must say what stands for it",
			},
		},
		"Case": {
			reason: "A case of a table is left out, although an expression could stand for the name: it tests what isn't there.",
			name:   "a_test.go",
			text: "package p\n\nimport \"" + metaPath +
				"\"\n\nfunc TestA(t *testing.T) {\n\tcases := map[string]struct{ key string }{\n\t\t\"One\": {key: \"a\"},\n\t\t\"Two\": {key: meta.AnnotationKeyReconcileRequestedAt},\n\t}\n\trun(cases, meta.AnnotationKeyReconcileRequestedAt)\n}\n",
			want: want{
				text:    "package p\n\nfunc TestA(t *testing.T) {\n\tcases := map[string]struct{ key string }{\n\t\t\"One\": {key: \"a\"},\n\t}\n\trun(cases, \"crossplane.io/reconcile-requested-at\")\n}\n",
				leftOut: []string{"a_test.go: case Two of TestA"},
			},
		},
		"Differs": {
			reason: "A case that the release answers otherwise is left out by its name.",
			name:   "a_test.go",
			text:   "package p\n\nfunc TestCreateResolver(t *testing.T) {\n\tcases := map[string]int{\n\t\t\"AbsentToObserve\": 1,\n\t\t\"Absent\":          2,\n\t}\n\trun(cases)\n}\n",
			want: want{
				text: "package p\n\nfunc TestCreateResolver(t *testing.T) {\n\tcases := map[string]int{\n\n\t\t\"Absent\": 2,\n\t}\n\trun(cases)\n}\n",
				leftOut: []string{
					"a_test.go: case AbsentToObserve of TestCreateResolver: requeues at once where v2.4 waits for the poll interval",
				},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := tc.name
			if file == "" {
				file = "a.go"
			}
			s, err := rewrite(lines()["v2.2.1"], file, []byte(tc.text))
			if tc.want.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want.err) {
					t.Errorf("\n%s\nwant error %q, got: %v", tc.reason, tc.want.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("\n%s\nunexpected error: %v", tc.reason, err)
			}
			text := tc.want.text
			if text == "" {
				text = tc.text
			}
			if diff := cmp.Diff(
				want{text: text, leftOut: tc.want.leftOut}, want{text: string(s.text), leftOut: s.leftOut},
				cmp.AllowUnexported(want{}),
			); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhy(t *testing.T) {
	a := newAPI(t, "why.yaml")
	var got strings.Builder
	for _, line := range []string{
		"why app/shop -n team-a",
		"why app shop --context prod -o jsonpath={.inTheWay[0].inTheWay[0].advice[0].commands[0]}",
		"why xapps.example.org/blog",
		"why policies.s3.cloud.example.org/left -n team-b",
		"why namespace/team-b",
		"why customresourcedefinitions/policies.s3.cloud.example.org",
		"why providerconfig/account -n team-a",
		"why bucket/busy -n team-a",
		"why bucket/busy -n team-a -o json",
		"why bucket/creating -n team-a",
		"why bucket/fine -n team-a",
		"why bucket/escape -n team-a",
	} {
		got.WriteString(a.result(t, line))
	}

	// As a user who may not read everything.
	for _, verb := range []string{
		"get databases", "list clusterusages", "list usages", "get customresourcedefinitions", "get namespaces",
	} {
		a.forbidden[verb] = true
	}
	got.WriteString(a.result(t, "why app/shop -n team-a"))
	golden(t, "why.golden", got.String())
}

// Each reason and message of docs/operators.md has its repair.
func TestWhy_Reasons(t *testing.T) {
	a := newAPI(t)
	var got strings.Builder
	show := func(name, metadata string, conditions ...string) {
		t.Helper()
		text := "apiVersion: cloud.example.org/v1\nkind: Database\nmetadata: {name: " + name + ", " + metadata + "}\n" +
			"status:\n  conditions:\n"
		for _, c := range conditions {
			text += "  - {" + c + `, lastTransitionTime: "2026-01-02T03:00:01Z"}` + "\n"
		}
		a.add(t, text)
		got.WriteString(a.result(t, "why database/"+name))
	}
	const named = `crossplane.io/external-name: db-1`
	for _, r := range documentedReasons(t) {
		own, other, annotations, metadata := "finalizer.managedresource.crossplane.io", "", named, ""
		switch r.reason {
		case "WaitingForFinalizers", "DeadlineExceeded", "ForceOrphaned":
			other = ", x.org/hold"
		case "BlockedByPause":
			annotations += `, crossplane.io/paused: "true"`
		case "CreateResultUnknown", "OutcomeUnknown", "RecordUnusable", "FindFailed":
			annotations += `, crossplane.io/external-create-pending: "2026-01-02T02:00:00Z"`
		}
		if r.typ == "Deleting" && r.status == "True" {
			metadata = `deletionTimestamp: "2026-01-02T03:00:00Z", `
		}
		metadata += "finalizers: [" + own + other + "], annotations: {" + annotations + "}"
		said := fmt.Sprintf(`type: %s, status: %q, reason: %s, message: "As Graft says."`, r.typ, r.status, r.reason)
		conditions := []string{said}
		well := r.typ == "Synced" || r.status == "True" || r.reason == "Finished" || r.reason == "WritesAgree" ||
			r.reason == "NotDeleting"
		if well {
			conditions = append(conditions, `type: Ready, status: "True", reason: Available`)
		}
		if !well || strings.HasSuffix(r.reason, "Failed") {
			conditions = append(conditions,
				`type: Synced, status: "False", reason: ReconcileError, message: "cannot do it"`)
		}
		show(strings.ToLower(r.typ+"-"+r.reason), metadata, conditions...)
	}
	show("incomplete", `annotations: {crossplane.io/external-create-pending: "2026-01-02T02:00:00Z"}`,
		`type: Synced, status: "False", message: "cannot determine creation result - remove the annotation"`)
	show("no-key", "annotations: {"+named+"}",
		`type: Synced, status: "False", reason: ReconcileError, message: "cannot determine which external resource to reserve"`)
	show("refused", "annotations: {graft.crossplane.io/create-refused: db-1, "+named+"}")
	show("conflict-and-not-ready", "annotations: {"+named+"}",
		`type: Ready, status: "False", reason: Unavailable, message: "no disk"`,
		`type: ConflictingWrites, status: "True", reason: ChangedBack, message: "As Graft says."`)
	got.WriteString(
		a.result(t,
			"why database/externalnamereserved-reservedbyother --context prod -o jsonpath={.advice[0].commands[0]}"),
	)
	golden(t, "reasons.golden", got.String())
}

// A documentedReason is a reason of a condition of Graft's, with the status that it has.
type documentedReason struct{ typ, reason, status string }

// documentedReasons returns the reasons in the tables of docs/operators.md.
func documentedReasons(t *testing.T) []documentedReason {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operators.md"))
	if err != nil {
		t.Fatal(err)
	}
	heading, word := regexp.MustCompile("^## Reasons of `(.*)`"), regexp.MustCompile("`([A-Z][A-Za-z]+)`")
	status := map[string]string{
		"Deleting":          "True",
		"NotDeleting":       "False",
		"ConflictingWrites": "True",
		"WritesAgree":       "False",
		"Running":           "True",
		"Queued":            "True",
		"Interrupted":       "Unknown",
		"Resolved":          "True",
		"Reserved":          "True",
		"NotNeeded":         "True",
	}
	var out []documentedReason
	typ := ""
	for line := range strings.Lines(string(text)) {
		if h := heading.FindStringSubmatch(line); h != nil {
			typ = h[1]
		} else if strings.HasPrefix(line, "#") {
			typ = ""
		}
		cell, _, row := strings.Cut(strings.TrimPrefix(line, "| `"), " | ")
		if typ == "" || !row || !strings.HasPrefix(line, "| `") {
			continue
		}
		before, _, _ := strings.Cut("`"+cell, ":")
		for _, w := range word.FindAllStringSubmatch(before, -1) {
			if w[1] != "True" && w[1] != "False" {
				out = append(out,
					documentedReason{typ: typ, reason: w[1], status: cmp.Or(status[w[1]], status[typ], "False")})
			}
		}
	}
	return out
}

// It is printed again when it changes, until the object no longer exists, is ready, or the
// person has seen enough.
func TestWhy_Watch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		object string
		then   func(a *api, waits int) error
		want   []string
		code   int
	}{
		"Removed": {
			reason: "The end of the object is the end.",
			object: "policies.s3.cloud.example.org/left",
			then: func(a *api, waits int) error {
				k := leftPolicy()
				switch waits {
				case 2:
					a.objects[k].SetFinalizers(nil)
				case 3:
					delete(a.objects, k)
				}
				return nil
			},
			want: []string{"DeletionRequested", "Nothing holds it any more.", "Policy/left in team-b no longer " +
				"exists."},
		},
		"NeverReconciled": {
			reason: "An object that was just applied is not ready yet.",
			object: "buckets/new",
			then: func(a *api, waits int) error {
				if waits == 2 {
					conditions := []any{map[string]any{"type": "Ready", "status": "True", "reason": "Available"}}
					o := a.objects[key(schema.GroupVersion{Group: "s3.cloud.example.org", Version: "v1"},
						"buckets", "team-b", "new")]
					return unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions")
				}
				return nil
			},
			want: []string{"Bucket/new in team-b  NotReady (a guess)", "Bucket/new in team-b  Ready\n"},
		},
		"Interrupted": {
			reason: "An interrupt ends it.",
			object: "policies.s3.cloud.example.org/left",
			then:   func(*api, int) error { return errors.New("interrupted") },
			want:   []string{"DeletionRequested"},
			code:   exitFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "why.yaml")
			a.add(t, "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: new, namespace: team-b}}")
			waits := 0
			term := &terminal{wait: func() error {
				waits++
				return tc.then(a, waits)
			}}
			code := a.run(t, term, "why", tc.object, "-n", "team-b", "--watch")
			got := term.out.String() + term.err.String()
			for _, w := range tc.want {
				if strings.Count(got, w) != 1 {
					t.Errorf("%s want %q once, got:\n%s", tc.reason, w, got)
				}
			}
			if code != tc.code {
				t.Errorf("%s want exit status %d, got %d", tc.reason, tc.code, code)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		line      string
		forbidden string
		empty     bool
		want      string
	}{
		"NoSuchObject": {
			reason: "An object that does not exist is named with its namespace, and the flag that chooses another.",
			line:   "why bucket/nothing -n team-a",
			want:   `error: there is no buckets.s3.cloud.example.org "nothing" in namespace "team-a": choose another with -n`,
		},
		"NoSuchKind": {
			reason: "A kind that the API server does not have is named.",
			line:   "why bukket/photos",
			want:   `error: the API server has no kind "bukket"`,
		},
		"Ambiguous": {
			reason: "If several kinds have a name, the full names are told.",
			line:   "why policy/left",
			want:   `error: the kind "policy" is ambiguous: write policies.s3.cloud.example.org or policies.s3.other.example.org`,
		},
		"Forbidden": {
			reason:    "A refusal of the API server is one sentence.",
			line:      "why bucket/photos",
			forbidden: "get buckets",
			want:      `error: buckets.s3.cloud.example.org is forbidden: User "jane" cannot get resource "buckets" in API group "s3.cloud.example.org"`,
		},
		"NoName": {
			reason: "An argument without a name is refused.",
			line:   "why bucket",
			want:   `error: "bucket" does not name an object: write KIND/NAME`,
		},
		"NoArgument": {
			reason: "Without arguments the usage is shown.",
			line:   "why",
			want:   `error: wrong number of arguments: write kubectl graft why KIND/NAME`,
		},
		"NoFinalizer": {
			reason: "Without a finalizer the usage is shown.",
			line:   "drop-finalizer bucket/photos",
			want:   `error: wrong number of arguments: write kubectl graft drop-finalizer KIND/NAME FINALIZER`,
		},
		"Unreachable": {
			reason: "An API server that does not answer is named, and how to choose another.",
			line:   "why bucket/photos --context unreachable",
			want:   `error: cannot reach the API server (no such host): choose another cluster with --context or --kubeconfig, or try again`,
		},
		"TooMany": {
			reason: "A further argument is refused.",
			line:   "why bucket/photos more",
			want:   `error: unexpected argument "more"`,
		},
		"BadFormat": {
			reason: "An unknown output format is refused.",
			line:   "why namespace/team-b -o xml",
			want:   `error: there is no output format "xml": choose one of json, yaml, `,
		},
		"BadFormatEarly": {
			reason: "An unknown output format is refused before the API server is read.",
			line:   "stuck -A -o xml --context unreachable",
			want:   `error: there is no output format "xml": choose one of json, yaml, `,
		},
		"NoWide": {
			reason: "A format that only lists have is refused.",
			line:   "why namespace/team-b -o wide",
			want:   `error: there is no output format "wide": choose one of json, yaml, `,
		},
		"NoSuchCommand": {
			reason: "An unknown command is named as the user wrote it.",
			line:   "whyy bucket/photos",
			want:   `error: unknown command "whyy" for "kubectl graft"`,
		},
		"NotCrossplanes": {
			reason: "Nothing reconciles an object because of Crossplane's annotation if it is not one of Crossplane's.",
			line:   "reconcile namespace/team-b",
			want:   "error: Namespace/team-b is not one of Crossplane's objects: nothing would act on the request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "why.yaml")
			a.forbidden[tc.forbidden] = true
			term := &terminal{}
			code := a.run(t, term, strings.Fields(tc.line)...)
			got := term.err.String()
			if line, rest, _ := strings.Cut(got, "\n"); rest != "" || !strings.HasPrefix(line, tc.want) ||
				code != exitFailed {
				t.Errorf("%s\nexit status %d, -want, +got:\n%s", tc.reason, code, gocmp.Diff(tc.want+"\n", got))
			}
		})
	}
}

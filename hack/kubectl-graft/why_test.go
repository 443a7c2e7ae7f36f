package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
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
		"why bucket/fine -n team-a",
		"why bucket/escape -n team-a",
	} {
		got.WriteString(a.result(t, line))
	}

	// As a user who may not read everything.
	for _, verb := range []string{"get databases", "list clusterusages", "list usages", "get customresourcedefinitions", "get namespaces"} {
		a.forbidden[verb] = true
	}
	got.WriteString(a.result(t, "why app/shop -n team-a"))
	golden(t, "why.golden", got.String())
}

// Each reason of docs/operators.md has its repair.
func TestWhy_Reasons(t *testing.T) {
	a := newAPI(t)

	var got strings.Builder
	deleting := []string{
		"DeletionRequested", "BlockedByPause", "WaitingForFinalizers", "InitializeFailed", "ObserveFailed", "ReconcileFailed", "ConnectFailed",
		"NamespaceTerminating", "CreateResultUnknown", "ConfirmingAbsence", "ExternalDeleteRequested", "WaitingForExternalResource",
		"WaitingForAsyncOperation", "ExternalDeleteFailed", "WaitingForDependents", "BlockedByProtection", "DeadlineExceeded", "ForceOrphaned",
	}
	for _, reason := range deleting {
		name := "deleting-" + strings.ToLower(reason)
		a.add(t, `
apiVersion: cloud.example.org/v1
kind: Database
metadata:
  name: `+name+`
  annotations: {crossplane.io/external-name: db-1, crossplane.io/paused: "`+trueIf(reason == "BlockedByPause")+`", crossplane.io/external-create-pending: "`+timeIf(reason == "CreateResultUnknown")+`"}
  finalizers: [finalizer.managedresource.crossplane.io`+textIf(reason == "WaitingForFinalizers" || reason == "DeadlineExceeded" || reason == "ForceOrphaned", ", x.org/hold")+`]
  deletionTimestamp: "2026-01-02T03:00:00Z"
status:
  conditions:
  - {type: Synced, status: "`+textIf(strings.HasSuffix(reason, "Failed"), "False")+textIf(!strings.HasSuffix(reason, "Failed"), "True")+`", reason: ReconcileError, message: "cannot do it", lastTransitionTime: "2026-01-02T03:00:00Z"}
  - {type: Deleting, status: "True", reason: `+reason+`, message: "As Graft says.", lastTransitionTime: "2026-01-02T03:00:01Z"}
`)
		got.WriteString(a.result(t, "why database/"+name))
	}
	for _, c := range []struct{ typ, reason, status string }{
		{typ: "OperationRunning", reason: "Running", status: "True"},
		{typ: "OperationRunning", reason: "Queued", status: "True"},
		{typ: "OperationRunning", reason: "Failed", status: "False"},
		{typ: "OperationRunning", reason: "Interrupted", status: "Unknown"},
		{typ: "OperationRunning", reason: "OutcomeUnknown", status: "False"},
		{typ: "OperationRunning", reason: "RecordUnusable", status: "False"},
		{typ: "CreateResolved", reason: "WaitingForCreate", status: "False"},
		{typ: "CreateResolved", reason: "CreateResultUnknown", status: "False"},
		{typ: "CreateResolved", reason: "FindFailed", status: "False"},
		{typ: "ExternalNameReserved", reason: "ReservedByOther", status: "False"},
	} {
		name := strings.ToLower(c.typ + "-" + c.reason)
		a.add(t, `
apiVersion: cloud.example.org/v1
kind: Database
metadata: {name: `+name+`, annotations: {crossplane.io/external-create-pending: "2026-01-02T02:00:00Z"}}
status:
  conditions:
  - {type: Synced, status: "False", reason: ReconcileError, message: "cannot do it", lastTransitionTime: "2026-01-02T03:00:00Z"}
  - {type: `+c.typ+`, status: "`+c.status+`", reason: `+c.reason+`, message: "As Graft says.", lastTransitionTime: "2026-01-02T03:00:01Z"}
`)
		got.WriteString(a.result(t, "why database/"+name))
	}
	a.add(t, `
apiVersion: cloud.example.org/v1
kind: Database
metadata: {name: refused, annotations: {graft.crossplane.io/create-refused: db-1, crossplane.io/external-name: db-1}}
`)
	got.WriteString(a.result(t, "why database/refused"))
	golden(t, "reasons.golden", got.String())
}

func trueIf(b bool) string { return textIf(b, "true") }
func timeIf(b bool) string { return textIf(b, "2026-01-02T02:00:00Z") }
func textIf(b bool, s string) string {
	if b {
		return s
	}
	return ""
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
				k := key(schema.GroupVersion{Group: "s3.cloud.example.org", Version: "v1"}, "policies", "team-b", "left")
				switch waits {
				case 2:
					a.objects[k].SetFinalizers(nil)
				case 3:
					delete(a.objects, k)
				}
				return nil
			},
			want: []string{"DeletionRequested", "Nothing holds it any more.", "Policy/left in team-b no longer exists."},
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
			want:   `error: unable to match a printer suitable for the output format "xml", allowed formats are: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "why.yaml")
			a.forbidden[tc.forbidden] = true
			term := &terminal{}
			code := a.run(t, term, strings.Fields(tc.line)...)
			got := term.err.String()
			if line, rest, _ := strings.Cut(got, "\n"); rest != "" || !strings.HasPrefix(line, tc.want) || code != exitFailed {
				t.Errorf("%s\nexit status %d, -want, +got:\n%s", tc.reason, code, cmp.Diff(tc.want+"\n", got))
			}
		})
	}
}

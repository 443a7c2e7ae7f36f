package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Each line starts with the same objects.
func TestWrites(t *testing.T) {
	for file, lines := range map[string][]string{
		"resolve.golden": {
			"resolve bucket/unknown -n team-a --external-name=b-1234",
			"resolve bucket unknown -n team-a --not-created --yes",
			"resolve bucket/unknown -n team-a --external-name=b-1234 --dry-run=server",
			"resolve bucket/unknown -n team-a --external-name=b-1234 --dry-run=client",
			"resolve bucket/recorded -n team-a --external-name=b-1234",
			"resolve bucket/copied -n team-a --not-created",
			"resolve bucket/copied-named -n team-a --not-created",
			"resolve bucket/restored -n team-a --not-created",
			"resolve bucket/failed -n team-a --not-created",
			"resolve bucket/failed -n team-a --external-name=b-1234 --dry-run=client",
			"resolve bucket/failed-unrecorded -n team-a --not-created",
			"resolve bucket/unknown -n team-a --external-name=b-4711",
			"resolve bucket/running -n team-a --not-created",
			"resolve bucket/refused -n team-a --external-name=b-7 --yes",
			"resolve bucket/refused -n team-a --not-created",
			"resolve bucket/awaited -n team-a --not-created",
			"resolve bucket/awaited -n team-a --external-name=b-1234 --dry-run=client",
			"resolve bucket/creating -n team-a --not-created",
			"resolve bucket/creating -n team-a --external-name=b-1234 --dry-run=client",
			"resolve bucket/replaced -n team-a --not-created",
			"why bucket/killed -n team-a",
			"resolve bucket/killed -n team-a --not-created",
			"resolve bucket/killed -n team-a --external-name=b-1234",
			"why bucket/resumable -n team-a",
			"resolve bucket/resumable -n team-a --not-created",
			"resolve bucket/resumable -n team-a --external-name=b-1234",
			"why bucket/unresolved -n team-a",
			"resolve bucket/unresolved -n team-a --external-name=b-1234",
			"why bucket/unresolved-asked -n team-a",
			"resolve bucket/unresolved-asked -n team-a --external-name=b-1234",
			"resolve bucket/named -n team-b --external-name=b-1234",
			"resolve configmap/plain -n team-a --not-created",
			"resolve bucket/unknown -n team-a",
			"resolve bucket/deleted -n team-a --external-name=b-1234 --dry-run=client",
			"resolve bucket/deleted -n team-a --not-created --dry-run=client",
			"resolve bucket/unknown -n team-a --not-created --external-name=b-1234",
			"resolve bucket/unknown -n team-a --external-name=",
			"resolve bucket/unknown -n team-a --not-created --dry-run=maybe",
		},
		"drop-finalizer.golden": {
			"drop-finalizer bucket/held -n team-a backup.example.org/hold",
			"drop-finalizer bucket held -n team-a backup.example.org/hold --dry-run=server",
			"drop-finalizer bucket/last -n team-a backup.example.org/hold",
			"drop-finalizer bucket/last -n team-a backup.example.org/hold --dry-run=server",
			"drop-finalizer bucket/held -n team-a finalizer.managedresource.crossplane.io",
			"drop-finalizer bucket/held -n team-a foregroundDeletion",
			"drop-finalizer bucket/referred -n team-a kubernetes.crossplane.io/referred-by-object-u1",
			"drop-finalizer bucket/held -n team-a nothing",
			"drop-finalizer bucket/alive -n team-a backup.example.org/hold",
			"drop-finalizer providerconfigusage/needed -n team-a graft.crossplane.io/in-use",
			"drop-finalizer providerconfigusage/left -n team-a graft.crossplane.io/in-use",
		},
		"orphan.golden": {
			"orphan bucket/photos -n team-a",
			"orphan bucket/photos -n team-a --dry-run=server",
			"orphan bucket/photos -n team-a --dry-run=client",
			"orphan bucket/held -n team-a --yes",
			"orphan bucket/referred -n team-a --yes",
			"orphan bucket/deleted -n team-a",
			"orphan database/legacy",
			"orphan database/composed",
			"orphan xapp/shop",
			"orphan xapp/claimed",
			"orphan xapp/collected --yes",
			"orphan xapp/fresh",
			"orphan database/used",
			"orphan bucket/running -n team-a",
			"orphan bucket/creating -n team-a",
			"orphan bucket/replaced -n team-a --dry-run=client",
			"orphan bucket/killed -n team-a",
			"orphan bucket/resumable -n team-a",
			"orphan bucket/unresolved -n team-a",
			"orphan bucket/last -n team-a",
			"orphan bucket/requested -n team-a --dry-run=client",
			"orphan configmap/plain -n team-a",
		},
		"reconcile.golden": {
			"reconcile bucket/unknown -n team-a",
			"reconcile bucket unknown running -n team-a",
			"reconcile bucket/unknown bucket/alive bucket/none -n team-a",
			"reconcile bucket/alive -n team-a",
			"reconcile bucket/alive -n team-a --unpause --yes",
			"reconcile bucket/alive -n team-a --unpause --dry-run=server",
			"reconcile bucket/halted -n team-a --unpause --yes",
			"reconcile bucket/retried -n team-a",
			"reconcile xapp/halted --unpause --yes",
			"reconcile xapp/fresh",
			"reconcile bucket/unknown -n team-a --dry-run=server",
			"reconcile bucket/unknown -n team-a --dry-run=client",
		},
	} {
		var got strings.Builder
		for _, line := range lines {
			got.WriteString(newAPI(t, "writes.yaml").result(t, line))
		}
		golden(t, file, got.String())
	}
}

func TestWrites_Confirmation(t *testing.T) {
	line := "drop-finalizer bucket/held -n team-a backup.example.org/hold"
	for name, tc := range map[string]struct {
		reason string
		term   terminal
		want   string
	}{
		"No": {
			reason: "Without a yes nothing is written.",
			term:   terminal{types: "n\n"},
			want:   "error: you did not confirm: nothing was written\n",
		},
		"EndOfInput": {
			reason: "The end of the input is no yes.",
			want:   "error: you did not confirm: nothing was written\n",
		},
		"NoTerminal": {
			reason: "Nothing is asked where the standard input is no terminal.",
			term:   terminal{isNone: true, types: "y\n"},
			want: "error: the standard input is no terminal to ask on: pass --yes, after a look with " +
				"--dry-run=server\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "writes.yaml")
			code := a.run(t, &tc.term, strings.Fields(line)...)
			if got := tc.term.err.String(); got != tc.want || code != exitFailed || len(a.writes) > 0 {
				t.Errorf("%s\nexit status %d, requests %v, -want, +got:\n%s", tc.reason, code, a.writes,
					gocmp.Diff(tc.want, got))
			}
		})
	}
}

// A dry run tries each request: a user who may not make one of them would end halfway.
func TestOrphan_DryRun(t *testing.T) {
	const kept = "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: photos, namespace: team-a, " +
		`annotations: {crossplane.io/paused: "true"}, finalizers: [finalizer.managedresource.crossplane.io]}, ` +
		"spec: {managementPolicies: [Observe]}}"
	for _, verb := range []string{"patch", "delete", "put"} {
		for _, object := range []string{"", kept} {
			a, term := newAPI(t, "writes.yaml"), &terminal{}
			if object != "" {
				a.add(t, object)
			}
			a.forbidden[verb+" buckets"] = true
			code := a.run(t, term, strings.Fields("orphan bucket/photos -n team-a --dry-run=server")...)
			if got := term.err.String(); code != exitFailed || !strings.Contains(got, `cannot `+verb+` resource "buckets"`) {
				t.Errorf("%s is forbidden: want exit status %d and that, got %d: %s", verb, exitFailed, code, got)
			}
		}
	}
}

// Times of objects are compared with the API server's clock.
func TestClock(t *testing.T) {
	const refused = "error: the create of Bucket/creating in team-a may be in progress until 2026-01-02T05:04:20Z: wait\n"
	for name, tc := range map[string]struct {
		reason string
		date   time.Time
		ahead  time.Duration
		want   string
	}{
		"Ahead": {
			reason: "A clock that is ahead should not lift a refusal.",
			date:   now, ahead: 5 * time.Minute, want: refused,
		},
		"Behind": {
			reason: "A clock that is behind should not keep one.",
			date:   now.Add(5 * time.Minute), ahead: -time.Hour, want: "",
		},
		"NoDate": {
			reason: "The own clock decides if the API server does not say the time.",
			ahead:  5 * time.Minute, want: "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t, "writes.yaml"), &terminal{ahead: tc.ahead}
			a.date = tc.date
			a.run(t, term, strings.Fields("resolve bucket/creating -n team-a --not-created --yes")...)
			if diff := gocmp.Diff(tc.want, term.err.String()); diff != "" {
				t.Errorf("%s -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A write fails if the object is not the one that was shown, or no longer exists.
func TestWrites_Changed(t *testing.T) {
	changes := map[string]func(a *api, o *unstructured.Unstructured){
		"has changed since it was read: nothing more was written, run the command " +
			"again": func(_ *api, o *unstructured.Unstructured) {
			o.SetResourceVersion("99")
		},
		"no longer exists: nothing was written": func(a *api, o *unstructured.Unstructured) { a.remove(o) },
	}
	for _, line := range []string{
		"drop-finalizer bucket/held -n team-a backup.example.org/hold --yes",
		"drop-finalizer bucket/last -n team-a backup.example.org/hold --yes",
		"resolve bucket/unknown -n team-a --not-created --yes",
		"reconcile bucket/alive -n team-a --unpause --yes",
		"orphan bucket/photos -n team-a --yes",
		"orphan bucket/photos -n team-a --dry-run=server",
	} {
		for end, change := range changes {
			a := newAPI(t, "writes.yaml")
			a.before = func(o *unstructured.Unstructured) { change(a, o) }
			term := &terminal{}
			code := a.run(t, term, strings.Fields(line)...)
			name := strings.Fields(strings.ReplaceAll(line, "bucket/", "Bucket/"))[1]
			want := "error: " + name + " in team-a " + end + "\n"
			if got := term.err.String(); got != want || code != exitFailed {
				t.Errorf("%s: exit status %d, -want, +got:\n%s", line, code, gocmp.Diff(want, got))
			}
		}
	}
}

// An object of the same name is another object.
func TestWrites_Replaced(t *testing.T) {
	a := newAPI(t, "writes.yaml")
	a.before = func(o *unstructured.Unstructured) { o.SetUID("another") }
	term := &terminal{}
	code := a.run(t, term, strings.Fields("orphan bucket/photos -n team-a --yes")...)
	if got := term.err.String(); !strings.Contains(got, "has changed since it was read") || code != exitFailed {
		t.Errorf("exit status %d: %s", code, got)
	}
}

// The API server deletes an object when its last finalizer is removed. Another object may have the name by then.
func TestLastFinalizer_Replaced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		line   string
		object string
		code   int
		want   string
	}{
		"DropFinalizer": {
			reason: "The command should fail as it does for an object that has changed.",
			line:   "drop-finalizer bucket/last -n team-a backup.example.org/hold --yes",
			object: "last",
			code:   exitFailed,
			want: "error: Bucket/last in team-a has changed since it was read: nothing more was written, " +
				"run the command again\n",
		},
		"Orphan": {
			reason: "The command should succeed: the object that was shown no longer exists.",
			line:   "orphan bucket/photos -n team-a --yes",
			object: "photos",
			code:   exitDone,
			want:   "Bucket/photos in team-a is removed.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "writes.yaml")
			replaced := 0
			a.emptied = func() {
				replaced++
				a.add(t, "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {namespace: team-a, name: "+
					tc.object+", uid: another, finalizers: [finalizer.managedresource.crossplane.io]}}")
			}
			term := &terminal{}
			code := a.run(t, term, strings.Fields(tc.line)...)
			got := term.out.String() + term.err.String()
			if !strings.HasSuffix(got, tc.want) || code != tc.code || replaced != 1 {
				t.Errorf("%s\nwant exit status %d and %q, got %d, replaced %d times:\n%s", tc.reason, tc.code, tc.want,
					code, replaced, got)
			}
			gv := schema.GroupVersion{Group: "s3.cloud.example.org", Version: "v1"}
			if o := a.objects[key(gv, "buckets", "team-a", tc.object)]; o == nil || o.GetUID() != "another" {
				t.Errorf("The other object of the same name should still exist, got: %v", o)
			}
		})
	}
}

// A reconcile is requested again after a conflict: it undoes no other client's write.
func TestReconcile_Conflict(t *testing.T) {
	a := newAPI(t, "writes.yaml")
	left := 2
	a.before = func(o *unstructured.Unstructured) {
		if left > 0 {
			left--
			o.SetResourceVersion(o.GetResourceVersion() + "1")
		}
	}
	term := &terminal{}
	if code := a.run(
		t,
		term,
		strings.Fields("reconcile bucket/unknown -n team-a")...); code != exitDone ||
		len(a.writes) != 3 {
		t.Errorf("want three requests, got %d, exit status %d: %s", len(a.writes), code, term.err.String())
	}
	a = newAPI(t, "writes.yaml")
	a.before = func(o *unstructured.Unstructured) { o.SetResourceVersion(o.GetResourceVersion() + "1") }
	if code := a.run(
		t,
		term,
		strings.Fields("reconcile bucket/unknown -n team-a")...); code != exitFailed ||
		len(a.writes) != maxConflicts {
		t.Errorf("want %d requests, got %d, exit status %d", maxConflicts, len(a.writes), code)
	}
}

// An external name is stored only if no other managed resource is found to have it, or if the user may not look.
func TestResolve_NotListed(t *testing.T) {
	const (
		unchecked = "You may not list the other managed resources of the kind: make sure that none has this external name.\n"
		refused   = "error: cannot check whether another managed resource has external name \"b-9\": "
		all       = "/apis/s3.cloud.example.org/v1/buckets"
		one       = "/apis/s3.cloud.example.org/v1/namespaces/team-a/buckets"
	)
	forbidden := kerrors.NewForbidden(schema.GroupResource{Resource: "buckets"}, "", errors.New("no"))
	timeout := kerrors.NewTimeoutError("etcd is slow", 0)
	named := "resolve bucket/unknown -n team-a --external-name=b-9"
	for name, tc := range map[string]struct {
		reason string
		line   string
		lists  map[string]error
		want   string
		code   int
	}{
		"Forbidden": {
			reason: "A user who may list one namespace should read that the others were not checked.",
			line:   named, lists: map[string]error{all: forbidden},
			want: unchecked,
		},
		"ForbiddenInNamespace": {
			reason: "A user who may list nothing should read that nothing was checked.",
			line:   named, lists: map[string]error{all: forbidden, one: forbidden},
			want: unchecked,
		},
		"Failed": {
			reason: "An error of the API server says nothing about the user's rights, so that the name is not known to be free.",
			line:   named, lists: map[string]error{all: timeout},
			want: refused,
			code: exitFailed,
		},
		"FailedInNamespace": {
			reason: "The namespace that the user may list should be checked.",
			line:   named, lists: map[string]error{all: forbidden, one: timeout},
			want: refused,
			code: exitFailed,
		},
		"NotCreated": {
			reason: "We should not advise to remove an external name that only could not be checked.",
			line:   "resolve bucket/copied-named -n team-a --not-created", lists: map[string]error{all: timeout},
			want: "error: cannot check whether another managed resource has external name \"b-4711\": ",
			code: exitFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t, "writes.yaml"), &terminal{}
			a.fails = func(r *http.Request) error { return tc.lists[r.URL.Path] }
			code := a.run(t, term, strings.Fields(tc.line+" --yes")...)
			if got := term.out.String() + term.err.String(); !strings.Contains(got, tc.want) || code != tc.code {
				t.Errorf("%s\nwant exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
			if stored := len(a.writes) > 0; stored != (tc.code == exitDone) {
				t.Errorf("%s\ngot the requests %q", tc.reason, a.writes)
			}
		})
	}
}

// An error of the API server, from a webhook for example, can't act on the terminal.
func TestError_ControlCharacters(t *testing.T) {
	a := newAPI(t, "writes.yaml")
	a.denied = "no\x1b[2J way"
	term := &terminal{}
	code := a.run(t, term, strings.Fields("drop-finalizer bucket/held -n team-a backup.example.org/hold --yes")...)
	if got, want := term.err.String(), "error: no [2J way\n"; got != want || code != exitFailed {
		t.Errorf("exit status %d, -want, +got:\n%s", code, gocmp.Diff(want, got))
	}
}

// A space around an external name is a slip.
func TestResolve_Blank(t *testing.T) {
	a := newAPI(t, "writes.yaml")
	term := &terminal{}
	code := a.run(t, term, "resolve", "bucket/unknown", "-n", "team-a", "--external-name= b-1", "--yes")
	if got, want := term.err.String(), "error: \" b-1\" is not an external name\n"; got != want || code != exitFailed {
		t.Errorf("exit status %d, -want, +got:\n%s", code, gocmp.Diff(want, got))
	}
}

// The command that pauses the composite works on a pause that was ended with a value.
func TestOrphan_PausedFalse(t *testing.T) {
	a := newAPI(t)
	a.add(t, `{apiVersion: example.org/v1, kind: XApp, metadata: {name: shop, annotations: {crossplane.io/paused: "false"}}}`)
	a.add(t, "{apiVersion: cloud.example.org/v1, kind: Database, metadata: {name: a, "+
		"finalizers: [finalizer.managedresource.crossplane.io], ownerReferences: "+
		"[{apiVersion: example.org/v1, kind: XApp, name: shop, uid: uid-of-xapp-shop, controller: true}]}}")
	got := a.result(t, "orphan database/a")
	if want := "kubectl annotate xapps.example.org/shop --overwrite crossplane.io/paused=true\n"; !strings.Contains(got, want) {
		t.Errorf("want %q, got:\n%s", want, got)
	}
}

// Without a group, a kind of the core group is preferred, as in kubectl.
func TestKindOfCoreGroup(t *testing.T) {
	a := newAPI(t)
	a.kinds[schema.GroupVersion{Group: "a.example.org", Version: "v1"}] = a.kinds[schema.GroupVersion{Version: "v1"}]
	a.add(t, "{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}")
	if got, want := a.result(t, "why namespace/team-a"), "Namespace/team-a  Ready\n"; !strings.Contains(got, want) {
		t.Errorf("want %q, got:\n%s", want, got)
	}
}

// A group that can't be described may have a kind of the same name, and a write must not act on the other kind's object.
func TestWrites_UndescribedGroup(t *testing.T) {
	const (
		refused = "error: the API server cannot describe the group s3.cloud.example.org, which may have the kind \"policy\", " +
			"too: name the kind with its group, as KIND.GROUP/NAME\n"
		cloud = "s3.cloud.example.org/v1"
	)
	for name, tc := range map[string]struct {
		reason     string
		line       string
		undescribe string
		want       string // At the end of the output.
		code       int
	}{
		"Orphan": {
			reason: "A kind without its group should be refused.",
			line:   "orphan policy/x --yes", undescribe: cloud, want: refused, code: exitFailed,
		},
		"TwoArguments": {
			reason: "A kind without its group should be refused if the name is an argument of its own.",
			line:   "orphan policy x --yes", undescribe: cloud, want: refused, code: exitFailed,
		},
		"DottedName": {
			reason: "A dot in the name of the object is not a group.",
			line:   "orphan policy/x.y --yes", undescribe: cloud, want: refused, code: exitFailed,
		},
		"Resolve": {
			reason: "resolve should refuse it.",
			line:   "resolve policy/x --not-created --yes", undescribe: cloud, want: refused, code: exitFailed,
		},
		"DropFinalizer": {
			reason: "drop-finalizer should refuse it.",
			line:   "drop-finalizer policy/x backup.example.org/hold --yes", undescribe: cloud, want: refused, code: exitFailed,
		},
		"Reconcile": {
			reason: "reconcile should refuse it.",
			line:   "reconcile policy/x", undescribe: cloud, want: refused, code: exitFailed,
		},
		"WithGroup": {
			reason: "A kind with its group is the kind that the user means.",
			line:   "orphan policies.s3.other.example.org/x --yes", undescribe: cloud,
			want: "Policy/x in default is removed.\n",
		},
		"OwnGroup": {
			reason: "Another version of the same group can't have another kind of the name.",
			line:   "orphan database/d --yes", undescribe: "cloud.example.org/v2",
			want: "Database/d is removed.\n",
		},
		"KubernetesGroup": {
			reason: "A metrics server that does not run should not be in the way: its group has no object to repair.",
			line:   "orphan database/d --yes", undescribe: "metrics.k8s.io/v1beta1",
			want: "Database/d is removed.\n",
		},
		"CoreGroup": {
			reason: "A kind of the core group is preferred to the kinds of all other groups.",
			line:   "drop-finalizer configmap/c backup.example.org/hold --yes", undescribe: cloud,
			want: "ConfigMap/c in default is removed.\n",
		},
		"Read": {
			reason: "A command that only reads should still explain the object that it finds.",
			line:   "why policy/x", undescribe: cloud, code: exitFound,
			want: "finalizer.managedresource.crossplane.io (of Crossplane)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t), &terminal{}
			const held = "metadata: {finalizers: [finalizer.managedresource.crossplane.io], namespace: default, name: "
			a.add(t, "{apiVersion: s3.other.example.org/v1, kind: Policy, "+held+"x}}")
			a.add(t, "{apiVersion: s3.other.example.org/v1, kind: Policy, "+held+"x.y}}")
			a.add(t, "{apiVersion: cloud.example.org/v1, kind: Database, metadata: {name: d, "+
				"finalizers: [finalizer.managedresource.crossplane.io]}}")
			a.add(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: c, "+
				`deletionTimestamp: "2026-01-02T03:00:00Z", finalizers: [backup.example.org/hold]}}`)
			gv, err := schema.ParseGroupVersion(tc.undescribe)
			if err != nil {
				t.Fatal(err)
			}
			a.kinds[gv] = nil
			a.forbidden["describe "+tc.undescribe] = true
			code := a.run(t, term, append(strings.Fields(tc.line), "-n", "default")...)
			got := term.out.String()
			if tc.code == exitFailed {
				got = term.err.String()
			}
			if !strings.HasSuffix(got, tc.want) || code != tc.code {
				t.Errorf("%s\nwant exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
		})
	}
}

// An object whose kind is not served does not exist, unless the API server can't describe the kind's group.
func TestKindGone(t *testing.T) {
	const (
		drop  = "drop-finalizer providerconfigusage.cloud.example.org/u -n team-a graft.crossplane.io/in-use --yes"
		whole = "resourceRef: {apiVersion: gone.example.org/v1, kind: Queue, name: jobs}"
	)
	gone := schema.GroupVersion{Group: "gone.example.org", Version: "v1"}
	for name, tc := range map[string]struct {
		reason     string
		line       string
		reference  string
		undescribe bool
		want       string
		code       int
	}{
		"NoKind": {
			reason: "No managed resource needs the usage if its kind is gone.",
			line:   drop, reference: whole, want: "ProviderConfigUsage/u in team-a is removed.\n",
		},
		"Undescribed": {
			reason: "A kind that could not be discovered may have objects.",
			line:   drop, reference: whole, undescribe: true, code: exitFailed,
			want: "error: cannot find out whether the managed resource of ProviderConfigUsage/u in team-a still exists, " +
				"which needs this finalizer: the API server cannot describe the group gone.example.org\n",
		},
		"NoReference": {
			reason: "A reference that is not whole names no managed resource.",
			line:   drop, reference: "resourceRef: {kind: Queue, name: jobs}", code: exitFailed,
			want: "error: cannot find out whether the managed resource of ProviderConfigUsage/u in team-a still exists, " +
				"which needs this finalizer: the API server has no such kind\n",
		},
		"Composite": {
			reason: "A composite whose kind is gone creates nothing again.",
			line:   "orphan database/composed --yes", want: "Database/composed is removed.\n",
		},
		"CompositeUndescribed": {
			reason: "A composite whose kind could not be discovered may create the object again.",
			line:   "orphan database.cloud.example.org/composed --dry-run=client", undescribe: true,
			want: "  Stack/s could not be read: if it still exists it creates the object again.\n",
		},
		"Composed": {
			reason: "A composed resource whose kind is gone no longer exists if the definition was deleted.",
			line:   "why xapp/stack", code: exitFound,
			want: "Queue/jobs  Unknown\n     The API server has no such kind. If its CRD was deleted, so was the object.\n",
		},
		"ComposedUndescribed": {
			reason: "A composed resource whose kind could not be discovered may exist.",
			line:   "why xapp/stack", undescribe: true, code: exitFound,
			want: "Queue/jobs  Unknown\n     It cannot be read: the API server cannot describe the group gone.example.org\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t), &terminal{}
			if tc.undescribe {
				a.kinds[gone] = nil
				a.forbidden["describe "+gone.String()] = true
			}
			a.add(t, "apiVersion: cloud.example.org/v1\nkind: ProviderConfigUsage\nmetadata: {name: u, namespace: team-a, "+
				`deletionTimestamp: "2026-01-02T03:00:00Z", finalizers: [graft.crossplane.io/in-use]}`+"\n"+tc.reference)
			a.add(t, "{apiVersion: cloud.example.org/v1, kind: Database, metadata: {name: composed, "+
				"finalizers: [finalizer.managedresource.crossplane.io], ownerReferences: "+
				"[{apiVersion: gone.example.org/v1, kind: Stack, name: s, uid: u, controller: true}]}}")
			a.add(t, "{apiVersion: example.org/v1, kind: XApp, metadata: {name: stack}, spec: "+
				"{resourceRefs: [{apiVersion: gone.example.org/v1, kind: Queue, name: jobs}]}}")
			code := a.run(t, term, strings.Fields(tc.line)...)
			if got := term.out.String() + term.err.String(); !strings.Contains(got, tc.want) || code != tc.code {
				t.Errorf("%s\nwant exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
		})
	}
}

// A create was refused because another's external resource had its name, and a later create was interrupted.
func TestResolve_NotCreatedKeepsRefusal(t *testing.T) {
	a := newAPI(t)
	a.add(t, `apiVersion: s3.cloud.example.org/v1
kind: Bucket
metadata:
  name: a
  namespace: team-a
  annotations:
    crossplane.io/external-name: b-9
    crossplane.io/external-create-pending: "2026-01-02T03:00:00Z"
    graft.crossplane.io/create-refused: b-9
`)
	got := a.result(t, "resolve bucket/a -n team-a --not-created --yes")
	if !strings.Contains(got, `"crossplane.io/external-create-pending":null`) || strings.Contains(got, "create-refused") {
		t.Errorf("The external resource of that name should still be another's, got:\n%s", got)
	}
}

package main

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A user writes the references of a composite and of a claim: only objects that these own may be in their way.
func TestWhy_Owned(t *testing.T) {
	const (
		composite = "{apiVersion: example.org/v1, kind: XApp, metadata: {name: mine}, spec: {resourceRefs: " +
			"[{apiVersion: s3.cloud.example.org/v1, kind: Bucket, name: b, namespace: team-b}]}, " +
			`status: {conditions: [{type: Ready, status: "False", reason: Creating}]}}`
		claim = "{apiVersion: example.org/v1, kind: App, metadata: {name: mine, namespace: team-a}, spec: " +
			"{resourceRef: {apiVersion: example.org/v1, kind: XApp, name: x}}, " +
			`status: {conditions: [{type: Ready, status: "False", reason: Waiting}]}}`
		namespaced = "{apiVersion: example.org/v1, kind: Stack, metadata: {name: mine, namespace: team-a}, spec: " +
			"{crossplane: {resourceRefs: [{apiVersion: s3.cloud.example.org/v1, kind: Bucket, name: b, namespace: team-b}]}}, " +
			`status: {conditions: [{type: Ready, status: "False", reason: Creating}]}}`
		secret = `status: {conditions: [{type: Synced, status: "False", reason: ReconcileError, message: hunter2}]}}`
	)
	bucket := func(namespace, owner string) string {
		return "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: b, namespace: " + namespace +
			", ownerReferences: [{apiVersion: example.org/v1, kind: XApp, name: x, uid: " + owner + ", controller: true}]}, " +
			secret
	}
	bound := func(to string) string {
		return "{apiVersion: example.org/v1, kind: XApp, metadata: {name: x}, spec: {claimRef: " + to + "}, " + secret
	}
	for name, tc := range map[string]struct {
		reason  string
		objects []string
		line    string
		want    string
		not     string
	}{
		"Composed": {
			reason:  "A composed resource that the composite controls may be in its way.",
			objects: []string{composite, bucket("team-b", "uid-of-xapp-mine")},
			line:    "why xapp/mine", want: "hunter2", not: "does not control",
		},
		"ComposedByAnother": {
			reason:  "The resource of another composite is not in the way.",
			objects: []string{composite, bucket("team-b", "uid-of-xapp-theirs")},
			line:    "why xapp/mine", want: "note: It refers to Bucket/b in team-b, which it does not control.", not: "hunter2",
		},
		"AnotherNamespace": {
			reason:  "A namespaced composite has its resources in its own namespace.",
			objects: []string{namespaced, bucket("team-b", "uid-of-stack-mine")},
			line:    "why stack/mine -n team-a", want: "Bucket/b in team-a  Unknown", not: "hunter2",
		},
		"Bound": {
			reason:  "The composite that is bound to a claim may be in its way.",
			objects: []string{claim, bound("{apiVersion: example.org/v1, kind: App, namespace: team-a, name: mine}")},
			line:    "why app/mine -n team-a", want: "hunter2", not: "does not control",
		},
		"BoundToAnother": {
			reason:  "The composite of another claim is not in the way.",
			objects: []string{claim, bound("{apiVersion: example.org/v1, kind: App, namespace: team-b, name: mine}")},
			line:    "why app/mine -n team-a", want: "note: It refers to XApp/x, which it does not control.", not: "hunter2",
		},
		"BoundToEarlier": {
			reason: "The composite of an earlier claim of that name is not in the way.",
			objects: []string{
				claim, bound("{apiVersion: example.org/v1, kind: App, namespace: team-a, name: mine, uid: earlier}"),
			},
			line: "why app/mine -n team-a", want: "note: It refers to XApp/x, which it does not control.", not: "hunter2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			gv := schema.GroupVersion{Group: "example.org", Version: "v1"}
			a.kinds[gv] = append(a.kinds[gv], resourceOf("Stack", "stacks", true, "composite"))
			for _, o := range tc.objects {
				a.add(t, o)
			}
			got := a.result(t, tc.line)
			if !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
				t.Errorf("%s want %q and not %q, got:\n%s", tc.reason, tc.want, tc.not, got)
			}
		})
	}
}

// Each object is read once, in however many ways it is reached.
func TestWhy_ReadsOnce(t *testing.T) {
	const levels = 12
	name := func(level, n int) string { return fmt.Sprintf("x-%d-%d", level, n) }
	a := newAPI(t)
	for level := range levels {
		for n := range 2 {
			spec, owner := "", ""
			if level+1 < levels {
				for m := range 2 {
					spec += "{apiVersion: example.org/v1, kind: XApp, name: " + name(level+1, m) + "},"
				}
			}
			if level > 0 {
				owner = ", ownerReferences: [{apiVersion: example.org/v1, kind: XApp, name: o, uid: uid-of-xapp-" +
					name(level-1, 0) + ", controller: true}]"
			}
			a.add(t, "{apiVersion: example.org/v1, kind: XApp, metadata: {name: "+name(level, n)+owner+"}, "+
				"spec: {resourceRefs: ["+spec+"]}}")
		}
	}
	reads := map[string]int{}
	a.onRequest = func(r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/example.org/v1/xapps/") {
			reads[r.URL.Path]++
		}
	}
	got := a.result(t, "why xapp/"+name(0, 0))
	want := map[string]int{"/apis/example.org/v1/xapps/" + name(0, 0): 1}
	for level := range levels - 1 {
		for n := range 2 {
			want["/apis/example.org/v1/xapps/"+name(level+1, n)] = 1
		}
	}
	if diff := cmp.Diff(want, maps.Clone(reads)); diff != "" || !strings.Contains(got, name(levels-1, 1)) {
		t.Errorf("reads: -want, +got:\n%s\n%s", diff, got)
	}
}

// Objects that own each other end the tree.
func TestWhy_Circular(t *testing.T) {
	a := newAPI(t)
	for name, owner := range map[string]string{"a": "b", "b": "a"} {
		a.add(t, "{apiVersion: example.org/v1, kind: XApp, metadata: {name: "+name+", ownerReferences: [{apiVersion: "+
			"example.org/v1, kind: XApp, name: "+owner+", uid: uid-of-xapp-"+owner+", controller: true}]}, "+
			"spec: {resourceRefs: [{apiVersion: example.org/v1, kind: XApp, name: "+owner+"}]}}")
	}
	got := a.result(t, "why xapp/a")
	if strings.Count(got, "XApp/") != 3 || !strings.Contains(got, "note: It is shown above") {
		t.Errorf("want a, b, and a once more with a note, got:\n%s", got)
	}
}

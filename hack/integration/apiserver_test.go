//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// The seams rely on how an API server answers. This is how it does.
func TestAPIServer(t *testing.T) {
	body := func(v any) client.Patch {
		data, err := json.Marshal(v)
		must(t, "Marshal()", err)

		return client.RawPatch(types.MergePatchType, data)
	}

	// metadata of a merge patch with preconditions.
	guard := func(uid types.UID, version string) map[string]any {
		return map[string]any{"uid": uid, "resourceVersion": version}
	}

	// outdated returns the object, and its resource version before the last
	// change.
	outdated := func(t *testing.T, s server, b *sample.Bucket) string {
		t.Helper()

		old := b.GetResourceVersion()
		s.annotate(t, "example.org/changed", "yes", b)

		return old
	}

	cases := map[string]struct {
		reason string
		// do returns what the API server answered to the request in question.
		do   func(t *testing.T, s server, b *sample.Bucket) error
		want int
	}{
		"MergePatchForAnotherUID": {
			reason: "An annotation meant for an object that is gone must not land on its successor.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				return s.Patch(t.Context(), b, body(map[string]any{"metadata": map[string]any{"uid": "another", "annotations": map[string]any{"a": "b"}}}))
			},
			want: http.StatusUnprocessableEntity,
		},
		"StatusMergePatchForAnotherUID": {
			reason: "The UID alone doesn't guard a patch of status: the API server drops metadata first. The resourceVersion does.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				return s.Status().Patch(t.Context(), b, body(map[string]any{"metadata": map[string]any{"uid": "another"}, "status": map[string]any{"observedGeneration": 7}}))
			},
			want: http.StatusOK,
		},
		"MergePatchWithStaleVersion": {
			reason: "A merge patch with an old resourceVersion must be a conflict.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				old := outdated(t, s, b)
				return s.Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), old), "spec": map[string]any{"forProvider": map[string]any{"size": 7}}}))
			},
			want: http.StatusConflict,
		},
		"StatusMergePatchWithStaleVersion": {
			reason: "Conditions are a list, which a merge patch replaces: another writer's new condition must be a conflict.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				old := outdated(t, s, b)
				return s.Status().Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), old), "status": map[string]any{"observedGeneration": 7}}))
			},
			want: http.StatusConflict,
		},
		"UpdateWithStaleVersion": {
			reason: "A whole object that is old must be a conflict.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				b.SetResourceVersion(outdated(t, s, b))
				return s.Update(t.Context(), b)
			},
			want: http.StatusConflict,
		},
		"StatusUpdateWithStaleVersion": {
			reason: "A status that is old must be a conflict, or dropping it would be wrong.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				b.SetResourceVersion(outdated(t, s, b))
				return s.Status().Update(t.Context(), b)
			},
			want: http.StatusConflict,
		},
		"UpdateOfAnotherUID": {
			reason: "A whole object must not replace its successor.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				b.SetUID("another")
				return s.Update(t.Context(), b)
			},
			want: http.StatusConflict,
		},
		"StatusUpdateOfAnotherUID": {
			reason: "Nor may a status.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				b.SetUID("another")
				return s.Status().Update(t.Context(), b)
			},
			want: http.StatusConflict,
		},
		"GuardedMergePatch": {
			reason: "A merge patch with the object's own UID and resourceVersion must be accepted.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				return s.Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), b.GetResourceVersion()), "spec": map[string]any{"forProvider": map[string]any{"size": 7}}}))
			},
			want: http.StatusOK,
		},
		"GuardedMergePatchAfterDeletion": {
			reason: "A merge patch of an object that is gone must not be found.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				s.remove(t, b)
				return s.Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), b.GetResourceVersion())}))
			},
			want: http.StatusNotFound,
		},
		"GuardedMergePatchOfSuccessor": {
			reason: "A merge patch of an object that another has replaced must be refused.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				s.remove(t, b)
				s.create(t, sample.NewBucket(b.GetNamespace(), b.GetName()))

				return s.Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), b.GetResourceVersion())}))
			},
			want: http.StatusConflict,
		},
		"GuardedStatusMergePatchOfSuccessor": {
			reason: "So must a merge patch of its status.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				s.remove(t, b)
				s.create(t, sample.NewBucket(b.GetNamespace(), b.GetName()))

				return s.Status().Patch(t.Context(), b, body(map[string]any{"metadata": guard(b.GetUID(), b.GetResourceVersion()), "status": map[string]any{"observedGeneration": 7}}))
			},
			want: http.StatusConflict,
		},
		"FinalizerAddedDuringDeletion": {
			reason: "No finalizer may be added to an object that is being deleted.",
			do: func(t *testing.T, s server, b *sample.Bucket) error {
				s.merge(t, `{"metadata":{"finalizers":["example.org/one"]}}`, b)
				s.remove(t, b)

				b = read(t, s, b)
				meta.AddFinalizer(b, "example.org/two")

				return s.Update(t.Context(), b)
			},
			want: http.StatusUnprocessableEntity,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)

			b := sample.NewBucket(namespace, "one")
			s.create(t, b)

			if got := code(tc.do(t, s, b)); got != tc.want {
				t.Errorf("\n%s\nwant %d, got %d", tc.reason, tc.want, got)
			}
		})
	}
}

// code of the API server's answer.
func code(err error) int {
	if err == nil {
		return http.StatusOK
	}

	var status kerrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}

	return int(status.Status().Code)
}

func TestAPIServerStatusPatchKeepsEverythingElse(t *testing.T) {
	s := newServer(t)

	b := sample.NewBucket(namespace, "one")
	b.SetAnnotations(map[string]string{"example.org/note": "theirs"})
	s.create(t, b)

	before := read(t, s, b)

	must(t, "Patch()", s.Status().Patch(t.Context(), b, client.RawPatch(types.MergePatchType, []byte(`{
		"metadata": {"annotations": {"example.org/note": "ours"}, "finalizers": ["example.org/ours"]},
		"spec": {"forProvider": {"size": 7}},
		"status": {"atProvider": {"id": "id-1"}}
	}`))))

	after := read(t, s, b)
	if after.Status.AtProvider.ID != "id-1" {
		t.Errorf("status was not written: %+v", after.Status)
	}

	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("spec: -before, +after:\n%s", diff)
	}

	before.SetResourceVersion(after.GetResourceVersion())
	before.SetManagedFields(after.GetManagedFields())

	if diff := cmp.Diff(before.ObjectMeta, after.ObjectMeta); diff != "" {
		t.Errorf("metadata: -before, +after:\n%s", diff)
	}
}

func TestAPIServerUpdateAnswersWithItsOwnStatus(t *testing.T) {
	s := newServer(t)

	b := sample.NewBucket(namespace, "one")
	s.create(t, b)

	b.SetConditions(xpv2.Available())
	meta.AddFinalizer(b, "example.org/one")
	must(t, "Update()", s.Update(t.Context(), b))

	if got := condition(b, xpv2.TypeReady); got != "-" {
		t.Errorf("Ready in memory after an update: the API server's answer has none, got %s", got)
	}
}

func TestAPIServerKeepsOtherAnnotations(t *testing.T) {
	s := newServer(t)

	b := sample.NewBucket(namespace, "one")
	b.SetAnnotations(map[string]string{"example.org/one": "1"})
	s.create(t, b)

	s.annotate(t, "example.org/two", "2", b)
	s.annotate(t, meta.AnnotationKeyExternalName, "id-1", b)

	want := map[string]string{"example.org/one": "1", "example.org/two": "2", meta.AnnotationKeyExternalName: "id-1"}
	if diff := cmp.Diff(want, read(t, s, b).GetAnnotations()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestAPIServerVersionStaysWhenNothingChanges(t *testing.T) {
	writes := map[string]func(t *testing.T, s server, b *sample.Bucket) error{
		"StatusUpdate": func(t *testing.T, s server, b *sample.Bucket) error { return s.Status().Update(t.Context(), b) },
		"Update":       func(t *testing.T, s server, b *sample.Bucket) error { return s.Update(t.Context(), b) },
		"MergePatch": func(t *testing.T, s server, b *sample.Bucket) error {
			return s.Patch(t.Context(), b, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"a":"b"}}}`, b.GetUID(), b.GetResourceVersion())))
		},
	}

	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)

			b := sample.NewBucket(namespace, "one")
			b.SetAnnotations(map[string]string{"a": "b"})
			s.create(t, b)
			b.SetConditions(xpv2.Available())
			must(t, "Update()", s.Status().Update(t.Context(), b))

			before := b.GetResourceVersion()
			must(t, name, write(t, s, b))

			if after := read(t, s, b).GetResourceVersion(); after != before || b.GetResourceVersion() != before {
				t.Errorf("resourceVersion: want %s, got %s, and %s in the answer", before, after, b.GetResourceVersion())
			}
		})
	}
}

func TestAPIServerVersionsCompare(t *testing.T) {
	s := newServer(t)

	// Two objects: versions of one kind have one order.
	one, two := sample.NewBucket(namespace, "one"), sample.NewBucket(namespace, "two")
	s.create(t, one)

	last := one.GetResourceVersion()

	for n, o := range []client.Object{two, one, two, one} {
		if n == 0 {
			must(t, "Create()", s.Create(t.Context(), o))
		} else {
			meta.AddAnnotations(o, map[string]string{"n": fmt.Sprint(n)})
			must(t, "Update()", s.Update(t.Context(), o))
		}

		c, err := resourceversion.CompareResourceVersion(last, o.GetResourceVersion())
		must(t, "CompareResourceVersion()", err)

		if c != -1 {
			t.Errorf("the version after %s must be newer, got %s", last, o.GetResourceVersion())
		}

		last = o.GetResourceVersion()
	}
}

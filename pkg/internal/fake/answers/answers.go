// Package answers holds how a kube-apiserver answers what Graft asks it, for custom
// resources and others. Tests ask the server in memory and a real one the same.
package answers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// An Answer is one of the API server, as far as Graft looks at it.
type Answer struct {
	Code  int
	Cause metav1.CauseType
	Field string
}

// Of returns the answer behind an error.
func Of(err error) Answer {
	if err == nil {
		return Answer{Code: http.StatusOK}
	}
	var status kerrors.APIStatus
	if !errors.As(err, &status) {
		return Answer{}
	}
	out := Answer{Code: int(status.Status().Code)}
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
		out.Cause, out.Field = d.Causes[0].Type, d.Causes[0].Field
	}
	return out
}

// A question is a request to the API server about an object, or its status.
type question struct {
	client.Client

	t      *testing.T
	o      client.Object
	status bool
}

func (q question) patch(format string, a ...any) error {
	p := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, a...))
	if q.status {
		return q.Status().Patch(q.t.Context(), q.o, p)
	}
	return q.Patch(q.t.Context(), q.o, p, client.FieldOwner("another"))
}

func (q question) jsonPatch(body string) error {
	return q.Patch(q.t.Context(), q.o, client.RawPatch(types.JSONPatchType, []byte(body)))
}

// guarded makes a patch for one version of one object.
func (q question) guarded(version string) error {
	return q.patch(
		`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"a":"b"}},"status":{"observedGeneration":7}}`,
		q.o.GetUID(), version,
	)
}

func (q question) update() error {
	if q.status {
		return q.Status().Update(q.t.Context(), q.o)
	}
	return q.Update(q.t.Context(), q.o)
}

func (q question) delete(opts ...client.DeleteOption) error {
	return q.Delete(q.t.Context(), q.o, opts...)
}

// outdated changes the object, and returns its resource version before.
func (q question) outdated() string {
	old := q.o.GetResourceVersion()
	q.status = false
	q.must("Patch()", q.patch(`{"metadata":{"annotations":{"example.org/changed":"yes"}}}`))
	return old
}

// unstructured returns the same question about the object without its Go type.
func (q question) unstructured() question {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.BucketKind))
	u.SetNamespace(q.o.GetNamespace())
	u.SetName(q.o.GetName())
	u.SetUID(q.o.GetUID())
	q.o = u
	return q
}

// replaced deletes the object, and creates another of the same name.
func (q question) replaced() question {
	successor, _ := q.o.DeepCopyObject().(client.Object)
	successor.SetResourceVersion("")
	q.must("Delete()", q.delete())
	q.must("Create()", q.Create(q.t.Context(), successor))
	return q
}

// held has two finalizers.
func (q question) held() question {
	q.must("Patch()", q.patch(`{"metadata":{"finalizers":["example.org/one","example.org/two"]}}`))
	return q
}

// unchanged returns an error if a request changes the object's version.
func (q question) unchanged(do func() error) error {
	before := q.o.GetResourceVersion()
	err := do()
	stored, _ := q.o.DeepCopyObject().(client.Object)
	q.must("Get()", q.Get(q.t.Context(), client.ObjectKeyFromObject(q.o), stored))
	if got := stored.GetResourceVersion(); got != before || err == nil && q.o.GetResourceVersion() != before {
		return fmt.Errorf(
			"resourceVersion: want %s, got %s, and %s in the answer", before, got, q.o.GetResourceVersion(),
		)
	}
	return err
}

func (q question) must(what string, err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatalf("%s: %v", what, err)
	}
}

// What a question is about.
const (
	bucket = 1 << iota
	bucketStatus
	configMap
	database

	object = bucket | configMap
	both   = object | bucketStatus
)

// A questionCase is a question, and its answer.
type questionCase struct {
	reason string
	of     int
	do     func(q question) error
	want   Answer
}

func questionCases() map[string]questionCase {
	ok, conflict := Answer{Code: http.StatusOK}, Answer{Code: http.StatusConflict}
	return map[string]questionCase{
		"PatchForAnotherUID": {
			reason: "An annotation meant for an object that no longer exists must not land on its successor.",
			of:     object,
			do:     func(q question) error { return q.patch(`{"metadata":{"uid":"another","annotations":{"a":"b"}}}`) },
			want: Answer{
				Code:  http.StatusUnprocessableEntity,
				Cause: metav1.CauseTypeFieldValueInvalid,
				Field: "metadata.uid",
			},
		},
		"StatusPatchForAnotherUID": {
			reason: "The UID alone doesn't guard a patch of status: the API server drops metadata first. The resourceVersion does.",
			of:     bucketStatus,
			do: func(q question) error {
				return q.patch(`{"metadata":{"uid":"another"},"status":{"observedGeneration":7}}`)
			},
			want: ok,
		},
		"StalePatch": {
			reason: "A patch with an old resourceVersion must be a conflict. Conditions are a list, which a merge patch replaces.",
			of:     both,
			do:     func(q question) error { return q.guarded(q.outdated()) },
			want:   conflict,
		},
		"StaleUnstructuredPatch": {
			reason: "So must one of an object whose kind the client doesn't know.",
			of:     bucket | bucketStatus,
			do:     func(q question) error { return q.unstructured().guarded(q.outdated()) },
			want:   conflict,
		},
		"StaleUpdate": {
			reason: "A whole object, or a status, that is old must be a conflict.",
			of:     both,
			do:     func(q question) error { q.o.SetResourceVersion(q.outdated()); return q.update() },
			want:   conflict,
		},
		"BlindUpdate": {
			reason: "A custom resource can't be updated without saying which version was read.",
			of:     bucket,
			do:     func(q question) error { q.o.SetResourceVersion(""); return q.update() },
			want: Answer{
				Code:  http.StatusUnprocessableEntity,
				Cause: metav1.CauseTypeFieldValueInvalid,
				Field: "metadata.resourceVersion",
			},
		},
		"UpdateOfAnotherUID": {
			reason: "They must not replace those of a successor.",
			of:     both,
			do:     func(q question) error { q.o.SetUID("another"); return q.update() },
			want:   conflict,
		},
		"UpdateOfPredecessor": {
			reason: "Nor must those of an object that another has replaced.",
			of:     both,
			do:     func(q question) error { return q.replaced().update() },
			want:   conflict,
		},
		"GuardedPatch": {
			reason: "A patch with the object's own UID and resourceVersion must be accepted.",
			of:     both,
			do:     func(q question) error { return q.guarded(q.o.GetResourceVersion()) },
			want:   ok,
		},
		"GuardedPatchOfSuccessor": {
			reason: "A patch of an object that another has replaced must be refused.",
			of:     both,
			do:     func(q question) error { return q.replaced().guarded(q.o.GetResourceVersion()) },
			want:   conflict,
		},
		"GuardedPatchAfterDeletion": {
			reason: "A patch of an object that no longer exists must not be found, and have no cause.",
			of:     both,
			do:     func(q question) error { return errors.Join(q.delete(), q.guarded(q.o.GetResourceVersion())) },
			want:   Answer{Code: http.StatusNotFound},
		},
		"StatusOfKindWithoutStatus": {
			reason: "Status of a kind that has no such subresource must not be found.",
			of:     configMap,
			do: func(q question) error {
				q.status = true
				if err := q.update(); Of(err).Code != http.StatusNotFound {
					return err
				}
				return q.patch(`{"status":{}}`)
			},
			want: Answer{Code: http.StatusNotFound},
		},
		"FinalizerAddedDuringDeletion": {
			reason: "No finalizer may be added to an object that is being deleted.",
			of:     object,
			do: func(q question) error {
				return errors.Join(
					q.held().delete(),
					q.patch(`{"metadata":{"finalizers":["example.org/one","example.org/two","example.org/late"]}}`),
				)
			},
			want: Answer{
				Code:  http.StatusUnprocessableEntity,
				Cause: metav1.CauseTypeForbidden,
				Field: "metadata.finalizers",
			},
		},
		"FailedTest": {
			reason: "A patch with a test that fails must be refused as a whole.",
			of:     object,
			do: func(q question) error {
				return q.held().unchanged(func() error {
					return q.jsonPatch(`[{"op":"replace","path":"/metadata/finalizers","value":[]},{"op":"test","path":"/metadata/uid","value":"another"}]`)
				})
			},
			want: Answer{Code: http.StatusUnprocessableEntity},
		},
		"DeleteAnotherUID": {
			reason: "Deletion of an object that has another UID must be a conflict.",
			of:     object,
			do:     func(q question) error { return q.delete(client.Preconditions{UID: ptr.To[types.UID]("another")}) },
			want:   conflict,
		},
		"DeleteAnotherVersion": {
			reason: "So must that of another version.",
			of:     object,
			do: func(q question) error {
				return q.delete(client.Preconditions{UID: ptr.To(q.o.GetUID()), ResourceVersion: ptr.To("99999999")})
			},
			want: conflict,
		},
		"RemoveLast": {
			reason: "The patch that removes the last finalizers must be answered with the object as it was last.",
			of:     object,
			do: func(q question) error {
				err := errors.Join(
					q.held().delete(), q.jsonPatch(`[{"op":"replace","path":"/metadata/finalizers","value":[]}]`),
				)
				if err == nil && (!meta.WasDeleted(q.o) || len(q.o.GetFinalizers()) > 0) {
					err = fmt.Errorf("want the object without finalizers, got %v", q.o)
				}
				return err
			},
			want: ok,
		},
		"PatchOfNothing": {
			reason: "A patch of what is there already must write nothing.",
			of:     object,
			do: func(q question) error {
				return q.unchanged(func() error {
					return q.patch(`{"metadata":{"uid":%q,"annotations":{"example.org/note":"theirs"}}}`, q.o.GetUID())
				})
			},
			want: ok,
		},
		"UpdateOfNothing": {
			reason: "So must an update. The first one of status writes an empty status.",
			of:     both,
			do:     func(q question) error { return errors.Join(q.update(), q.unchanged(q.update)) },
			want:   ok,
		},
		"SpecUpdate": {
			reason: "A new spec must be a new generation, and the answer have the status that is stored.",
			of:     bucket,
			do: func(q question) error {
				b, _ := q.o.(*v1alpha1.Bucket)
				b.Spec.ForProvider.Size, b.Status.AtProvider.ID = 7, "id-1"
				if err := q.update(); err != nil {
					return err
				}
				return isBucket(b, 2, 7, "")
			},
			want: ok,
		},
		"InANamespace": {
			reason: "The namespace of a request for a cluster-scoped object must be ignored.",
			of:     database,
			do: func(q question) error {
				for _, do := range []func() error{
					func() error { return q.Get(q.t.Context(), client.ObjectKeyFromObject(q.o), q.o) },
					q.update,
					func() error { return q.patch(`{"metadata":{"namespace":"default","annotations":{"a":"b"}}}`) },
					func() error { return q.Status().Update(q.t.Context(), q.o) },
					func() error { return q.delete() },
					func() error { q.o.SetResourceVersion(""); return q.Create(q.t.Context(), q.o) },
				} {
					q.o.SetNamespace("default")
					if err := do(); err != nil {
						return err
					}
				}
				d := &v1alpha1.Database{}
				if err := q.Get(q.t.Context(), client.ObjectKey{Name: "one"}, d); err != nil || d.GetNamespace() != "" {
					return fmt.Errorf("want an object without a namespace, got %v and error %w", d, err)
				}
				return nil
			},
			want: ok,
		},
		"StatusUpdate": {
			reason: "An update of status must change nothing else.",
			of:     bucketStatus,
			do: func(q question) error {
				b, _ := q.o.(*v1alpha1.Bucket)
				b.Spec.ForProvider.Size, b.Status.AtProvider.ID = 7, "id-1"
				if err := q.update(); err != nil {
					return err
				}
				return isBucket(b, 1, 1, "id-1")
			},
			want: ok,
		},
		"StatusPatch": {
			reason: "So must a patch.",
			of:     bucketStatus,
			do: func(q question) error {
				err := q.patch(`{"metadata":{"annotations":{"example.org/note":"ours"},"finalizers":["example.org/ours"]},"spec":{"forProvider":{"size":7}},"status":{"atProvider":{"id":"id-1"}}}`)
				if b, _ := q.o.(*v1alpha1.Bucket); err == nil && b.GetAnnotations()["example.org/note"] == "theirs" &&
					len(b.GetFinalizers()) == 0 {
					return isBucket(b, 1, 1, "id-1")
				}
				return fmt.Errorf("want metadata as it was, got %v and error %w", q.o, err)
			},
			want: ok,
		},
	}
}

func isBucket(b *v1alpha1.Bucket, generation, size int64, id string) error {
	if b.GetGeneration() == generation && b.Spec.ForProvider.Size == size && b.Status.AtProvider.ID == id {
		return nil
	}
	return fmt.Errorf("want generation %d, size %d and id %q, got %+v", generation, size, id, b)
}

// Erase an object, whatever holds it, when the test's own context has ended.
func Erase(t *testing.T, c client.Client, o client.Object) error {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	o, _ = o.DeepCopyObject().(client.Object)
	return errors.Join(
		client.IgnoreNotFound(c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))),
		client.IgnoreNotFound(c.Patch(
			ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		)))
}

// Run asks the servers that serve returns all questions, one each.
func Run(t *testing.T, serve func(t *testing.T) client.Client) {
	t.Helper()

	kinds := map[string]struct {
		of       int
		template client.Object
	}{
		"Bucket":    {bucket, v1alpha1.NewBucket("default", "one")},
		"Status":    {bucketStatus, v1alpha1.NewBucket("default", "one")},
		"Database":  {database, v1alpha1.NewDatabase("one")},
		"ConfigMap": {configMap, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}},
	}

	for name, tc := range questionCases() {
		for kind, k := range kinds {
			if tc.of&k.of == 0 {
				continue
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				o, _ := k.template.DeepCopyObject().(client.Object)
				o.SetAnnotations(map[string]string{"example.org/note": "theirs"})
				q := question{Client: serve(t), t: t, o: o, status: k.of == bucketStatus}
				q.must("Create()", q.Create(t.Context(), o))
				t.Cleanup(func() { q.must("cannot clean up", Erase(t, q, k.template)) })
				err := tc.do(q)
				if got := Of(err); got != tc.want {
					t.Errorf("\n%s\nwant %+v, got %+v: %v", tc.reason, tc.want, got, err)
				}
			})
		}
	}
}

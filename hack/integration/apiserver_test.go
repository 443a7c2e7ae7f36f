//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// An answered is an answer of the API server, as far as Graft looks at it.
type answered struct {
	Code  int
	Cause metav1.CauseType
	Field string
}

func answerOf(err error) answered {
	if err == nil {
		return answered{Code: http.StatusOK}
	}

	var status kerrors.APIStatus
	if !errors.As(err, &status) {
		return answered{}
	}

	out := answered{Code: int(status.Status().Code)}
	if d := status.Status().Details; d != nil && len(d.Causes) > 0 {
		out.Cause, out.Field = d.Causes[0].Type, d.Causes[0].Field
	}

	return out
}

func code(err error) int { return answerOf(err).Code }

// A question is a request to the API server about an object, or its status.
type question struct {
	server

	t      *testing.T
	o      client.Object
	status bool
}

func (q question) patch(format string, a ...any) error {
	p := mergePatch(fmt.Sprintf(format, a...))
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
	return q.patch(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"a":"b"}},"status":{"observedGeneration":7}}`, q.o.GetUID(), version)
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
	must(q.t, "Patch()", q.patch(`{"metadata":{"annotations":{"example.org/changed":"yes"}}}`))

	return old
}

// replaced deletes the object, and creates another of the same name.
func (q question) replaced() question {
	successor, _ := q.o.DeepCopyObject().(client.Object)
	successor.SetResourceVersion("")
	must(q.t, "Delete()", q.delete())
	must(q.t, "Create()", q.Create(q.t.Context(), successor))

	return q
}

// held has two finalizers.
func (q question) held() question {
	must(q.t, "Patch()", q.patch(`{"metadata":{"finalizers":["example.org/one","example.org/two"]}}`))
	return q
}

// unchanged returns an error if a request changes the object's version.
func (q question) unchanged(do func() error) error {
	before := q.o.GetResourceVersion()

	err := do()
	if got := read(q.t, q.server, q.o).GetResourceVersion(); got != before || err == nil && q.o.GetResourceVersion() != before {
		return fmt.Errorf("resourceVersion: want %s, got %s, and %s in the answer", before, got, q.o.GetResourceVersion())
	}

	return err
}

// The seams, reservations and Release rely on how an API server answers, for custom
// resources and others. This is how it does.
func TestAPIServer(t *testing.T) {
	const (
		object = 1 << iota // Requests are of an object,
		status             // of its status,
		both   = object | status
	)

	ok, conflict := answered{Code: http.StatusOK}, answered{Code: http.StatusConflict}

	cases := map[string]struct {
		reason string
		of     int
		do     func(q question) error
		want   answered
	}{
		"PatchForAnotherUID": {
			reason: "An annotation meant for an object that no longer exists must not land on its successor.",
			of:     object,
			do:     func(q question) error { return q.patch(`{"metadata":{"uid":"another","annotations":{"a":"b"}}}`) },
			want:   answered{Code: http.StatusUnprocessableEntity, Cause: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"},
		},
		"StatusPatchForAnotherUID": {
			reason: "The UID alone doesn't guard a patch of status: the API server drops metadata first. The resourceVersion does.",
			of:     status,
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
		"StaleUpdate": {
			reason: "A whole object, or a status, that is old must be a conflict.",
			of:     both,
			do:     func(q question) error { q.o.SetResourceVersion(q.outdated()); return q.update() },
			want:   conflict,
		},
		"UpdateOfAnotherUID": {
			reason: "They must not replace those of a successor.",
			of:     both,
			do:     func(q question) error { q.o.SetUID("another"); return q.update() },
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
			want:   answered{Code: http.StatusNotFound},
		},
		"NotServed": {
			reason: "It must be possible to tell an object that no longer exists from one whose kind is not served in this version.",
			of:     object,
			do: func(q question) error {
				config := plane.Config()
				config.GroupVersion = &schema.GroupVersion{Group: v1alpha1.Group, Version: "v99"}
				config.APIPath = "/apis"
				config.NegotiatedSerializer = serializer.NewCodecFactory(q.Scheme())

				c, err := rest.RESTClientFor(config)
				must(q.t, "RESTClientFor()", err)

				return c.Patch(types.MergePatchType).Namespace(namespace).Resource("buckets").Name("gone").Body([]byte(`{}`)).Do(q.t.Context()).Error()
			},
			want: answered{Code: http.StatusNotFound, Cause: metav1.CauseTypeUnexpectedServerResponse},
		},
		"StatusOfKindWithoutStatus": {
			reason: "Status of a kind that has no such subresource must not be found.",
			of:     object,
			do: func(q question) error {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}}
				q.createFor(q.t, o)

				if err := q.Status().Update(q.t.Context(), o); code(err) != http.StatusNotFound {
					return err
				}

				return q.Status().Patch(q.t.Context(), o, mergePatch(`{"status":{}}`))
			},
			want: answered{Code: http.StatusNotFound},
		},
		"FinalizerAddedDuringDeletion": {
			reason: "No finalizer may be added to an object that is being deleted.",
			of:     object,
			do: func(q question) error {
				return errors.Join(q.held().delete(), q.patch(`{"metadata":{"finalizers":["example.org/one","example.org/two","example.org/late"]}}`))
			},
			want: answered{Code: http.StatusUnprocessableEntity, Cause: metav1.CauseTypeForbidden, Field: "metadata.finalizers"},
		},
		"FailedTest": {
			reason: "A patch with a test that fails must be refused as a whole.",
			of:     object,
			do: func(q question) error {
				return q.held().unchanged(func() error {
					return q.jsonPatch(`[{"op":"replace","path":"/metadata/finalizers","value":[]},{"op":"test","path":"/metadata/uid","value":"another"}]`)
				})
			},
			want: answered{Code: http.StatusUnprocessableEntity},
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
				return q.delete(client.Preconditions{UID: ptr.To(q.o.GetUID()), ResourceVersion: ptr.To("1")})
			},
			want: conflict,
		},
		"ChangeOfMind": {
			reason: "A second deletion must keep the garbage collector from what the object owns.",
			of:     object,
			do: func(q question) error {
				err := errors.Join(
					q.held().delete(client.PropagationPolicy(metav1.DeletePropagationForeground)),
					q.delete(client.PropagationPolicy(metav1.DeletePropagationOrphan)))

				// The garbage collector has nothing to do, and removes its own finalizer.
				eventually(q.t, "it has its own finalizers", func() (bool, string) {
					got := read(q.t, q.server, q.o).GetFinalizers()
					return slices.Equal(got, []string{"example.org/one", "example.org/two"}), fmt.Sprint(got)
				})

				return err
			},
			want: ok,
		},
		"RemoveLast": {
			reason: "The patch that removes the last finalizers must be answered with the object as it was last.",
			of:     object,
			do: func(q question) error {
				err := errors.Join(q.held().delete(), q.jsonPatch(`[{"op":"replace","path":"/metadata/finalizers","value":[]}]`))
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
	}

	kinds := map[string]struct {
		of       int
		template client.Object
	}{
		"Bucket":    {object, v1alpha1.NewBucket(namespace, "one")},
		"Status":    {status, v1alpha1.NewBucket(namespace, "one")},
		"ConfigMap": {object, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}}},
	}

	for name, tc := range cases {
		for kind, k := range kinds {
			if tc.of&k.of == 0 {
				continue
			}

			t.Run(name+"/"+kind, func(t *testing.T) {
				o, _ := k.template.DeepCopyObject().(client.Object)
				o.SetAnnotations(map[string]string{"example.org/note": "theirs"})

				q := question{server: newServer(t), t: t, o: o, status: k.of == status}
				q.createFor(t, o)

				err := tc.do(q)
				if diff := cmp.Diff(tc.want, answerOf(err)); diff != "" {
					t.Errorf("\n%s\n%v: -want, +got:\n%s", tc.reason, err, diff)
				}
			})
		}
	}
}

func TestAPIServerStatusPatchKeepsEverythingElse(t *testing.T) {
	s := newServer(t)

	b := v1alpha1.NewBucket(namespace, "one")
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

	b := v1alpha1.NewBucket(namespace, "one")
	s.create(t, b)

	b.SetConditions(xpv2.Available())
	meta.AddFinalizer(b, "example.org/one")
	must(t, "Update()", s.Update(t.Context(), b))

	if got := condition(b, xpv2.TypeReady); got != "-" {
		t.Errorf("Ready in memory after an update: the API server's answer has none, got %s", got)
	}
}

func TestAPIServerVersionsCompare(t *testing.T) {
	s := newServer(t)

	// Two objects: versions of one kind have one order.
	one, two := v1alpha1.NewBucket(namespace, "one"), v1alpha1.NewBucket(namespace, "two")
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

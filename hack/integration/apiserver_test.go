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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
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

// The seams, reservations and Release rely on how an API server answers, for custom
// resources and others. This is how it does.
func TestAPIServer(t *testing.T) {
	patch := func(format string, a ...any) client.Patch { return mergePatch(fmt.Sprintf(format, a...)) }

	// guarded is a patch for one version of one object.
	guarded := func(o client.Object, version string) client.Patch {
		return patch(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{"a":"b"}},"status":{"observedGeneration":7}}`, o.GetUID(), version)
	}

	// change the object, and return its resource version before.
	change := func(t *testing.T, s server, o client.Object) string {
		t.Helper()

		old := o.GetResourceVersion()
		must(t, "Patch()", s.Patch(t.Context(), o, patch(`{"metadata":{"annotations":{"example.org/changed":"yes"}}}`)))

		return old
	}

	// replace the object by another of the same name.
	replace := func(t *testing.T, s server, o client.Object) {
		t.Helper()

		successor, _ := o.DeepCopyObject().(client.Object)
		successor.SetResourceVersion("")
		must(t, "Delete()", s.Delete(t.Context(), o))
		must(t, "Create()", s.Create(t.Context(), successor))
	}

	// hold the object by two finalizers.
	hold := func(t *testing.T, s server, o client.Object) {
		t.Helper()
		must(t, "Patch()", s.Patch(t.Context(), o, patch(`{"metadata":{"finalizers":["example.org/one","example.org/two"]}}`)))
	}

	// unchanged returns an error if a request has changed the object's version.
	unchanged := func(s server, t *testing.T, o client.Object, before string, err error) error {
		if got := read(t, s, o).GetResourceVersion(); err == nil && (got != before || o.GetResourceVersion() != before) {
			return fmt.Errorf("resourceVersion: want %s, got %s, and %s in the answer", before, got, o.GetResourceVersion())
		}

		return err
	}

	ok, conflict := answered{Code: http.StatusOK}, answered{Code: http.StatusConflict}

	cases := map[string]struct {
		reason string
		// status is whether the kind must have a status subresource.
		status bool
		// do returns what the API server answered to the request in question.
		do   func(t *testing.T, s server, o client.Object) error
		want answered
	}{
		"MergePatchForAnotherUID": {
			reason: "An annotation meant for an object that no longer exists must not land on its successor.",
			do: func(t *testing.T, s server, o client.Object) error {
				return s.Patch(t.Context(), o, patch(`{"metadata":{"uid":"another","annotations":{"a":"b"}}}`))
			},
			want: answered{Code: http.StatusUnprocessableEntity, Cause: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"},
		},
		"StatusMergePatchForAnotherUID": {
			reason: "The UID alone doesn't guard a patch of status: the API server drops metadata first. The resourceVersion does.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				return s.Status().Patch(t.Context(), o, patch(`{"metadata":{"uid":"another"},"status":{"observedGeneration":7}}`))
			},
			want: ok,
		},
		"MergePatchWithStaleVersion": {
			reason: "A merge patch with an old resourceVersion must be a conflict.",
			do: func(t *testing.T, s server, o client.Object) error {
				return s.Patch(t.Context(), o, guarded(o, change(t, s, o)))
			},
			want: conflict,
		},
		"StatusMergePatchWithStaleVersion": {
			reason: "Conditions are a list, which a merge patch replaces: another writer's new condition must be a conflict.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				return s.Status().Patch(t.Context(), o, guarded(o, change(t, s, o)))
			},
			want: conflict,
		},
		"UpdateWithStaleVersion": {
			reason: "A whole object that is old must be a conflict.",
			do: func(t *testing.T, s server, o client.Object) error {
				o.SetResourceVersion(change(t, s, o))
				return s.Update(t.Context(), o)
			},
			want: conflict,
		},
		"StatusUpdateWithStaleVersion": {
			reason: "A status that is old must be a conflict, or dropping it would be wrong.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				o.SetResourceVersion(change(t, s, o))
				return s.Status().Update(t.Context(), o)
			},
			want: conflict,
		},
		"UpdateOfAnotherUID": {
			reason: "A whole object must not replace its successor.",
			do: func(t *testing.T, s server, o client.Object) error {
				o.SetUID("another")
				return s.Update(t.Context(), o)
			},
			want: conflict,
		},
		"StatusUpdateOfAnotherUID": {
			reason: "Nor may a status.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				o.SetUID("another")
				return s.Status().Update(t.Context(), o)
			},
			want: conflict,
		},
		"GuardedMergePatch": {
			reason: "A merge patch with the object's own UID and resourceVersion must be accepted.",
			do: func(t *testing.T, s server, o client.Object) error {
				return s.Patch(t.Context(), o, guarded(o, o.GetResourceVersion()))
			},
			want: ok,
		},
		"GuardedMergePatchAfterDeletion": {
			reason: "A merge patch of an object that no longer exists must not be found, and have no cause.",
			do: func(t *testing.T, s server, o client.Object) error {
				must(t, "Delete()", s.Delete(t.Context(), o))
				return s.Patch(t.Context(), o, guarded(o, o.GetResourceVersion()))
			},
			want: answered{Code: http.StatusNotFound},
		},
		"NotServed": {
			reason: "It must be possible to tell an object that no longer exists from one whose kind is not served in this version.",
			do: func(t *testing.T, s server, _ client.Object) error {
				config := plane.Config()
				config.GroupVersion = &schema.GroupVersion{Group: sample.Group, Version: "v99"}
				config.APIPath = "/apis"
				config.NegotiatedSerializer = serializer.NewCodecFactory(s.Scheme())

				c, err := rest.RESTClientFor(config)
				must(t, "RESTClientFor()", err)

				return c.Patch(types.MergePatchType).Namespace(namespace).Resource("buckets").Name("gone").Body([]byte(`{}`)).Do(t.Context()).Error()
			},
			want: answered{Code: http.StatusNotFound, Cause: metav1.CauseTypeUnexpectedServerResponse},
		},
		"GuardedMergePatchOfSuccessor": {
			reason: "A merge patch of an object that another has replaced must be refused.",
			do: func(t *testing.T, s server, o client.Object) error {
				replace(t, s, o)
				return s.Patch(t.Context(), o, guarded(o, o.GetResourceVersion()))
			},
			want: conflict,
		},
		"GuardedStatusMergePatchOfSuccessor": {
			reason: "So must a merge patch of its status.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				replace(t, s, o)
				return s.Status().Patch(t.Context(), o, guarded(o, o.GetResourceVersion()))
			},
			want: conflict,
		},
		"FinalizerAddedDuringDeletion": {
			reason: "No finalizer may be added to an object that is being deleted.",
			do: func(t *testing.T, s server, o client.Object) error {
				hold(t, s, o)
				must(t, "Delete()", s.Delete(t.Context(), o))

				return s.Patch(t.Context(), o, patch(`{"metadata":{"finalizers":["example.org/one","example.org/two","example.org/late"]}}`))
			},
			want: answered{Code: http.StatusUnprocessableEntity, Cause: metav1.CauseTypeForbidden, Field: "metadata.finalizers"},
		},
		"FailedTest": {
			reason: "A patch with a test that fails must be refused as a whole.",
			do: func(t *testing.T, s server, o client.Object) error {
				hold(t, s, o)

				version := o.GetResourceVersion()
				err := s.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(
					`[{"op":"replace","path":"/metadata/finalizers","value":[]},{"op":"test","path":"/metadata/uid","value":"another"}]`)))

				return errors.Join(err, unchanged(s, t, o, version, nil))
			},
			want: answered{Code: http.StatusUnprocessableEntity},
		},
		"DeleteAnotherUID": {
			reason: "Deletion of an object that has another UID must be a conflict.",
			do: func(t *testing.T, s server, o client.Object) error {
				uid := types.UID("another")
				return s.Delete(t.Context(), o, client.Preconditions{UID: &uid})
			},
			want: conflict,
		},
		"DeleteAnotherVersion": {
			reason: "So must that of another version.",
			do: func(t *testing.T, s server, o client.Object) error {
				uid, version := o.GetUID(), "1"
				return s.Delete(t.Context(), o, client.Preconditions{UID: &uid, ResourceVersion: &version})
			},
			want: conflict,
		},
		"ChangeOfMind": {
			reason: "A second deletion must keep the garbage collector from what the object owns.",
			do: func(t *testing.T, s server, o client.Object) error {
				hold(t, s, o)

				err := errors.Join(
					s.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationForeground)),
					s.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationOrphan)))

				// The garbage collector has nothing to do, and removes its own finalizer.
				eventually(t, "it has its own finalizers", func() (bool, string) {
					got := read(t, s, o).GetFinalizers()
					return slices.Equal(got, []string{"example.org/one", "example.org/two"}), fmt.Sprint(got)
				})

				return err
			},
			want: ok,
		},
		"RemoveLast": {
			reason: "The patch that removes the last finalizers must be answered with the object as it was last.",
			do: func(t *testing.T, s server, o client.Object) error {
				hold(t, s, o)
				must(t, "Delete()", s.Delete(t.Context(), o))

				if err := s.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/finalizers","value":[]}]`))); err != nil || meta.WasDeleted(o) && len(o.GetFinalizers()) == 0 {
					return err
				}

				return fmt.Errorf("want the object without finalizers, got %v", o)
			},
			want: ok,
		},
		"MergePatchOfNothing": {
			reason: "A patch of what is there already must write nothing.",
			do: func(t *testing.T, s server, o client.Object) error {
				version := o.GetResourceVersion()
				return unchanged(s, t, o, version, s.Patch(t.Context(), o, patch(`{"metadata":{"uid":%q,"annotations":{"example.org/note":"theirs"}}}`, o.GetUID()), client.FieldOwner("another")))
			},
			want: ok,
		},
		"UpdateOfNothing": {
			reason: "So must an update.",
			do: func(t *testing.T, s server, o client.Object) error {
				version := o.GetResourceVersion()
				return unchanged(s, t, o, version, s.Update(t.Context(), o))
			},
			want: ok,
		},
		"StatusUpdateOfNothing": {
			reason: "So must an update of status.",
			status: true,
			do: func(t *testing.T, s server, o client.Object) error {
				// The first one writes an empty status.
				must(t, "Update()", s.Status().Update(t.Context(), o))

				version := o.GetResourceVersion()
				return unchanged(s, t, o, version, s.Status().Update(t.Context(), o))
			},
			want: ok,
		},
	}

	kinds := map[string]client.Object{
		sample.BucketKind: sample.NewBucket(namespace, "one"),
		"ConfigMap":       &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one"}},
	}

	for name, tc := range cases {
		for kind, template := range kinds {
			if tc.status && kind != sample.BucketKind {
				continue
			}

			t.Run(name+"/"+kind, func(t *testing.T) {
				s := newServer(t)

				o, _ := template.DeepCopyObject().(client.Object)
				o.SetAnnotations(map[string]string{"example.org/note": "theirs"})
				s.createFor(t, o)

				err := tc.do(t, s, o)
				if diff := cmp.Diff(tc.want, answerOf(err)); diff != "" {
					t.Errorf("\n%s\n%v: -want, +got:\n%s", tc.reason, err, diff)
				}
			})
		}
	}
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

package managed

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A schema or a webhook that refuses conditions of Graft must not keep upstream from
// writing its status.
func TestRefusedConditions(t *testing.T) {
	enum := func(cs []xpv2.Condition) bool {
		return slices.ContainsFunc(cs, func(c xpv2.Condition) bool { return c.Type != xpv2.TypeReady && c.Type != xpv2.TypeSynced })
	}
	maxItems := func(cs []xpv2.Condition) bool { return len(cs) > 2 }
	maxLength := func(cs []xpv2.Condition) bool {
		return slices.ContainsFunc(cs, func(c xpv2.Condition) bool { return len(c.Message) > len(messageRequested) })
	}
	invalid := kerrors.NewInvalid(testkit.BucketKind().GroupKind(), "b", nil)
	denied := kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("denied"))

	cases := map[string]struct {
		reason  string
		refuses func(cs []xpv2.Condition) bool
		err     error
	}{
		"Enum":      {reason: "The schema lists the types of conditions.", refuses: enum, err: invalid},
		"MaxItems":  {reason: "The schema has room for two conditions.", refuses: maxItems, err: invalid},
		"MaxLength": {reason: "The schema allows short messages only.", refuses: maxLength, err: invalid},
		"Forbidden": {reason: "A webhook denies the condition.", refuses: enum, err: denied},
		"Bad":       {reason: "A webhook calls the request bad.", refuses: enum, err: kerrors.NewBadRequest("denied")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x, rec := testkit.NewAPI(bucket(deleting, finalizers(FinalizerName))), &outside{there: true}, &testkit.Said{}
			a.Before = refusing(t, tc.refuses, tc.err)
			r := newBucketReconciler(a, connects(x.client()), WithRecorder(rec))
			run(t, r, "b")
			b := get(t, a)
			wants(t, tc.reason, "Ready, Synced", []xpv2.ConditionReason{xpv2.ReasonDeleting, xpv2.ReasonReconcileSuccess}, []xpv2.ConditionReason{reasonOf(b, xpv2.TypeReady), reasonOf(b, xpv2.TypeSynced)})
			wants(t, "An event says that the deletion is not reported.", "events", true, len(rec.Events(reasonCannotReportDeletion)) > 0)
			run(t, r, "b")
			wants(t, tc.reason+" The deletion goes on.", "deleted, exists", []any{1, false}, []any{x.did("delete"), a.Server().Get(t.Context(), request().NamespacedName, bucket()) == nil})
		})
	}

	others := map[string]struct {
		reason string
		object *v1alpha1.Bucket
		opts   func(a *testkit.API) ReconcilerOption
		synced xpv2.ConditionReason
	}{
		"CreateResolved": {
			reason: "Upstream's error is stored although the schema lacks CreateResolved.",
			object: bucket(interruptedBucket(0)),
			opts:   func(*testkit.API) ReconcilerOption { return WithCreateResolver(&seeker{err: errProvider}) },
			synced: xpv2.ReasonReconcileError,
		},
		"OperationRunning": {
			reason: "Upstream's success is stored although the schema lacks OperationRunning.",
			object: bucket(named("b"), func(b *v1alpha1.Bucket) {
				b.SetConditions(xpv2.Condition{Type: asyncstate.TypeOperation, Status: corev1.ConditionTrue, Reason: asyncstate.ReasonRunning})
			}),
			opts:   func(a *testkit.API) ReconcilerOption { return WithAsync(newTracker(a)) },
			synced: xpv2.ReasonReconcileSuccess,
		},
		"ExternalNameReserved": {
			reason: "Upstream's error is stored although the schema lacks ExternalNameReserved.",
			object: bucket(named("shared")),
			opts: func(a *testkit.API) ReconcilerOption {
				other := bucket(named("shared"))
				other.SetName("other")
				must(t, a.Server().Create(t.Context(), other))
				run(t, newBucketReconciler(a, connects(clientOf(ExternalClientFns{})), WithExternalNameReservation("default")), "other")
				return WithExternalNameReservation("default")
			},
			synced: xpv2.ReasonReconcileError,
		},
	}
	for name, tc := range others {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(tc.object)
			r := newBucketReconciler(a, connects(clientOf(ExternalClientFns{})), tc.opts(a))
			a.Before = refusing(t, enum, invalid)
			_, _ = r.Reconcile(t.Context(), request())
			wants(t, tc.reason, "Synced", tc.synced, reasonOf(get(t, a), xpv2.TypeSynced))
		})
	}
}

// refusing returns a hook that fails a write of a status that is refused, with err.
func refusing(t *testing.T, refuses func(cs []xpv2.Condition) bool, err error) testkit.Hook {
	t.Helper()
	return func(_ context.Context, r testkit.Request) error {
		if !statusWrite(r) {
			return nil
		}
		written := &v1alpha1.Bucket{}
		if r.Verb == testkit.StatusPatch {
			must(t, json.Unmarshal([]byte(r.Body), written))
		} else if b, ok := r.Object.(*v1alpha1.Bucket); ok {
			written = b
		}
		if refuses(written.Status.Conditions) {
			return err
		}
		return nil
	}
}

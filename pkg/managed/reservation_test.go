package managed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const leaseNamespace = "provider"

func in(namespace string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) { b.Namespace = namespace }
}

// of returns a managed resource of that name, all of which have one external name.
func of(name string, mod ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	called := func(b *v1alpha1.Bucket) { b.Name = name }
	return bucket(append([]func(b *v1alpha1.Bucket){called, named("shared"), uses("config")}, mod...)...)
}

func reserving(a *testkit.API, x *outside, o ...ReconcilerOption) *Reconciler {
	return newBucketReconciler(a, append([]ReconcilerOption{WithExternalNameReservation(leaseNamespace), connects(x.client())}, o...)...)
}

// obeys fails the test unless these things were done, by those whose they were.
func obeys(t *testing.T, x *outside, acts ...string) {
	t.Helper()
	wants(t, "Two must not act on one external resource.", "calls, crimes", [][]string{acts, nil}, [][]string{x.acts, x.crimes})
}

func leasesIn(t *testing.T, a *testkit.API) map[string]unstructured.Unstructured {
	t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(emptyLease("", "").GroupVersionKind())
	if err := a.Server().List(context.Background(), l, client.InNamespace(leaseNamespace)); err != nil && !apimeta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	out := map[string]unstructured.Unstructured{}
	for _, i := range l.Items {
		out[i.GetAnnotations()[annotationKeyReserves]] = i
	}
	return out
}

func holders(t *testing.T, a *testkit.API) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, l := range leasesIn(t, a) {
		h := holder{}
		if err := json.Unmarshal([]byte(l.GetAnnotations()[annotationKeyHolder]), &h); err != nil {
			h.Name = "unknown"
		}
		out[k] = h.Name
	}
	return out
}

const sharedKey = `Bucket.sample.graft.crossplane.io ClusterProviderConfig/config "shared"`

func isLease(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "Lease" }

func isHolderCheck(o client.Object) bool {
	_, ok := o.(*metav1.PartialObjectMetadata)
	return ok
}

// holds fails the test unless that managed resource holds the lease, or none if it is empty.
func holds(t *testing.T, reason string, a *testkit.API, name string) {
	t.Helper()
	want := map[string]string{}
	if name != "" {
		want[sharedKey] = name
	}
	wants(t, reason, "holders", want, holders(t, a))
}

// One managed resource alone: what is kept for it, and what that costs.
func TestReservationOfOne(t *testing.T) {
	a, c := testkit.NewAPI(of("b")), &outside{}
	r := reserving(a, c)
	costs := func(name string, want int) {
		t.Helper()
		about := slices.DeleteFunc(a.Requests(), func(r testkit.Request) bool { return !isLease(r.Object) && !isHolderCheck(r.Object) })
		wants(t, "", "requests for leases, "+name, want, len(about))
		a.Forget()
	}
	c.before = func(string, resource.Managed) error { return errors.New("boom") }
	run(t, r, "b")
	costs("a look that fails", 1)
	holds(t, "What was not created is not reserved.", a, "")
	c.before = nil
	run(t, r, "b")
	costs("create", 3)
	run(t, r, "b", "b")
	costs("nothing changes", 0)
	holds(t, "", a, "b")
	l := leasesIn(t, a)[sharedKey]
	wants(t, "Owners would be in another namespace.", "name, owners", []any{leaseName(sharedKey), 0}, []any{l.GetName(), len(l.GetOwnerReferences())})
	wants(t, "", "condition", corev1.ConditionUnknown, get(t, a).GetCondition(TypeExternalNameReserved).Status)

	// A new process.
	r = reserving(a, c)
	run(t, r, "b")
	costs("restart", 1)
	remove(t, a, "b")
	run(t, r, "b")
	costs("delete", 1)
	run(t, r, "b")
	costs("finalize", 1)
	run(t, r, "b")
	holds(t, "", a, "")
	wants(t, "", "remembered", 0, r.seam.Store().Len())
}

// The old one deletes slowly while a new one wants the same name.
func TestReservationHandsOver(t *testing.T) {
	a, c := testkit.NewAPI(of("old"), of("new")), &outside{slow: 2}
	r := reserving(a, c)
	run(t, r, "old", "new", "old")
	remove(t, a, "old")
	run(t, r, "old", "new", "old", "new")
	b := bucketNamed(t, a, "new")
	synced, reserved := b.GetCondition(xpv2.TypeSynced), b.GetCondition(TypeExternalNameReserved)
	for _, m := range []string{synced.Message, reserved.Message} {
		if !strings.Contains(m, "reserved by Bucket default/old (uid uid-1)") {
			t.Errorf("message: want one that names the first, got %q", m)
		}
	}
	wants(t, "", "Synced, reserved, reason, finalizers", []any{corev1.ConditionFalse, corev1.ConditionFalse, ReasonReservedByOther, 0}, []any{synced.Status, reserved.Status, reserved.Reason, len(b.GetFinalizers())})

	// Nothing changes, so nothing is written.
	a.Forget()
	run(t, r, "new", "new")
	wants(t, "", "writes while waiting", 0, a.Writes())

	// Without the name it waits for nothing.
	edit(t, a, "new", unannotated(meta.AnnotationKeyExternalName), policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate))
	run(t, r, "new")
	reserved = bucketNamed(t, a, "new").GetCondition(TypeExternalNameReserved)
	wants(t, "", "condition of what has no name", []any{corev1.ConditionUnknown, ReasonReservationNotNeeded}, []any{reserved.Status, reserved.Reason})
	edit(t, a, "new", named("shared"), policies(xpv2.ManagementActionAll))
	run(t, r, "old", "old", "new", "new")
	obeys(t, c, "create old", "delete old", "delete old", "delete old", "create new")
	holds(t, "", a, "new")
	reserved = bucketNamed(t, a, "new").GetCondition(TypeExternalNameReserved)
	wants(t, "", "condition", []any{corev1.ConditionTrue, ReasonReserved}, []any{reserved.Status, reserved.Reason})
}

// A second holder is only as good as what is known of the first.
func TestReservationOfDoubtfulHolders(t *testing.T) {
	check := func(err error) func(t *testing.T, a *testkit.API) {
		return func(_ *testing.T, a *testkit.API) {
			a.Before = failing(func(q testkit.Request) bool { return isHolderCheck(q.Object) }, err)
		}
	}
	change := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, a *testkit.API) {
		return func(t *testing.T, a *testkit.API) {
			t.Helper()
			l := leasesIn(t, a)[sharedKey]
			fn(&l)
			must(t, a.Server().Update(context.Background(), &l))
		}
	}
	cases := map[string]struct {
		reason string
		then   func(t *testing.T, a *testkit.API)
		takes  bool
		says   string
	}{
		"Alive":  {reason: "A lease whose holder exists is not taken over.", then: func(*testing.T, *testkit.API) {}, says: "reserved by Bucket default/first"},
		"Killed": {reason: "A lease whose holder no longer exists is taken over.", then: func(t *testing.T, a *testkit.API) { kill(t, a, "first") }, takes: true},
		"AnotherOfTheName": {
			reason: "An object that has the name of the deleted holder is not the holder.",
			then: func(t *testing.T, a *testkit.API) {
				kill(t, a, "first")
				must(t, a.Server().Create(context.Background(), of("first")))
			},
			takes: true,
		},
		"KilledInAnotherVersion": {
			reason: "A holder is looked for in the version that is reconciled: its own may not be served any more.",
			then: func(t *testing.T, a *testkit.API) {
				t.Helper()
				kill(t, a, "first")
				change(func(u *unstructured.Unstructured) {
					text := strings.ReplaceAll(u.GetAnnotations()[annotationKeyHolder], v1alpha1.GroupVersion().String(), v1alpha1.GroupVersion().Group+"/v9")
					meta.AddAnnotations(u, map[string]string{annotationKeyHolder: text})
				})(t, a)
				a.Before = failing(func(q testkit.Request) bool {
					return isHolderCheck(q.Object) && q.Object.GetObjectKind().GroupVersionKind().Version == "v9"
				}, &apimeta.NoKindMatchError{})
			},
			takes: true,
		},
		"Forbidden": {
			reason: "Without permission to read the holder it is unknown whether it exists.",
			then:   check(kerrors.NewForbidden(schema.GroupResource{}, "first", errors.New("no"))),
			says:   "cannot find out whether Bucket default/first",
		},
		"NotFoundOfAnother": {
			reason: "That something else is not found says nothing of the holder.",
			then:   check(kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")),
			says:   "if it doesn't, delete the lease",
		},
		"NoDetails": {
			reason: "Nor does an answer that says of nothing that it is not found.",
			then:   check(&kerrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}),
			says:   "if it doesn't, delete the lease",
		},
		"Broken": {reason: "An API server that doesn't answer is no answer.", then: check(serverError()), says: "etcd has no leader"},
		"Unread": {
			reason: "Without the lease nothing is known.",
			then: func(_ *testing.T, a *testkit.API) {
				a.Before = failing(func(q testkit.Request) bool { return isLease(q.Object) }, serverError())
			},
			says: "cannot read lease",
		},
		"NoHolder": {
			reason: "A lease without a holder is free.",
			then: change(func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "holderIdentity")
			}),
			takes: true,
		},
		"Unknown": {
			reason: "A lease that doesn't name its holder is not free.",
			then:   change(func(u *unstructured.Unstructured) { meta.RemoveAnnotations(u, annotationKeyHolder) }),
			says:   "if none needs it, delete it",
		},
		"Mismatch": {
			reason: "A lease that names two different holders is not free.",
			then: change(func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, "another", "spec", "holderIdentity")
			}),
			says: "if none needs it, delete it",
		},
		"Deleted": {
			reason: "A lease that was deleted is free.",
			then: func(t *testing.T, a *testkit.API) {
				l := leasesIn(t, a)[sharedKey]
				must(t, a.Server().Delete(context.Background(), &l))
			},
			takes: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(of("first"), of("second")), &outside{}
			r := reserving(a, x)
			run(t, r, "first")
			tc.then(t, a)
			run(t, r, "second")
			wants(t, tc.reason, "taken over", tc.takes, holders(t, a)[sharedKey] == "second")
			if m := bucketNamed(t, a, "second").GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, tc.says) || (m == "") != (tc.says == "") {
				t.Errorf("\n%s\nSynced: want %q, got %q", tc.reason, tc.says, m)
			}

			// The bucket that doesn't hold the lease does nothing any more.
			did := len(x.acts)
			if tc.takes && bucketNamed(t, a, "first").GetUID() == "uid-1" {
				remove(t, a, "first")
				run(t, r, "first")
				wants(t, tc.reason, "what the first did to what it lost", []string{}, x.acts[did:])
			}
		})
	}
}

// A name that the external system assigns is reserved once it is known.
func TestReservationOfAssignedNames(t *testing.T) {
	a, x := testkit.NewAPI(of("b", unannotated(meta.AnnotationKeyExternalName)), of("other", named("id-1"))), &outside{}
	x.on("create", func(b *v1alpha1.Bucket) error { named("id-1")(b); return nil })
	r := reserving(a, x)
	run(t, r, "b")
	wants(t, "", "holders", map[string]string{strings.Replace(sharedKey, "shared", "id-1", 1): "b"}, holders(t, a))
	run(t, r, "other", "b")
	obeys(t, x, "create b")
}

// A name that Observe learns is reserved first, and may be another's during a deletion.
func TestReservationOfLearnedNames(t *testing.T) {
	created := annotated(meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339))
	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		gone   bool
	}{
		"Alive":                    {reason: "It waits."},
		"NeverCreatedWhileDeleted": {reason: "It is removed without the external resource of the other.", mods: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName)}, gone: true},
		"CreatedWhileDeleted":      {reason: "It may be what it created itself, so it stays.", mods: []func(b *v1alpha1.Bucket){deleting, finalizers(FinalizerName), created}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, x := testkit.NewAPI(of("late", append(tc.mods, unannotated(meta.AnnotationKeyExternalName))...), of("first")), &outside{}
			x.before = func(_ string, mg resource.Managed) error {
				meta.SetExternalName(mg, "shared")
				return nil
			}
			run(t, reserving(a, x), "first", "late")
			obeys(t, x, "create first")
			holds(t, tc.reason, a, "first")
			late := bucketNamed(t, a, "late")
			wants(t, tc.reason, "gone", tc.gone, late.GetName() == "")
			if !tc.gone {
				wants(t, tc.reason, "name, reason, Synced", []any{"shared", ReasonReservedByOther, corev1.ConditionFalse},
					[]any{meta.GetExternalName(late), late.GetCondition(TypeExternalNameReserved).Reason, late.GetCondition(xpv2.TypeSynced).Status})
			}
		})
	}
}

// A story is one of managed resources that have one external name.
type story struct {
	*testing.T

	a    *testkit.API
	x    *outside
	h    *testkit.Said
	opts []ReconcilerOption
	r    *Reconciler

	// hidden is the error of a repeated create while the external system hides the external
	// resource.
	hidden error
}

func (s *story) process(o ...ReconcilerOption) *Reconciler {
	return reserving(s.a, s.x, append(append(o, WithRecorder(s.h)), s.opts...)...)
}

// run reconciles, until nothing runs any more but what waits for time to pass.
func (s *story) run(names ...string) {
	s.Helper()
	for _, n := range names {
		// No create begins in the second in which the last one ended.
		time.Sleep(time.Second)
		s.runNow(n)
	}
}

func (s *story) runNow(names ...string) {
	s.Helper()
	run(s.T, s.r, names...)
	synctest.Wait()
}

func (s *story) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// deletes a managed resource, and reconciles it before and after that.
func (s *story) deletes(name string) {
	s.Helper()
	s.run(name)
	remove(s.T, s.a, name)
	s.run(name)
}

func (s *story) lands(b *v1alpha1.Bucket) { s.x.there, s.x.owner = true, b.GetUID() }

// A name is reserved for as long as its external resource may exist, and no longer.
func TestReservationStories(t *testing.T) {
	errQuota, errExists, errTag := errors.New("quota exceeded"), errors.New("already exists"), errors.New("cannot tag")
	announced := annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:05Z")
	deterministic := []ReconcilerOption{WithDeterministicExternalName(true)}
	tenants := []client.Object{of("mine", in("attacker")), of("theirs", in("victim"))}
	interrupted := []client.Object{of("b", finalizers(FinalizerName), announced), of("other")}
	rivals := []string{"other", "b"}
	quota := func(*story, *v1alpha1.Bucket) error { return errQuota }
	noAnswer := func(s *story, _ *v1alpha1.Bucket) error {
		if s.x.did("create b") == 1 {
			return context.DeadlineExceeded
		}
		return errQuota
	}
	deletesLease := func(q testkit.Request) bool { return isLease(q.Object) && q.Verb == testkit.Delete }

	// renamed gives b another name, while the lease of the one before can't be released.
	renamed := func(s *story) {
		s.run("b")
		edit(s.T, s.a, "b", named("renamed"))
		s.a.Before = failing(deletesLease, refused())
		s.run("b")
		s.a.Before = nil
	}

	// strangers reconciles the tenants. One is blocked, and neither learns of the other.
	strangers := func(s *story) {
		s.run("attacker/mine", "attacker/mine", "victim/theirs", "attacker/mine")
		said := func(name string) string { return fmt.Sprint(bucketNamed(s.T, s.a, name).Status.Conditions) }
		mine, theirs := said("attacker/mine"), said("victim/theirs")
		blocked := strings.Count(mine+theirs, "it is reserved by a managed resource in another namespace")
		if blocked != 2 || strings.Contains(mine, "victim") || strings.Contains(mine, "theirs") || strings.Contains(theirs, "attacker") || strings.Contains(theirs, "mine") {
			s.Errorf("conditions: %s; %s", mine, theirs)
		}
	}
	tenantFails := func(err error) func(*story, *v1alpha1.Bucket) error {
		return func(_ *story, b *v1alpha1.Bucket) error {
			if b.Namespace == "attacker" {
				return err
			}
			return nil
		}
	}

	// flaky finds b, then wrongly not, and then again.
	flaky := func(s *story) {
		for _, there := range []bool{true, false, true} {
			s.x.there, s.x.outdated = there, there
			s.run("b")
			holds(s.T, "", s.a, "b")
		}
	}
	cases := map[string]struct {
		reason  string
		objects []client.Object // The managed resources b and other, if it is nil.
		opts    []ReconcilerOption
		async   bool
		creates func(s *story, b *v1alpha1.Bucket) error // What a create does first and ends in, but for that of other.
		do      func(s *story)
		holder  string
		acts    []string // All that was done, if it is set.
		then    []string // What is reconciled then. None acts on what is another's.
	}{
		"ReleaseFails": {
			reason: "A lease that can't be released is reported, and the managed resource is deleted anyway.",
			do: func(s *story) {
				s.deletes("b")
				s.a.Before = failing(deletesLease, serverError())
				s.run("b")
				wants(s.T, "", "object, events", []any{"", 1}, []any{get(s.T, s.a).GetName(), len(s.h.Events(reasonCannotRelease))})
			},
			holder: "b",
		},
		"FinalizerStays": {
			reason: "As long as the finalizer is there the lease is.",
			do: func(s *story) {
				s.deletes("b")
				s.a.Before = failing(func(q testkit.Request) bool { return q.Verb == testkit.Update && !isLease(q.Object) }, refused())
				s.run("b")
			},
			holder: "b",
		},
		"CacheLags": {
			reason: "A cache that still shows what is gone doesn't make it act again.",
			do: func(s *story) {
				s.deletes("b")
				must(s.T, s.a.Freeze(s.Context(), bucketNamed(s.T, s.a, "b")))
				s.run("b")
				observed := s.x.observes
				s.run("b", "b", "b")
				wants(s.T, "", "object, observations", []any{"", observed}, []any{bucketNamed(s.T, s.a, "b").GetName(), s.x.observes})
				holds(s.T, "", s.a, "")
				s.run("other", "b")
				s.a.Thaw()
				s.run("b")
				wants(s.T, "", "remembered", 1, s.r.seam.Store().Len())
			},
			holder: "other",
			acts:   []string{"create b", "delete b", "create other"},
		},
		"CacheLagsAfterHandOver": {
			reason:  "A process whose cache still shows policies from before, that allow no change, doesn't release what the next one has reserved.",
			objects: []client.Object{of("b", policies(xpv2.ManagementActionObserve)), of("other")},
			do: func(s *story) {
				before, next := get(s.T, s.a), s.process()
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionAll))
				run(s.T, next, "b")
				s.a.FreezeAs(before)
				s.run("b")
				s.a.Thaw()
			},
			holder: "b",
			then:   []string{"other"},
		},
		"CacheLagsAfterRename": {
			reason: "Nor does one whose cache shows a name of before what another one has reserved again.",
			do: func(s *story) {
				renamed(s)
				before, next := get(s.T, s.a), s.process()
				edit(s.T, s.a, "b", named("shared"))
				run(s.T, next, "b")
				s.a.FreezeAs(before)
				try(s.r, 1)
				s.a.Thaw()
				left := leasesIn(s.T, s.a)[strings.ReplaceAll(sharedKey, "shared", "renamed")]
				must(s.T, s.a.Server().Delete(s.Context(), &left)) // The next process doesn't know of it.
			},
			holder: "b",
			then:   []string{"other"},
		},
		"RenamedThenObserveOnly": {
			reason: "What only looks holds no name of before, either.",
			do: func(s *story) {
				renamed(s)
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionObserve))
				s.run("b")
			},
		},
		"RenamedInAnOutage": {
			reason: "Nor that of before which could not be released, when the one after it can't be read for a while.",
			do: func(s *story) {
				releases := failing(deletesLease, refused())
				s.run("b")
				edit(s.T, s.a, "b", named("renamed"))
				s.a.Before = releases
				s.run("b")
				s.x.outdated, s.a.Before = true, failing(func(q testkit.Request) bool { return isLease(q.Object) }, serverError())
				s.run("b")
				s.x.outdated, s.a.Before = false, releases
				s.run("b")
				s.a.Before = nil
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionObserve))
				s.run("b")
			},
		},
		"CacheLagsAfterCreate": {
			reason:  "An earlier create failed, and the external system is still without what the next one made, too.",
			objects: []client.Object{of("b", finalizers(FinalizerName), announced, annotated(meta.AnnotationKeyExternalCreateFailed, "2026-01-02T03:04:06Z")), of("other")},
			do: func(s *story) {
				c := s.x.client()
				c.ObserveFn = absent
				s.r = s.process(connects(c))
				must(s.T, s.a.Freeze(s.Context(), bucketNamed(s.T, s.a, "b")))
				s.run("b", "b", "other")
			},
			holder: "b",
			acts:   []string{"create b"},
		},
		"ReleaseStalls": {
			reason: "The process stalls right before it releases the lease of a create that failed, and the next one creates meanwhile.",
			creates: func(s *story, _ *v1alpha1.Bucket) error {
				if s.x.did("create") > 1 {
					return nil
				}
				return errQuota
			},
			do: func(s *story) {
				next := s.process(deterministic...)
				s.a.Before = on(1, deletesLease, func(testkit.Request) error {
					time.Sleep(5 * time.Second)
					run(s.T, next, "b")
					return nil
				})
				s.run("b")
			},
			holder: "b",
			acts:   []string{"create b", "create b"},
		},
		"ReleaseStallsForLess": {
			reason: "The create of the next one is still in progress.",
			creates: func(s *story, b *v1alpha1.Bucket) error {
				if s.x.did("create") == 1 {
					return errQuota
				}
				time.Sleep(time.Minute)
				s.lands(b)
				return nil
			},
			do: func(s *story) {
				next := s.process(deterministic...)
				s.a.Before = on(1, deletesLease, func(testkit.Request) error {
					time.Sleep(5 * time.Second)
					go try(next, 1)
					synctest.Wait()
					return nil
				})
				s.run("b")
			},
			holder: "b",
			acts:   []string{"create b", "create b"},
			then:   []string{"other"},
		},
		"ReleaseIsInterrupted": {
			reason:  "The lease of a create that failed is released by the next process, in which the create is postponed.",
			creates: quota,
			do: func(s *story) {
				s.a.Before = failing(deletesLease, errors.New("the process died"))
				s.run("b")
				holds(s.T, "", s.a, "b")
				s.a.Before, s.r = nil, s.process()
				s.run("b")
				holds(s.T, "", s.a, "")
			},
		},
		"ReleaseAfterDeadline": {
			reason: "A create that runs into its deadline gives the reservation back with the context that has ended.",
			opts: []ReconcilerOption{WithTimeout(time.Second), connects(ExternalClientFns{ObserveFn: absent, CreateFn: func(ctx context.Context, _ resource.Managed) (ExternalCreation, error) {
				<-ctx.Done()
				return ExternalCreation{}, errQuota
			}})},
			do: func(s *story) {
				s.run("b")
				wants(s.T, "", "events", 0, len(s.h.Events(reasonCannotRelease)))
			},
		},
		"Replaced": {
			reason: "Another object of the name is there after the create: it is for the process that knows that one.",
			creates: func(s *story, _ *v1alpha1.Bucket) error {
				kill(s.T, s.a, "b")
				must(s.T, s.a.Server().Create(s.Context(), of("b", announced)))
				return errQuota
			},
			holder: "b",
		},
		"Refused": {
			reason: "What was refused is for another to have.",
			opts:   []ReconcilerOption{WithPreCreateObserve()},
			do: func(s *story) {
				s.x.on("observe", func(*v1alpha1.Bucket) error { s.x.there = s.x.observes > 1; return nil })
				s.run("b")
				wants(s.T, "", "refused", "shared", get(s.T, s.a).GetAnnotations()[AnnotationKeyCreateRefused])
			},
		},
		"Settled": {
			reason:  "What is reserved no more is not said to be.",
			objects: tenants,
			creates: func(_ *story, b *v1alpha1.Bucket) error {
				if b.Namespace == "attacker" {
					return errors.Wrap(asyncstate.ErrOutcomeUnknown, "timeout")
				}
				return errQuota
			},
			do: func(s *story) {
				s.run("attacker/mine", "victim/theirs") // The second is blocked.
				kill(s.T, s.a, "attacker/mine")
				s.run("victim/theirs")
				wants(s.T, "", "condition", corev1.ConditionUnknown, bucketNamed(s.T, s.a, "victim/theirs").GetCondition(TypeExternalNameReserved).Status)
			},
		},
		"FreeToWhatCannotCreate": {
			reason:  "Nothing blocks what may only update, and has nothing to update.",
			objects: []client.Object{of("b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)), of("other")},
			do: func(s *story) {
				reserved := func() corev1.ConditionStatus { return get(s.T, s.a).GetCondition(TypeExternalNameReserved).Status }
				s.run("other", "b")
				blocked := reserved()
				kill(s.T, s.a, "other")
				s.x.there = false
				s.run("b")
				wants(s.T, "", "condition before, and after", []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown}, []corev1.ConditionStatus{blocked, reserved()})
			},
			holder: "other",
		},
		"FreeToWhatFailedAgain": {
			reason: "Nor what was created once, and not when it was gone.",
			objects: []client.Object{
				of("b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate), announced,
					annotated(meta.AnnotationKeyExternalCreateSucceeded, "2025-01-02T03:04:05Z"), annotated(meta.AnnotationKeyExternalCreateFailed, "2026-01-02T03:04:06Z")),
				of("other"),
			},
			do:     func(s *story) { s.run("b", "other") },
			holder: "other",
		},
		"ExistsThoughHidden": {
			reason: "A create that succeeded keeps the lease if the external system hides what it created, and refuses to create it again.",
			creates: func(s *story, b *v1alpha1.Bucket) error {
				if s.x.did("create") > 1 {
					return errExists
				}
				return nil
			},
			do: func(s *story) {
				s.run("b")
				s.x.there = false
				s.run("b", "b", "other")
				wants(s.T, "", "the earlier create is confirmed", false, meta.GetExternalCreateFailed(bucketNamed(s.T, s.a, "b")).After(meta.GetExternalCreateSucceeded(bucketNamed(s.T, s.a, "b"))))
				s.x.there = true
			},
			holder: "b",
			acts:   []string{"create b", "create b", "create b"},
			then:   rivals,
		},
		"ExistsThoughHiddenAfterRestart": {
			reason:  "Another process keeps the lease, too.",
			creates: func(s *story, b *v1alpha1.Bucket) error { return s.hidden },
			do: func(s *story) {
				s.run("b")
				s.x.there, s.hidden, s.r = false, errExists, s.process()
				s.run("b", "b", "other")
				s.x.there = true
			},
			holder: "b",
			acts:   []string{"create b", "create b", "create b"},
			then:   rivals,
		},
		"QuotaThoughHidden": {
			reason:  "Whatever the external system refuses the repeated create for.",
			creates: func(s *story, b *v1alpha1.Bucket) error { return s.hidden },
			do: func(s *story) {
				s.run("b")
				s.x.there, s.hidden = false, errQuota
				s.run("b", "b", "other")
				s.x.there = true
			},
			holder: "b",
			acts:   []string{"create b", "create b", "create b"},
			then:   rivals,
		},
		"ExistsThoughRenamed": {
			reason:  "A name that is not the one of the create that succeeded is not confirmed by an external resource that exists.",
			objects: []client.Object{of("mine", in("attacker"), named("own")), of("theirs", in("victim"))},
			creates: func(_ *story, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "shared" && b.Namespace == "attacker" {
					return errExists
				}
				return nil
			},
			do: func(s *story) {
				s.run("attacker/mine")
				edit(s.T, s.a, "attacker/mine", named("shared"))
				s.x.there, s.x.owner = false, ""
				s.run("attacker/mine", "attacker/mine", "victim/theirs")
			},
			holder: "theirs",
		},
		"RenamedAfterCreate": {
			reason:  "A name that the managed resource was given after its create succeeded under another is confirmed by no create.",
			objects: []client.Object{of("mine", in("attacker"), named("own")), of("theirs", in("victim"))},
			creates: func(_ *story, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "shared" && b.Namespace == "attacker" {
					return errors.New("invalid: region does not exist")
				}
				return nil
			},
			do: func(s *story) {
				s.run("attacker/mine")
				edit(s.T, s.a, "attacker/mine", named("shared"))
				s.x.there, s.x.owner = false, "" // What has the other name is another one.
				s.run("attacker/mine", "attacker/mine", "victim/theirs")
			},
			holder: "theirs",
			acts:   []string{"create mine", "create mine", "create mine", "create theirs"},
		},
		"OldProcess": {
			reason: "The create of the old process fails because that of the new one won.",
			opts:   deterministic,
			do: func(s *story) {
				next := s.process()
				s.x.on("create", func(*v1alpha1.Bucket) error {
					if s.x.did("create") > 1 {
						return nil
					}
					run(s.T, next, "b")
					return errExists
				})
				s.run("b")
				holds(s.T, "", s.a, "b")
				run(s.T, next, "b", "other")
			},
			holder: "b",
		},
		"OldLeader": {
			reason: "A process that has lost its leadership still reads the create that failed before the one that another process has begun since.",
			do: func(s *story) {
				first, second := s.r, s.process()
				s.x.on("create", func(*v1alpha1.Bucket) error {
					if s.x.did("create") == 1 {
						return errors.Wrap(context.DeadlineExceeded, "no answer")
					}
					run(s.T, first, "b")
					run(s.T, second, "other")
					return nil
				})
				s.run("b")
				must(s.T, s.a.Freeze(s.Context(), get(s.T, s.a)))
				time.Sleep(time.Minute)
				run(s.T, second, "b")
			},
			holder: "b",
			acts:   []string{"create b", "create b"},
		},
		"AsyncRepeat": {
			reason:  "To repeat an asynchronous create takes the lease, too.",
			objects: []client.Object{of("b"), of("thief")},
			creates: func(*story, *v1alpha1.Bucket) error { return asyncstate.ErrOutcomeUnknown },
			do: func(s *story) {
				s.r = s.process(WithAsync(newTracker(s.a, asyncstate.WithDeterministicNames())))
				s.run("b")
				time.Sleep(time.Minute)
				steals(s.T, s.a)
				s.run("b")
			},
			holder: "thief",
			acts:   []string{"create b"},
		},
		"TenantFails": {
			reason: "A create that failed keeps no other namespace from the name, however often it is tried.", objects: tenants, creates: tenantFails(errQuota), do: strangers,
			holder: "theirs", acts: []string{"create mine", "create mine", "create theirs"},
		},
		"TenantForges": {
			reason: "Nor does a user who writes, or copies, what says that a create succeeded.", creates: tenantFails(errQuota), do: strangers,
			objects: []client.Object{of("mine", in("attacker"), annotated(meta.AnnotationKeyExternalCreateSucceeded, "1999-01-02T03:04:05Z")), of("theirs", in("victim"))},
			holder:  "theirs", acts: []string{"create mine", "create mine", "create theirs"},
		},
		"TenantUnknown": {
			reason: "What may exist stays reserved.", objects: tenants, creates: tenantFails(asyncstate.ErrOutcomeUnknown), do: strangers,
			holder: "mine", acts: []string{"create mine"},
		},
		"Flaky": {
			reason: "What was found to exist is held until the finalizer is removed, also after a wrong not-found.", do: flaky,
			creates: func(*story, *v1alpha1.Bucket) error { return errExists },
			holder:  "b", acts: []string{"update b", "create b", "update b"}, then: rivals,
		},
		"FlakyUpdate": {
			reason: "Also if it may only be updated.", do: flaky,
			objects: []client.Object{of("b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate)), of("other")},
			holder:  "b", acts: []string{"update b", "update b"}, then: rivals,
		},
		"AsyncFails": {
			reason:  "While an asynchronous create that failed waits to be tried again nothing is held.",
			objects: tenants,
			async:   true,
			creates: func(s *story, b *v1alpha1.Bucket) error {
				time.Sleep(time.Second)
				return tenantFails(errQuota)(s, b)
			},
			do: func(s *story) {
				s.runNow("attacker/mine", "attacker/mine") // The second meets the create in progress.
				s.wait(time.Second)
				s.runNow("attacker/mine")
				holds(s.T, "", s.a, "")
				s.runNow("victim/theirs")
				s.wait(time.Second)
			},
			holder: "theirs",
			acts:   []string{"create mine", "create theirs"},
		},
		"AsyncFailsAfterHandOver": {
			reason:  "Nor in a process that saw only that it was in progress.",
			creates: func(*story, *v1alpha1.Bucket) error { time.Sleep(time.Second); return errQuota },
			do: func(s *story) {
				for range 2 {
					s.r = s.process(WithAsync(newTracker(s.a)))
					s.runNow("b")
				}
				holds(s.T, "", s.a, "b")
				s.wait(time.Second)
				s.runNow("b")
			},
			acts: []string{"create b"},
		},
		"AsyncLaterStep": {
			reason:  "What an asynchronous create made that failed at a later step is kept while its update waits.",
			async:   true,
			creates: func(s *story, b *v1alpha1.Bucket) error { s.lands(b); return errTag },
			do: func(s *story) {
				s.x.outdated = true
				s.run("b")
				s.run("b", "other", "b")
			},
			holder: "b",
		},
		"AsyncUpdateOnly": {
			reason:  "An asynchronous update runs after a create that failed, and may no longer be repeated.",
			async:   true,
			creates: func(*story, *v1alpha1.Bucket) error { return errQuota },
			do: func(s *story) {
				s.run("b")
				s.wait(time.Second)
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate))
				s.x.outdated = true
				s.x.on("update", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
				s.run("b", "b", "other")
			},
			holder: "b",
			acts:   []string{"create b", "update b"},
		},
		"AsyncObserveOnly": {
			reason:  "Policies are taken away while an asynchronous create runs.",
			async:   true,
			creates: func(*story, *v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil },
			do: func(s *story) {
				s.run("b")
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionObserve))
				s.run("b", "other")
			},
			holder: "b",
			acts:   []string{"create b"},
		},
		"Interrupted": {
			reason: "The create that was interrupted made it after it was observed.", objects: interrupted, opts: deterministic,
			creates: func(s *story, b *v1alpha1.Bucket) error { s.lands(b); return errExists }, holder: "b", then: rivals,
		},
		"InterruptedIsRepeated": {
			reason: "A create that succeeds has a result, also while the one before may be in progress.", objects: interrupted, opts: deterministic,
			do: func(s *story) {
				s.run("b")
				wants(s.T, "", "incomplete", false, meta.ExternalCreateIncomplete(get(s.T, s.a)))
			},
			holder: "b", then: rivals,
		},
		"InterruptedIsSlow": {
			reason: "The create that was interrupted makes it after the next one has failed.", objects: interrupted, opts: deterministic, creates: quota,
			do: func(s *story) { s.run("b"); s.lands(get(s.T, s.a)) }, holder: "b", then: rivals,
		},
		"InterruptedIsOver": {
			reason: "The create that was interrupted cannot be in progress any more.", objects: interrupted, opts: deterministic, creates: quota,
			do: func(s *story) { s.run("b"); s.wait(2 * time.Minute); s.run("b") }, then: rivals,
		},
		"InterruptedTwice": {
			reason: "That of a third process can.", objects: interrupted, opts: deterministic, creates: quota,
			do: func(s *story) {
				s.run("b")
				s.wait(2 * time.Minute)
				s.run("b", "b")
				edit(s.T, s.a, "b", func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now().Add(time.Second)) })
				s.run("b")
			},
			holder: "b", then: rivals,
		},
		"InterruptedAgain": {
			reason: "That of a third process can, also if none was seen to end in between.", objects: interrupted, opts: deterministic, creates: quota,
			do: func(s *story) {
				s.run("b")
				s.wait(2 * time.Minute)
				edit(s.T, s.a, "b", func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) })
				s.run("b")
			},
			holder: "b", then: rivals,
		},
		"NoAnswerThenObserveOnly": {
			reason:  "The request may be on its way, although no other may follow.",
			opts:    deterministic,
			creates: func(*story, *v1alpha1.Bucket) error { return context.DeadlineExceeded },
			do: func(s *story) {
				s.run("b")
				edit(s.T, s.a, "b", policies(xpv2.ManagementActionObserve))
				s.run("b")
			},
			holder: "b",
			then:   rivals,
		},
		"NoAnswer": {
			reason:  "The request may be on its way, whatever the next one leads to. Where a create of unknown outcome would stop the managed resource for good, it is repeated as often as it fails.",
			creates: noAnswer,
			do:      func(s *story) { s.run("b", "b", "b") },
			holder:  "b",
			acts:    []string{"create b", "create b", "create b"},
			then:    rivals,
		},
		"NoAnswerThenRestart": {
			reason: "Nor does the next process know better.", opts: deterministic,
			creates: noAnswer,
			do:      func(s *story) { s.run("b", "b"); s.r = s.process(); s.run("b") },
			holder:  "b",
			then:    rivals,
		},
		"LaterStep": {
			reason: "The error of the create is that of a later step.", opts: deterministic,
			creates: func(s *story, b *v1alpha1.Bucket) error { s.lands(b); return errTag }, holder: "b", then: rivals,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.objects == nil {
					tc.objects = []client.Object{of("b"), of("other")}
				}
				s := &story{T: t, a: testkit.NewAPI(tc.objects...), x: &outside{}, h: &testkit.Said{}, opts: tc.opts}
				s.x.on("create", func(b *v1alpha1.Bucket) error {
					if tc.creates == nil || b.Name == "other" {
						return nil
					}
					return tc.creates(s, b)
				})
				if tc.async {
					s.opts = append(s.opts, WithAsync(newTracker(s.a)))
				}
				s.r = s.process()
				if tc.do == nil {
					s.run("b")
				} else {
					tc.do(s)
				}
				synctest.Wait()
				holds(t, tc.reason, s.a, tc.holder)
				if tc.acts != nil {
					wants(t, tc.reason, "calls", tc.acts, s.x.acts)
				}
				s.run(tc.then...)
				wants(t, tc.reason, "crimes", 0, len(s.x.crimes))

				// What runs ends.
				time.Sleep(time.Hour)
			})
		})
	}
}

// What only a Finder finds of a create that failed is not left to others, either.
func TestReservation_FailedThoughFound(t *testing.T) {
	find := &seeker{finding: asyncstate.Found("id-1")}
	c := clientOf(ExternalClientFns{ObserveFn: existsIfNamed, CreateFn: returns(ExternalCreation{}, errors.New("cannot tag"))})
	cases := map[string]func(a *testkit.API) []ReconcilerOption{
		"Resolver": func(*testkit.API) []ReconcilerOption {
			return []ReconcilerOption{connects(c), WithCreateResolver(find)}
		},
		"Async": func(a *testkit.API) []ReconcilerOption {
			connector := ExternalConnectorFn(func(context.Context, resource.Managed) (ExternalClient, error) {
				return struct {
					ExternalClient
					asyncstate.Finder
				}{&c, find}, nil
			})
			return []ReconcilerOption{WithExternalConnector(connector), WithAsync(newTracker(a))}
		},
	}
	for name, opts := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := testkit.NewAPI(bucket())
				key := WithReservationKey(func(context.Context, resource.Managed) (string, error) { return "key", nil })
				r := newBucketReconciler(a, append(opts(a), WithExternalNameReservation(leaseNamespace, key))...)
				for range 3 {
					run(t, r, "b")
					synctest.Wait()
					wants(t, "", "holders", map[string]string{"key": "b"}, holders(t, a))
				}
			})
		})
	}
}

// A lease that gets lost on the way is noticed before anything is changed.
func TestReservationLostMeanwhile(t *testing.T) {
	for _, call := range []string{"create", "update", "delete"} {
		t.Run(call, func(t *testing.T) {
			a, x := testkit.NewAPI(of("b"), of("thief")), &outside{there: call != "create"}
			r := reserving(a, x)
			if x.there {
				// It was held before.
				run(t, r, "b")
			}
			if call == "delete" {
				remove(t, a, "b")
			}
			x.outdated = true
			x.before = func(string, resource.Managed) error {
				steals(t, a)
				return nil
			}
			run(t, r, "b")
			wants(t, "", "calls", 0, len(x.acts))
			if m := get(t, a).GetCondition(xpv2.TypeSynced).Message; !strings.Contains(m, "reserved by Bucket default/thief") {
				t.Errorf("Synced: got %q", m)
			}
			observed := x.observes
			run(t, r, "b")
			wants(t, "What is known to be lost is not observed.", "observations", observed, x.observes)
		})
	}
}

// steals has another holder take the Lease, for example after a restored backup.
func steals(t *testing.T, a *testkit.API) {
	t.Helper()
	u := emptyLease(leaseNamespace, leaseName(sharedKey))
	_ = a.Server().Delete(context.Background(), u)
	(&leases{namespace: leaseNamespace}).fill(u, sharedKey, holder{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: "Bucket", Namespace: "default", Name: "thief", UID: "uid-2"}, time.Now())
	must(t, a.Server().Create(context.Background(), u))
}

func TestReservation_DeleteAfterOrphan(t *testing.T) {
	const foreign = "example.org/foreign"
	orphan := policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate)
	everything := policies(xpv2.ManagementActionAll)
	cases := map[string]struct {
		reason     string
		finalizers []string
		created    bool
		options    []ReconcilerOption
		taken      bool // Another managed resource has reserved the name meanwhile.
		want       []string
		synced     string
	}{
		"ForeignFinalizer": {reason: "The external resource should be deleted once the policies allow it.", finalizers: []string{FinalizerName, foreign}, created: true, want: []string{"delete b"}},
		"NeverCreated":     {reason: "An external resource that was found should be deleted, too.", finalizers: []string{FinalizerName, foreign}, want: []string{"delete b"}},
		"CustomFinalizer": {
			reason: "The external resource should be deleted whatever removes the finalizer.", finalizers: []string{foreign}, created: true, want: []string{"delete b"},
			options: []ReconcilerOption{WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
			})},
		},
		"Taken": {reason: "Synced should say that another managed resource has reserved the external name.", finalizers: []string{FinalizerName, foreign}, created: true, taken: true, synced: "cannot reserve external name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := of("b", finalizers(tc.finalizers...), deleting, orphan)
			if tc.created {
				annotated(meta.AnnotationKeyExternalCreatePending, "2026-01-02T03:04:04Z")(b)
				annotated(meta.AnnotationKeyExternalCreateSucceeded, "2026-01-02T03:04:05Z")(b)
			}
			a, x := testkit.NewAPI(b, of("thief", func(b *v1alpha1.Bucket) { b.UID = "uid-2" })), &outside{there: true, owner: b.UID}
			r := reserving(a, x, tc.options...)
			for range 2 {
				_, _ = r.Reconcile(t.Context(), request())
			}
			wants(t, tc.reason, "calls while it is orphaned", 0, len(x.acts))
			if tc.taken {
				steals(t, a)
			}

			b = get(t, a)
			everything(b)
			must(t, a.Server().Update(t.Context(), b))
			for range 4 {
				_, _ = r.Reconcile(t.Context(), request())
			}
			wants(t, tc.reason, "calls", tc.want, x.acts)
			if tc.synced == "" {
				holds(t, tc.reason, a, "")
				return
			}
			wants(t, tc.reason, "Synced", true, strings.Contains(get(t, a).GetCondition(xpv2.TypeSynced).Message, tc.synced))
		})
	}
}

// A name is kept while a create that was begun under it is in progress.
func TestReservation_RenamedWhileCreated(t *testing.T) {
	another := strings.Replace(sharedKey, "shared", "another", 1)
	cases := map[string]struct {
		reason  string
		names   bool // The create does, rather than another writer.
		orphans bool // It is deleted meanwhile, without its external resource.
		want    map[string]string
	}{
		"Created":  {reason: "It is the name of what was created.", want: map[string]string{sharedKey: "b"}},
		"Named":    {reason: "Of two names of its own it has the last.", names: true, want: map[string]string{another: "b"}},
		"Orphaned": {reason: "What is left alone is left to others.", orphans: true, want: map[string]string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, x := testkit.NewAPI(of("b")), &outside{}
				x.on("create", func(*v1alpha1.Bucket) error { time.Sleep(time.Minute); return nil })
				c := x.client()
				create := c.CreateFn
				c.CreateFn = func(ctx context.Context, mg resource.Managed) (ExternalCreation, error) {
					if tc.names {
						must(t, asyncstate.SetExternalName(ctx, "another"))
					}
					return create(ctx, mg)
				}
				r := reserving(a, x, WithAsync(newTracker(a)), connects(c))
				run(t, r, "b")
				synctest.Wait()
				if !tc.names {
					edit(t, a, "b", named("another"))
				}
				run(t, r, "b")
				wants(t, tc.reason, "holders while it is created", map[string]string{sharedKey: "b", another: "b"}, holders(t, a))
				if tc.orphans {
					edit(t, a, "b", policies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate))
					remove(t, a, "b")
				} else {
					time.Sleep(2 * time.Minute)
				}
				run(t, r, "b", "b")
				wants(t, tc.reason, "holders", tc.want, holders(t, a))
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// A managed resource that may change nothing holds nothing.
func TestReservationNeedsAnAction(t *testing.T) {
	cases := map[string]struct {
		reason   string
		policies []xpv2.ManagementAction
		holder   string
	}{
		"Observe":     {reason: "It only looks.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve}, holder: "next"},
		"Import":      {reason: "It writes only to itself.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionLateInitialize}, holder: "next"},
		"Delete":      {reason: "It may delete.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete}, holder: "owner"},
		"Update":      {reason: "It may update.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}, holder: "owner"},
		"Unspecified": {reason: "It may do everything.", policies: []xpv2.ManagementAction{xpv2.ManagementActionAll}, holder: "owner"},
	}
	for name, tc := range cases {
		for _, restarted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarted=%t", name, restarted), func(t *testing.T) {
				a, x := testkit.NewAPI(of("owner"), of("next")), &outside{}
				r := reserving(a, x)
				run(t, r, "owner", "owner", "next")
				wants(t, tc.reason, "condition of the second", corev1.ConditionFalse, bucketNamed(t, a, "next").GetCondition(TypeExternalNameReserved).Status)

				// A hand-over: the first one is only to look from now on.
				edit(t, a, "owner", policies(tc.policies...))
				if restarted {
					r = reserving(a, x)
				}
				a.Forget()
				run(t, r, "owner")
				if tc.holder == "next" && !restarted {
					about := slices.DeleteFunc(a.Requests(), func(r testkit.Request) bool { return !isLease(r.Object) })
					wants(t, "What is known of the lease saves a read.", "requests for leases", 1, len(about))
				}
				run(t, r, "next")
				holds(t, tc.reason, a, tc.holder)
				a.Forget()
				run(t, r, "owner")
				wants(t, tc.reason, "requests of a steady state but for cached reads", 0, len(a.Requests()))
				edit(t, a, "next", policies(xpv2.ManagementActionObserve))
				run(t, r, "next")
				got := bucketNamed(t, a, "next").GetCondition(TypeExternalNameReserved)
				wants(t, "What only looks says neither that it is blocked nor that it has the name.", "condition", []any{corev1.ConditionUnknown, ReasonReservationNotNeeded}, []any{got.Status, got.Reason})
			})
		}
	}
}

// A second one that is deleted goes, unless it may have an external resource of its own.
func TestReservationOfWhatIsDeleted(t *testing.T) {
	const pending, succeeded, failed = meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed
	at := time.Now().Add(-time.Hour).UTC()
	cases := map[string]struct {
		reason string
		stamps map[string]time.Duration
		gone   bool
	}{
		"NeverCreated":  {reason: "There is nothing of its own.", gone: true},
		"AllFailed":     {reason: "Nor is there if its creates failed.", stamps: map[string]time.Duration{pending: 0, failed: time.Second}, gone: true},
		"FailedAtOnce":  {reason: "In the second in which they were announced, too.", stamps: map[string]time.Duration{pending: 0, failed: 0}, gone: true},
		"Succeeded":     {reason: "What it created must not be forgotten.", stamps: map[string]time.Duration{pending: 0, succeeded: time.Second}},
		"SucceededOnce": {reason: "Also if a later create failed.", stamps: map[string]time.Duration{succeeded: 0, pending: time.Minute, failed: 2 * time.Minute}},
		"Unknown":       {reason: "Nor what it may have created.", stamps: map[string]time.Duration{failed: 0, pending: time.Minute}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			blocked := of("blocked", deleting, finalizers(FinalizerName))
			for key, d := range tc.stamps {
				annotated(key, at.Add(d).Format(time.RFC3339))(blocked)
			}
			a, x := testkit.NewAPI(of("owner"), blocked), &outside{}
			run(t, reserving(a, x, WithDeterministicExternalName(true), WithDeletionConfirmation(5, interval)), "owner", "blocked")
			obeys(t, x, "create owner")
			holds(t, tc.reason, a, "owner")
			b := bucketNamed(t, a, "blocked")
			wants(t, tc.reason, "gone", tc.gone, b.GetName() == "")
			if !tc.gone {
				wants(t, tc.reason, "reason", reconciler.ReasonObserveFailed, b.GetCondition(reconciler.TypeDeleting).Reason)
			}
		})
	}
}

// The garbage collector deletes what the holder owns while the external resource still exists.
func TestReservationOutlivesForegroundDeletion(t *testing.T) {
	const name = leaseNamespace + "/b"
	for reason, collected := range map[string]bool{"The lease must not be collected.": false, "The garbage collector was first.": true} {
		a := testkit.NewAPI(of("b", in(leaseNamespace)))
		r := reserving(a, &outside{})
		run(t, r, name)
		l := leasesIn(t, a)[sharedKey]
		owners := []metav1.OwnerReference{{APIVersion: testkit.BucketKind().GroupVersion().String(), Kind: "Bucket", Name: "b", UID: "uid-1"}}
		wants(t, reason, "owners before", owners, l.GetOwnerReferences())
		edit(t, a, name, finalizers(FinalizerName, metav1.FinalizerDeleteDependents))
		remove(t, a, name)
		if collected {
			must(t, a.Server().Delete(context.Background(), &l))
		}
		run(t, r, name)
		holds(t, reason, a, "b")
		l = leasesIn(t, a)[sharedKey]
		wants(t, reason, "owners", 0, len(l.GetOwnerReferences()))
		edit(t, a, name, finalizers(FinalizerName))
		repeat(t, r, 3, name)
		holds(t, reason, a, "")
	}
}

// A lease that others write is tried five times, and released only by its holder.
func TestLeases(t *testing.T) {
	gr := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mine := holder{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}
	theirs := holder{APIVersion: "v1", Kind: "Bucket", Name: "theirs", UID: "uid-theirs"}
	now := newClock().now
	hasNone := func(t *testing.T, a *testkit.API) {
		t.Helper()
		u := emptyLease(leaseNamespace, leaseName("key"))
		(&leases{namespace: leaseNamespace}).fill(u, "key", holder{}, now)
		must(t, a.Server().Create(t.Context(), u))
	}
	deleted := func(t *testing.T, a *testkit.API) {
		t.Helper()
		must(t, a.Server().Delete(t.Context(), emptyLease(leaseNamespace, leaseName("key"))))
	}
	rewritten := func(fn func(u *unstructured.Unstructured)) func(t *testing.T, a *testkit.API) {
		return func(t *testing.T, a *testkit.API) {
			t.Helper()
			u := leasesIn(t, a)["key"]
			fn(&u)
			must(t, a.Server().Update(t.Context(), &u))
		}
	}
	labelled := rewritten(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"a": "b"}) })
	type want struct {
		Holders map[string]string
		Writes  int
		Err     string
	}
	held, none := map[string]string{"key": "mine"}, map[string]string{}
	cases := map[string]struct {
		reason  string
		given   func(t *testing.T, a *testkit.API)
		release bool                               // What is held.
		renews  bool                               // What is held, or make sure that no other process releases it.
		since   func(t *testing.T, a *testkit.API) // It was held.
		unread  bool                               // Reads fail.
		forget  bool                               // What is in memory.
		then    func(t *testing.T, a *testkit.API) // Before the first write.
		err     error                              // What writes end in, the first n of them.
		n       int
		want    want
	}{
		"New":              {reason: "A lease that does not exist is created.", want: want{Holders: held, Writes: 1}},
		"Released":         {reason: "A lease that has no holder is updated.", given: hasNone, want: want{Holders: held, Writes: 1}},
		"CreatedMeanwhile": {reason: "A lease that was created meanwhile is read again.", then: hasNone, want: want{Holders: held, Writes: 2}},
		"DeletedMeanwhile": {reason: "A lease that was deleted meanwhile is created again.", given: hasNone, then: deleted, want: want{Holders: held, Writes: 2}},
		"Conflict":         {reason: "After a conflict the lease is read again.", given: hasNone, err: kerrors.NewConflict(gr, "x", nil), n: 1, want: want{Holders: held, Writes: 2}},
		"Conflicts":        {reason: "After five attempts it is an error.", given: hasNone, err: kerrors.NewConflict(gr, "x", nil), n: 9, want: want{Holders: map[string]string{"key": ""}, Writes: 5, Err: "too many conflicting writes (5 attempts)"}},
		"NoNamespace":      {reason: "A lease can't be created in a namespace that does not exist.", err: kerrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, leaseNamespace), n: 9, want: want{Holders: none, Writes: 1, Err: "does the namespace exist?"}},
		"Forbidden":        {reason: "Another error is returned at once.", err: kerrors.NewForbidden(gr, "x", nil), n: 9, want: want{Holders: none, Writes: 1, Err: "cannot write lease"}},
		"ReleaseForbidden": {reason: "Nor is one that can't be released.", release: true, err: kerrors.NewForbidden(gr, "x", nil), n: 9, want: want{Holders: held, Writes: 1, Err: "cannot delete lease"}},
		"Unread":           {reason: "A lease that can't be read is not known to be free.", unread: true, want: want{Holders: none, Err: "cannot read lease"}},
		"ReleaseUnread":    {reason: "Nor to be released.", release: true, forget: true, unread: true, want: want{Holders: held, Err: "cannot read lease"}},
		"Release":          {reason: "The holder releases its lease.", release: true, want: want{Holders: none, Writes: 1}},
		"ReleaseUnknown":   {reason: "Also if nothing is in memory.", release: true, forget: true, want: want{Holders: none, Writes: 1}},
		"Rewritten":        {reason: "Also if another writer has changed it since.", release: true, then: labelled, want: want{Holders: none, Writes: 2}},
		"TakenOver": {
			reason:  "A lease that another holder has taken over since stays.",
			release: true,
			then:    rewritten(func(u *unstructured.Unstructured) { (&leases{namespace: leaseNamespace}).fill(u, "key", theirs, now) }),
			want:    want{Holders: map[string]string{"key": "theirs"}, Writes: 1},
		},
		"Kept":    {reason: "What this process wrote last is its own.", renews: true, want: want{Holders: held}},
		"Renewed": {reason: "What another process may have written since is written again.", renews: true, since: labelled, want: want{Holders: held, Writes: 1}},
		"Gone":    {reason: "What isn't there needs nothing.", release: true, then: deleted, want: want{Holders: none, Writes: 1}},
		"GoneToo": {reason: "Nor does what is known to be gone.", release: true, forget: true, since: deleted, want: want{Holders: none}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI()
			if tc.given != nil {
				tc.given(t, a)
			}
			l, known, err := &leases{client: a.Client(), live: a.Live(), namespace: leaseNamespace}, lease{}, error(nil)
			if tc.release || tc.renews {
				known, err = l.hold(t.Context(), "key", mine, lease{}, false, now)
				must(t, err)
			}
			if tc.since != nil {
				tc.since(t, a)
			}
			var got want
			a.Before = func(_ context.Context, r testkit.Request) error {
				switch {
				case !isWrite(r) && tc.unread:
					return serverError()
				case !isWrite(r):
					return nil
				}
				if got.Writes++; got.Writes == 1 && tc.then != nil {
					tc.then(t, a)
				}
				if got.Writes <= tc.n {
					return tc.err
				}
				return nil
			}
			if tc.forget {
				known = lease{name: leaseName("key")}
			}
			if tc.unread {
				if _, _, err := l.check(t.Context(), "key", theirs); err == nil || !strings.Contains(err.Error(), tc.want.Err) {
					t.Errorf("\n%s\ncheck(...): %v", tc.reason, err)
				}
			}
			if tc.release {
				_, err = l.release(t.Context(), known, mine, never)
			} else {
				_, err = l.hold(t.Context(), "key", mine, known, tc.renews, now)
			}
			if err != nil {
				got.Err = tc.want.Err
				if tc.want.Err == "" || !strings.Contains(err.Error(), tc.want.Err) {
					got.Err = err.Error()
				}
			}
			if got.Holders = holders(t, a); got.Holders["key"] == mine.Name {
				l := leasesIn(t, a)["key"]
				wants(t, "The lease of what is cluster-scoped is owned by it.", "owners", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Bucket", Name: "mine", UID: "uid-mine"}}, l.GetOwnerReferences())
			}
			wants(t, tc.reason, "holders, writes, error", tc.want, got)
		})
	}
}

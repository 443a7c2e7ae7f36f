//go:build integration

package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	gocmp "github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	inUseLabel     = "crossplane.io/in-use" // Crossplane's own.
	reportsAMinute = 6                      // With the intervals that production has.
)

// A claim is deleted in the foreground. Of the objects that its composite resource
// composes, one has another controller's finalizer, one is paused, one is in use,
// and two are deleted. Each state is reported, and then nothing is written nor read,
// also by a process that comes after another.
func TestClaimDeletion(t *testing.T) {
	s := newPlatform(t)
	tr, often := &traffic{}, []reconciler.Option{reconciler.WithReportInterval(time.Second)}
	x := startCrossplane(t, crossplaneSetup{requests: tr, options: often})
	claims, composites := watchKind(t, platformResource("apps")), watchKind(t, platformResource("xapps"))
	held, paused, protected := v1alpha1.NewDatabase("shop-held"), v1alpha1.NewDatabase("shop-paused"),
		v1alpha1.NewDatabase("shop-protected")
	all := []sample.Instance{
		v1alpha1.NewDatabase("shop-cache"), held, paused, protected, v1alpha1.NewDatabase("shop-queue"),
	}
	shop := s.newApp(t, "shop", objects(all)...)
	start(t, graft, setup{connectors: syncConnectors(cloud.New(cloud.Options{}))})
	s.until(t, "all show Available", all, isAvailable)
	s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q,%q]}}`, managedFinalizer, otherFinalizer), held)
	s.merge(t, `{"metadata":{"annotations":{"`+meta.AnnotationKeyReconciliationPaused+`":"true"}}}`, paused)
	s.until(t, "it is paused", []sample.Instance{paused}, func(mg sample.Instance) bool {
		return mg.GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused
	})
	s.forbidDeletion(t, inUseLabel)
	s.merge(t, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, inUseLabel), protected)
	eventually(t, "it is protected", func() (bool, string) {
		return s.Delete(t.Context(), protected.DeepCopy(), client.DryRunAll) != nil, ""
	})
	claims.until(t, "shop", "it is Available", isReady)
	composites.until(t, "shop-x", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), shop.claim))
	restart := func() {
		t.Helper()
		x.stop()
		versions := s.versions(t, shop)
		next := &traffic{}
		x = startCrossplane(t, crossplaneSetup{requests: next, options: often})
		x.wait(t, reportsAMinute, shop.claim, shop.composite)
		if diff := gocmp.Diff(versions, s.versions(t, shop)); next.Counted().Writes() != 0 || diff != "" {
			t.Errorf(
				"nothing has changed: want no write, got %v; resourceVersions: -before, +after:\n%s",
				next.Counted(),
				diff,
			)
		}
		tr = next
	}
	const (
		isHeld   = "Database/shop-held since T: WaitingForFinalizers: Waiting for other controllers to remove their finalizers: example.org/other. "
		isPaused = "Database/shop-paused since T: BlockedByPause: Reconciliation is paused, and deletion with it. To continue, remove the annotation crossplane.io/paused, or allow management policies."
		inUse    = "Database/shop-protected: protected by a Usage."
	)
	steps := []struct {
		reason, want, message string
		do                    func()
	}{
		{
			"Three are left, each with its own reason, protection first.",
			"BlockedByProtection",
			"2 of 5 dependents deleted, 40%. " + inUse + " " + isHeld + isPaused,
			func() {},
		},
		{
			"The next process finds said what it would say.",
			"BlockedByProtection",
			"2 of 5 dependents deleted, 40%. " + inUse + " " + isHeld + isPaused,
			restart,
		},
		{
			"Two are left.",
			"BlockedByProtection",
			"3 of 5 dependents deleted, 60%. " + inUse + " " + isPaused,
			func() { s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, managedFinalizer), held) },
		},
		{
			"One is left. Its Usage is deleted, and with it what was to be deleted meanwhile.", "WaitingForDependents",
			"4 of 5 dependents deleted, 80%. " + isPaused,
			func() {
				s.merge(t, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, inUseLabel), protected)
				s.remove(t, protected)
			},
		},
	}
	for _, step := range steps {
		step.do()
		want := said{
			"True", step.want, "0 of 1 dependents deleted, 0%. XApp/shop-x since T: " + step.want + ": " + step.message,
		}
		claims.until(
			t,
			"shop",
			step.reason+" "+want.Message,
			func(s sight) bool { return saysOf(s.Unstructured, reconciler.TypeDeleting) == want },
		)
		if diff := gocmp.Diff(
			said{"True", step.want, step.message}, saysOf(read(t, s, shop.composite), reconciler.TypeDeleting),
		); diff != "" {
			t.Errorf("\n%s\ncomposite resource: -want, +got:\n%s", step.reason, diff)
		}
		if diff := gocmp.Diff(
			said{"False", "Deleting", want.Message}, saysOf(read(t, s, shop.claim), xpv2.TypeReady),
		); diff != "" {
			t.Errorf("\n%s\nReady of the claim: -want, +got:\n%s", step.reason, diff)
		}
		comesToRest(t, s, x, tr, shop)
	}
	s.merge(t, `{"metadata":{"annotations":{"`+meta.AnnotationKeyReconciliationPaused+`":null}}}`, paused)
	claims.until(t, "shop", "it is gone", isGone)
	composites.until(t, "shop-x", "it is gone", isGone)
	for _, seen := range [][]sight{claims.of("shop"), composites.of("shop-x")} {
		var gone []int
		for _, now := range seen {
			if m := regexp.MustCompile(`(\d) of 5 dependents deleted`).FindStringSubmatch(saysOf(
				now.Unstructured, reconciler.TypeDeleting,
			).Message); m != nil {
				n, _ := strconv.Atoi(m[1])
				gone = append(gone, n)
			}
		}
		if len(gone) == 0 || !slices.IsSorted(gone) {
			t.Errorf("want numbers of what is gone that rise, got %v", gone)
		}
	}
}

// forbidDeletion makes the API server refuse to delete objects with a label, as
// Crossplane's webhook does with objects that are in use.
func (s server) forbidDeletion(t *testing.T, label string) {
	t.Helper()
	named := metav1.ObjectMeta{Name: "no-usages"}
	s.createFor(t,
		&admissionregv1.ValidatingAdmissionPolicy{ObjectMeta: named, Spec: admissionregv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}},
				ResourceRules: []admissionregv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregv1.RuleWithOperations{
						Operations: []admissionregv1.OperationType{admissionregv1.Delete},
						Rule: admissionregv1.Rule{
							APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"*"},
						},
					},
				}},
			},
			Validations: []admissionregv1.Validation{
				{Expression: "false", Message: "This resource is in-use by 1 usage(s)."},
			},
		}},
		&admissionregv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: named,
			Spec: admissionregv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        named.Name,
				ValidationActions: []admissionregv1.ValidationAction{admissionregv1.Deny},
			},
		})
}

// comesToRest checks that, after what led here, nothing is written any more, nor read
// from the API server, for as many reports as production makes in a minute. A late write
// may disturb four such periods.
func comesToRest(t *testing.T, s server, x *crossplaneProcess, tr *traffic, a app) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		before, versions := tr.Counted(), s.versions(t, a)
		x.wait(t, reportsAMinute, a.claim, a.composite)
		made, diff := tr.Since(before), gocmp.Diff(versions, s.versions(t, a))

		// The API server ends the watch of a slow client at an unknown time.
		if made.Sum(func(c call) bool { return !c.Watch }) == 0 && diff == "" {
			return
		}
		if attempt == 5 {
			t.Errorf(
				"nothing changes, but it doesn't come to rest: %v, resourceVersions: -before, +after:\n%s", made, diff,
			)
			return
		}
	}
}

func (s server) versions(t *testing.T, a app) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range append([]client.Object{a.claim, a.composite}, a.composed...) {
		gvk, err := apiutil.GVKForObject(o, s.Scheme())
		must(t, "GVKForObject()", err)
		u := object(gvk, o.GetNamespace(), o.GetName())
		must(t, "Get()", client.IgnoreNotFound(s.Get(t.Context(), client.ObjectKeyFromObject(o), u)))
		out[o.GetName()] = u.GetResourceVersion()
	}
	return out
}

// A watch of a claim shows that it is being deleted before the reconciler that does
// the work has done anything, and soon.
func TestClaimDeletionIsSeenAtOnce(t *testing.T) {
	const deletions = 30
	s := newPlatform(t)
	startCrossplane(t, crossplaneSetup{})
	claims, composites := watchKind(t, platformResource("apps")), watchKind(t, platformResource("xapps"))
	took := make([]time.Duration, deletions)
	for i := range took {
		name := fmt.Sprintf("seen-%d", i)
		a := s.newApp(t, name)
		claims.until(t, name, "it is Available", isReady)
		composites.until(t, a.composite.GetName(), "it is Available", isReady)
		began := time.Now()
		must(t, "Delete()", s.Delete(t.Context(), a.claim))
		said := claims.until(t, name, "it is being deleted", func(s sight) bool {
			return saysOf(s.Unstructured, xpv2.TypeReady).String() == "False/Deleting" &&
				saysOf(s.Unstructured, reconciler.TypeDeleting).String() == "True/DeletionRequested"
		})
		took[i] = said.at.Sub(began)
		done := composites.until(
			t,
			a.composite.GetName(),
			"it is being deleted",
			func(s sight) bool { return s.gone || meta.WasDeleted(s.Unstructured) },
		)

		// The versions of all kinds have one order, on which the seams rely, too.
		if c, err := resourceversion.CompareResourceVersion(
			said.GetResourceVersion(), done.GetResourceVersion(),
		); c != -1 || err != nil {
			t.Errorf(
				"%s: its reconciler should not have deleted anything when its deletion is seen: %d, %v", name, c, err,
			)
		}
		claims.until(t, name, "it is gone", isGone)
	}
	slices.Sort(took)
	if got := took[deletions/2]; got > 100*time.Millisecond {
		t.Errorf("want half of %d within 100 ms, got %s", deletions, got)
	}
}

// A composite resource composes three objects: Crossplane may not read the first, the
// second has another controller's finalizer, and the third is of an undefined kind. Each
// is reported, and the deletion proceeds without extra delay.
func TestDeletionOfWhatMayNotBeRead(t *testing.T) {
	const user = "crossplane"
	s := newPlatform(t)
	everything, named := []string{"*"}, metav1.ObjectMeta{Name: user}
	s.createFor(t,
		&rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{platformGroup}, Resources: everything, Verbs: everything},
			{
				APIGroups: []string{v1alpha1.Group},
				Resources: []string{"databases"},
				Verbs:     []string{"get", "list", "watch"},
			},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: named,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		})
	x := startCrossplane(
		t,
		crossplaneSetup{
			user: user, options: []reconciler.Option{reconciler.WithReportInterval(time.Second)},
		},
	)
	w := watchKind(t, platformResource("xapps"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-secret"}}
	held := v1alpha1.NewDatabase("held")
	held.SetFinalizers([]string{otherFinalizer})
	xr := object(xappKind(), "", "dark")
	must(t, "cannot compose", s.compose(t.Context(), xr, secret, held))

	was := read(t, s, xr)
	changed := was.DeepCopy()
	refs, _, err := unstructured.NestedSlice(changed.Object, "spec", "resourceRefs")
	must(t, "cannot read what it refers to", err)
	refs = append(refs, map[string]any{"apiVersion": "nowhere.example.org/v1", "kind": "Nothing", "name": "nothing"})
	must(
		t, "cannot change what it refers to", unstructured.SetNestedSlice(changed.Object, refs, "spec", "resourceRefs"),
	)
	must(t, "Patch()", s.Patch(t.Context(), changed, client.MergeFrom(was)))
	w.until(t, "dark", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), xr, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	const want = "0 of 3 dependents deleted, 0%. Nothing/nothing: unknown: no such kind. Secret/a-secret in default: unknown: forbidden. " +
		"Database/held since T: held by example.org/other."
	said := w.until(
		t, "dark", want, func(s sight) bool { return saysOf(s.Unstructured, reconciler.TypeDeleting).Message == want },
	)
	if meta.FinalizerExists(said, crossplane.FinalizerComposite) {
		t.Error("What can't be read should not keep the reconciler from its work.")
	}

	// A cache that may not watch a kind doesn't come back of its own accord. Each
	// report that waited for it would take a second.
	const reports = 10
	began := time.Now()
	x.wait(t, reports, xr)
	if took := time.Since(began); took > reports*3*time.Second/2 { // There is one a second.
		t.Errorf("want reports that don't wait for what can't be read, got %d in %s", reports, took)
	}
	must(t, "Patch()", s.Patch(t.Context(), held, mergePatch(`{"metadata":{"finalizers":null}}`)))
	w.until(t, "dark", "it is gone", isGone)
}

// A composite resource that is stuck in its deletion is orphaned. Its managed
// resources and their external resources stay, although there is a garbage collector.
func TestForceOrphanKeepsManagedResources(t *testing.T) {
	s := newPlatform(t)
	world := cloud.New(cloud.Options{})
	start(t, graft, setup{connectors: syncConnectors(world)})
	startCrossplane(t, crossplaneSetup{options: []reconciler.Option{reconciler.WithForceOrphan(otherFinalizer)}})
	w := watchKind(t, platformResource("stacks"))
	xr := object(stackKind(), namespace, "stuck")
	xr.SetFinalizers([]string{otherFinalizer})
	composed := []sample.Instance{v1alpha1.NewBucket(namespace, "kept-0"), v1alpha1.NewBucket(namespace, "kept-1")}
	must(t, "cannot compose", s.compose(t.Context(), xr, objects(composed)...))
	s.until(t, "they are Available", composed, isAvailable)
	w.until(t, "stuck", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), xr))
	uid := string(xr.GetUID())
	w.until(t, "stuck", "it says how to orphan it", func(s sight) bool {
		return strings.Contains(saysOf(s.Unstructured, reconciler.TypeDeleting).Message,
			"graft.crossplane.io/force-orphan="+uid+": that removes "+otherFinalizer+", and deletes nothing.")
	})
	must(
		t,
		"Patch()",
		s.Patch(
			t.Context(), xr, mergePatch(`{"metadata":{"annotations":{"graft.crossplane.io/force-orphan":"`+uid+`"}}}`),
		),
	)
	w.until(t, "stuck", "it is gone", isGone)

	// An object without an owner is never collected.
	for _, mg := range composed {
		if got := read(t, s, mg); meta.WasDeleted(got) || len(got.GetOwnerReferences()) > 0 {
			t.Errorf(
				"%s: want no deletion and no owner, got %v and %v",
				mg.GetName(),
				got.GetDeletionTimestamp(),
				got.GetOwnerReferences(),
			)
		}
	}
	if diff := gocmp.Diff(
		[]int{len(composed), 0}, []int{len(world.Inventory()), world.Counts()[cloud.OpDelete]},
	); diff != "" {
		t.Errorf("external resources, deletions: -want, +got:\n%s", diff)
	}
}

//go:build integration

package integration

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	gocmp "github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// quietEnv is for how long nothing may be written, in real time and with the
// intervals that production has.
const quietEnv = "GRAFT_QUIET"

const (
	// inUseLabel is what Crossplane labels objects with that are in use.
	inUseLabel = "crossplane.io/in-use"

	// reportsAMinute is how many there are with the intervals that production has.
	reportsAMinute = 6

	// freed and unpaused are patches that let go of what is deleted.
	freed    = `{"metadata":{"finalizers":["` + managedFinalizer + `"]}}`
	unpaused = `{"metadata":{"annotations":{"` + meta.AnnotationKeyReconciliationPaused + `":null}}}`

	// restAttempts is how often a period of that many reports may be disturbed by
	// a late write.
	restAttempts = 5
)

// shop is a claim with five composed resources that nothing is wrong with.
type shop struct {
	app

	held, paused, protected *v1alpha1.Database
}

// newShop creates one, starts a provider of what is composed, and arranges what
// will hold three of the five.
func newShop(t *testing.T, s server, provider flavour) *shop {
	t.Helper()
	out := &shop{
		held:      v1alpha1.NewDatabase("shop-held"),
		paused:    v1alpha1.NewDatabase("shop-paused"),
		protected: v1alpha1.NewDatabase("shop-protected"),
	}
	all := []sample.Instance{v1alpha1.NewDatabase("shop-cache"), out.held, out.paused, out.protected, v1alpha1.NewDatabase("shop-queue")}
	composed := make([]client.Object, 0, len(all))
	for _, mg := range all {
		composed = append(composed, mg)
	}
	out.app = s.newApp(t, "shop", composed...)
	start(t, provider, setup{connectors: syncConnectors(cloud.New(cloud.Options{}))})
	s.until(t, "all show Available", all, isAvailable)
	s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q,%q]}}`, managedFinalizer, otherFinalizer), out.held)
	s.annotate(t, meta.AnnotationKeyReconciliationPaused, "true", out.paused)
	s.until(t, "it is paused", []sample.Instance{out.paused}, func(mg sample.Instance) bool {
		return mg.GetCondition(xpv2.TypeSynced).Reason == xpv2.ReasonReconcilePaused
	})
	s.forbidDeletion(t, inUseLabel)
	s.merge(t, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, inUseLabel), out.protected)
	eventually(t, "it is protected", func() (bool, string) {
		return s.Delete(t.Context(), out.protected.DeepCopy(), client.DryRunAll) != nil, ""
	})
	return out
}

// unprotect what is in use: its Usage is deleted, and with it, as Crossplane does,
// what was to be deleted meanwhile.
func (sh *shop) unprotect(t *testing.T, s server) {
	t.Helper()
	s.merge(t, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, inUseLabel), sh.protected)
	s.remove(t, sh.protected)
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
				ResourceRules: []admissionregv1.NamedRuleWithOperations{{RuleWithOperations: admissionregv1.RuleWithOperations{
					Operations: []admissionregv1.OperationType{admissionregv1.Delete},
					Rule:       admissionregv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
				}}},
			},
			Validations: []admissionregv1.Validation{{Expression: "false", Message: "This resource is in-use by 1 usage(s)."}},
		}},
		&admissionregv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named, Spec: admissionregv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        named.Name,
			ValidationActions: []admissionregv1.ValidationAction{admissionregv1.Deny},
		}})
}

// A claim is deleted in the foreground. Of the objects that its composite resource
// composes, one has another controller's finalizer, one is paused, one is in use,
// and two are deleted.
func TestClaimDeletionSaysWhy(t *testing.T) {
	const header = "0 of 1 dependents deleted, 0%. XApp/shop-x since T: "
	cases := map[string]struct {
		provider flavour
		// want is what is said of what is left, as things go.
		want [3]said
	}{
		"ProviderWithoutGraft": {
			provider: upstream,
			want: [3]said{
				{"True", "BlockedByProtection", "2 of 5 dependents deleted, 40%. Database/shop-protected: protected by a Usage. " +
					"Database/shop-paused since T: its reconciliation is paused. " +
					"Database/shop-held since T: held by example.org/other, finalizer.managedresource.crossplane.io."},
				{"True", "BlockedByProtection", "3 of 5 dependents deleted, 60%. Database/shop-protected: protected by a Usage. " +
					"Database/shop-paused since T: its reconciliation is paused."},
				{"True", "BlockedByProtection", "4 of 5 dependents deleted, 80%. Database/shop-protected: protected by a Usage."},
			},
		},
		"ProviderWithGraft": {
			provider: graft,
			want: [3]said{
				{"True", "BlockedByProtection", "2 of 5 dependents deleted, 40%. Database/shop-protected: protected by a Usage. " +
					"Database/shop-held since T: WaitingForFinalizers: Waiting for other controllers to remove their finalizers: example.org/other. " +
					"Database/shop-paused since T: BlockedByPause: Reconciliation is paused, and deletion with it. To continue, remove the annotation crossplane.io/paused, or allow management policies."},
				{"True", "BlockedByProtection", "3 of 5 dependents deleted, 60%. Database/shop-protected: protected by a Usage. " +
					"Database/shop-paused since T: BlockedByPause: Reconciliation is paused, and deletion with it. To continue, remove the annotation crossplane.io/paused, or allow management policies."},
				{"True", "BlockedByProtection", "4 of 5 dependents deleted, 80%. Database/shop-protected: protected by a Usage."},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newPlatform(t)
			tr := &traffic{}
			x := startCrossplane(t, crossplaneSetup{interval: 50 * time.Millisecond, requests: tr})
			claims, composites := watchKind(t, platformResource("apps")), watchKind(t, platformResource("xapps"))
			shop := newShop(t, s, tc.provider)
			claims.until(t, "shop", "it is Available", isReady)
			composites.until(t, "shop-x", "it is Available", isReady)
			must(t, "Delete()", s.Delete(t.Context(), shop.claim))
			steps := []struct {
				reason string
				do     func()
			}{
				{"Three are left, each with its own reason, protection first.", func() {}},
				{"Two are left.", func() { s.merge(t, freed, shop.held) }},
				{"One is left.", func() {
					s.merge(t, unpaused, shop.paused)
				}},
			}
			for i, step := range steps {
				step.do()
				want := said{"True", tc.want[i].Reason, header + tc.want[i].Reason + ": " + tc.want[i].Message}
				claims.until(t, "shop", step.reason+" "+want.Message, func(s sight) bool { return saysOf(s.Unstructured, reconciler.TypeDeleting) == want })
				xr, cm := read(t, s, shop.composite), read(t, s, shop.claim)
				if diff := gocmp.Diff(tc.want[i], saysOf(xr, reconciler.TypeDeleting)); diff != "" {
					t.Errorf("\n%s\ncomposite resource: -want, +got:\n%s", step.reason, diff)
				}
				if diff := gocmp.Diff(said{"False", "Deleting", want.Message}, saysOf(cm, xpv2.TypeReady)); diff != "" {
					t.Errorf("\n%s\nReady of the claim: -want, +got:\n%s", step.reason, diff)
				}
				comesToRest(t, s, x, tr, reportsAMinute, shop.app)
			}
			shop.unprotect(t, s)
			claims.until(t, "shop", "it is gone", isGone)
			composites.until(t, "shop-x", "it is gone", isGone)
			progressed(t, "composite resource", composites.of("shop-x"), 5)
			progressed(t, "claim", claims.of("shop"), 5)
		})
	}
}

// comesToRest checks that, after what led here, nothing is written any more, nor read
// from the API server, however often Crossplane looks.
func comesToRest(t *testing.T, s server, x *crossplaneProcess, tr *traffic, rounds int, a app) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		before, versions := tr.Counted(), s.versions(t, a)
		reports := []int{x.count(a.claim), x.count(a.composite)}
		x.wait(t, rounds, a.claim, a.composite)
		switch diff := noise(t, s, tr, before, versions, a); {
		case diff == "":
			t.Logf("%d reports of the claim and %d of the composite resource", x.count(a.claim)-reports[0], x.count(a.composite)-reports[1])
			return
		case attempt == restAttempts:
			t.Errorf("nothing changes, but it doesn't come to rest: %s", diff)
			return
		}
	}
}

// noise says what was asked of the API server since, and what changed.
func noise(t *testing.T, s server, tr *traffic, before counts, versions map[string]string, a app) string {
	t.Helper()
	var out []string
	if made := tr.Since(before); len(made) > 0 {
		out = append(out, fmt.Sprintf("requests: %v", made))
	}
	if diff := gocmp.Diff(versions, s.versions(t, a)); diff != "" {
		out = append(out, "resourceVersions: -before, +after:\n"+diff)
	}
	return strings.Join(out, ", ")
}

// Nothing is written either for as many reports as production makes in a minute,
// GRAFT_QUIET=1m making it a real minute with the intervals that production has. A
// process that comes after another finds said what it would say, and says no more
// than what happened in between.
func TestClaimDeletionQuietMinute(t *testing.T) {
	real, err := time.ParseDuration(cmp.Or(os.Getenv(quietEnv), "0s"))
	must(t, quietEnv, err)
	set := crossplaneSetup{interval: 50 * time.Millisecond}
	if real > 0 {
		set = crossplaneSetup{limiter: ratelimiter.NewController}
	}
	s := newPlatform(t)
	tr := &traffic{}
	set.requests = tr
	x := startCrossplane(t, set)
	claims, composites := watchKind(t, platformResource("apps")), watchKind(t, platformResource("xapps"))
	shop := newShop(t, s, graft)
	claims.until(t, "shop", "it is Available", isReady)
	must(t, "Delete()", s.Delete(t.Context(), shop.claim))
	claims.until(t, "shop", "three are left", quotes("2 of 5", "WaitingForFinalizers", "BlockedByPause"))
	comesToRest(t, s, x, tr, reportsAMinute, shop.app)
	if real > 0 {
		before, versions, reports := tr.Counted(), s.versions(t, shop.app), x.count(shop.composite)
		<-time.After(real)
		if diff := noise(t, s, tr, before, versions, shop.app); diff != "" {
			t.Errorf("nothing changes: %s", diff)
		}
		n := x.count(shop.composite) - reports
		t.Logf("in %s, %d reports of the composite resource", real, n)
		if n == 0 {
			t.Error("The composite resource should have been reported on.")
		}
	}
	x.stop()
	versions := s.versions(t, shop.app)
	tr = &traffic{}
	set.requests = tr
	x = startCrossplane(t, set)
	x.wait(t, reportsAMinute, shop.claim, shop.composite)
	x.stop()
	if n := tr.Counted().Writes(); n != 0 {
		t.Errorf("nothing has changed: want no write, got %v", tr.Counted())
	}
	if diff := gocmp.Diff(versions, s.versions(t, shop.app)); diff != "" {
		t.Errorf("nothing has changed, but resourceVersions have: -before, +after:\n%s", diff)
	}

	// What happens meanwhile is seen at the next start.
	shop.unprotect(t, s)
	s.merge(t, freed, shop.held)
	eventually(t, "both are gone", func() (bool, string) {
		all := s.list(t.Context(), t)
		return len(all) == 1, fmt.Sprintf("%d are left", len(all))
	})
	startCrossplane(t, set)
	claims.until(t, "shop", "one is left", quotes("WaitingForDependents: 4 of 5 dependents deleted, 80%. Database/shop-paused since T: BlockedByPause"))
	s.merge(t, unpaused, shop.paused)
	claims.until(t, "shop", "it is gone", isGone)
	progressed(t, "composite resource", composites.of("shop-x"), 5)
	progressed(t, "claim", claims.of("shop"), 5)
}

// versions of everything that there is of an app.
func (s server) versions(t *testing.T, a app) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range append([]client.Object{a.claim, a.composite}, a.composed...) {
		gvk, err := apiutil.GVKForObject(o, s.Scheme())
		must(t, "GVKForObject()", err)
		u := object(gvk, o.GetNamespace(), o.GetName())
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(o), u); client.IgnoreNotFound(err) != nil {
			t.Fatalf("Get(): %v", err)
		}
		out[o.GetName()] = u.GetResourceVersion()
	}
	return out
}

var deleted = regexp.MustCompile(`(\d+) of (\d+) dependents deleted`)

// progressed checks what was seen of an object: that its numbers only ever rose,
// and that nothing was written but to say something new.
func progressed(t *testing.T, what string, seen []sight, total int) {
	t.Helper()
	var (
		was   *unstructured.Unstructured
		gone  int
		heard []string
	)
	for _, now := range seen {
		is := saysOf(now.Unstructured, reconciler.TypeDeleting)
		for _, m := range deleted.FindAllStringSubmatch(is.Message, -1) {
			if m[2] != strconv.Itoa(total) {
				continue
			}
			n, err := strconv.Atoi(m[1])
			must(t, "Atoi()", err)
			if n < gone {
				t.Errorf("%s: %d were gone, and then %d:\n%s", what, gone, n, strings.Join(append(heard, is.Message), "\n"))
			}
			gone = n
		}
		if len(heard) == 0 || heard[len(heard)-1] != is.Message {
			heard = append(heard, is.Message)
		}
		if was != nil && !now.gone && sameButVersion(was, now.Unstructured) {
			t.Errorf("%s: a write changed nothing of %s", what, is)
		}
		was = now.Unstructured
	}
	if gone == 0 {
		t.Errorf("%s: nothing was counted", what)
	}
	t.Logf("%s, in %d states:\n%s", what, len(seen), strings.Join(heard, "\n"))
}

// sameButVersion reports whether two objects differ at most in their resource
// version and managed fields.
func sameButVersion(a, b *unstructured.Unstructured) bool {
	strip := func(u *unstructured.Unstructured) map[string]any {
		u = u.DeepCopy()
		u.SetResourceVersion("")
		u.SetManagedFields(nil)
		return u.Object
	}
	return gocmp.Equal(strip(a), strip(b))
}

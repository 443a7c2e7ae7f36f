//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// What people's tools show of a deletion, asked for as they ask for it.
func TestClaimDeletionInTools(t *testing.T) {
	s := newPlatform(t)
	x := startCrossplane(t, crossplaneSetup{interval: 50 * time.Millisecond})
	claims := watchKind(t, platformResource("apps"))
	shop := newShop(t, s, graft)

	claims.until(t, "shop", "it is Available", isReady)

	columns := map[string]string{
		"/apis/platform.example.org/v1/namespaces/default/apps/shop":    "NAME=shop SYNCED=True READY=%s",
		"/apis/platform.example.org/v1/xapps/shop-x":                    "NAME=shop-x SYNCED=True READY=%s",
		"/apis/sample.graft.crossplane.io/v1alpha1/databases/shop-held": "NAME=shop-held SYNCED=True READY=%s",
	}

	check := func(ready string) {
		t.Helper()

		for path, want := range columns {
			if got := kubectlGet(t, path, "NAME", "SYNCED", "READY"); got != fmt.Sprintf(want, ready) {
				t.Errorf("kubectl get %s: want %s, got %s", path, fmt.Sprintf(want, ready), got)
			}
		}
	}

	check("True")

	if kubectlWait(s.fetch(t, shop.claim), "Deleting", "True") {
		t.Error("kubectl wait --for=condition=Deleting should wait for the deletion")
	}

	must(t, "Delete()", s.Delete(t.Context(), shop.claim))
	claims.until(t, "shop", "two are gone", quotes("2 of 5"))
	claims.until(t, "shop", "all is said", func(s sight) bool { return quotes("BlockedByPause")(s) && quotes("WaitingForFinalizers")(s) })
	x.wait(t, 2, shop.claim, shop.composite)
	check("False")

	cm := s.fetch(t, shop.claim)

	for _, o := range []*unstructured.Unstructured{cm, s.fetch(t, shop.composite)} {
		for ct, status := range map[string]string{"deleting": "True", "Ready": "False"} {
			if !kubectlWait(o, ct, status) {
				t.Errorf("%s: kubectl wait --for=condition=%s=%s should be done: %v", o.GetKind(), ct, status, o.Object["status"])
			}
		}

		for _, c := range conditionsOf(t, o) {
			for _, k := range []string{"type", "status", "reason", "lastTransitionTime", "observedGeneration"} {
				if c[k] == nil || c[k] == "" {
					t.Errorf("%s: kubectl describe shows %s without %s", o.GetKind(), c["type"], k)
				}
			}
		}
	}

	// These are the ones of the documentation.
	for expression, want := range map[string]string{
		`{.status.conditions[?(@.type=="Deleting")].reason}`:  "BlockedByProtection",
		`{.status.conditions[?(@.type=="Deleting")].status}`:  "True",
		`{.status.conditions[?(@.type=="Deleting")].message}`: saying(cm, reconciler.TypeDeleting),
		`{.status.conditions[?(@.type=="Ready")].message}`:    saying(cm, reconciler.TypeDeleting),
	} {
		if got := kubectlJSONPath(t, cm, expression); got != want {
			t.Errorf("kubectl -o jsonpath='%s': want %q, got %q", expression, want, got)
		}
	}

	if got, want := trace(cm), "True False Deleting: "+saying(cm, reconciler.TypeDeleting); got != want {
		t.Errorf("crossplane resource trace: -want, +got:\n%s", cmp.Diff(want, got))
	}

	// Everything goes, for kubectl wait --for=delete.
	shop.usages.unprotect(t, read(t, s, shop.protected))
	s.merge(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, meta.AnnotationKeyReconciliationPaused), shop.paused)
	s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, raceFinalizer), shop.held)
	claims.until(t, "shop", "it is gone", isGone)

	for _, o := range []client.Object{shop.claim, shop.composite, sample.NewDatabase("shop-held")} {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(o), o); !kerrors.IsNotFound(err) {
			t.Errorf("%s: want it not found, got %v", o.GetName(), err)
		}
	}
}

// kubectlGet returns cells of the table that the API server makes for kubectl.
func kubectlGet(t *testing.T, path string, columns ...string) string {
	t.Helper()

	c, err := discovery.NewDiscoveryClientForConfig(plane.Config())
	must(t, "NewDiscoveryClientForConfig()", err)

	body, err := c.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").Do(t.Context()).Raw()
	must(t, path, err)

	table := &metav1.Table{}
	must(t, path, json.Unmarshal(body, table))

	if len(table.Rows) != 1 {
		t.Fatalf("%s: want a table with one row, got %s", path, body)
	}

	out := make([]string, 0, len(columns))

	for _, name := range columns {
		for i, c := range table.ColumnDefinitions {
			if strings.EqualFold(c.Name, name) {
				out = append(out, fmt.Sprintf("%s=%v", name, table.Rows[0].Cells[i]))
			}
		}
	}

	return strings.Join(out, " ")
}

// kubectlWait reports whether kubectl wait --for=condition=… returns for an object.
// It ignores a condition that was observed at an earlier generation.
func kubectlWait(u *unstructured.Unstructured, ct, status string) bool {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")

	for _, v := range list {
		c, _ := v.(map[string]any)
		if name, _ := c["type"].(string); !strings.EqualFold(name, ct) {
			continue
		}

		if at, ok := c["observedGeneration"].(int64); ok && at < u.GetGeneration() {
			return false
		}

		is, _ := c["status"].(string)

		return strings.EqualFold(is, status)
	}

	return false
}

func kubectlJSONPath(t *testing.T, u *unstructured.Unstructured, expression string) string {
	t.Helper()

	j := jsonpath.New("")
	must(t, expression, j.Parse(expression))

	var out strings.Builder

	must(t, expression, j.Execute(&out, u.Object))

	return out.String()
}

// trace returns what crossplane resource trace shows of an object: the message of
// Synced while that isn't True, and else that of Ready.
func trace(u *unstructured.Unstructured) string {
	synced, ready := saysOf(u, xpv2.TypeSynced), saysOf(u, xpv2.TypeReady)

	says, m := ready, saying(u, xpv2.TypeReady)
	if synced.Status != "True" {
		says, m = synced, saying(u, xpv2.TypeSynced)
	}

	return fmt.Sprintf("%s %s %s: %s", synced.Status, ready.Status, says.Reason, m)
}

// saying is the message of a condition, with its times.
func saying(u *unstructured.Unstructured, ct xpv2.ConditionType) string {
	return (&composed.Unstructured{Unstructured: *u}).GetCondition(ct).Message
}

func conditionsOf(t *testing.T, u *unstructured.Unstructured) []map[string]any {
	t.Helper()

	list, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	must(t, "conditions", err)

	out := make([]map[string]any, 0, len(list))

	for _, v := range list {
		c, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%v is no condition", v)
		}

		out = append(out, c)
	}

	return out
}

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/crossplane"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	platformGroup = "platform.example.org"

	// reconcileBackoff is how long a work queue waits at first.
	reconcileBackoff = time.Second
)

func platformKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: platformGroup, Version: "v1", Kind: kind}
}

// platformCRDs define a claim and its composite resource.
func platformCRDs() []*extv1.CustomResourceDefinition {
	return []*extv1.CustomResourceDefinition{
		anyCRD(platformKind("App"), extv1.NamespaceScoped),
		anyCRD(platformKind("XApp"), extv1.ClusterScoped),
	}
}

// anyCRD defines a kind that has status, and may have anything in it.
func anyCRD(k schema.GroupVersionKind, scope extv1.ResourceScope) *extv1.CustomResourceDefinition {
	plural := strings.ToLower(k.Kind) + "s"
	return &extv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: extv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + k.Group},
		Spec: extv1.CustomResourceDefinitionSpec{
			Group: k.Group,
			Names: extv1.CustomResourceDefinitionNames{Plural: plural, Kind: k.Kind},
			Scope: scope,
			Versions: []extv1.CustomResourceDefinitionVersion{{
				Name: k.Version, Served: true, Storage: true,
				Schema:       &extv1.CustomResourceValidation{OpenAPIV3Schema: &extv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
				Subresources: &extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

func objectOf(k schema.GroupVersionKind, key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(k)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// newClaimant returns a reconciler of claims that does what Crossplane's does.
func newClaimant(c client.Client) reconcile.Reconciler {
	return crossplane.NewClaimReconciler(c, platformKind("App"), platformKind("XApp"))
}

// graftedClaimant is the same with Graft around it.
func graftedClaimant(c client.Client) reconcile.Reconciler {
	return reconciler.New(c, platformKind("App"), newClaimant,
		reconciler.WithDependents(reconciler.CompositeOfClaim(platformKind("XApp"))),
		reconciler.WithOwnFinalizers(crossplane.FinalizerClaim))
}

// silentClaim: a claim is deleted in the foreground, and its composite resource
// can't go.
func silentClaim() story {
	return story{
		name:     "silent-deletion/claim",
		baseline: "v2.4.0's shape",
		single:   true,
		about: fmt.Sprintf("A user deletes a claim whose compositeDeletePolicy is Foreground. The composite resource can't go: it has "+
			"the finalizer %s. The claim is reconciled, and once more after the backoff. Later that finalizer is removed.", backupFinalizer),
		difference: "It says at once that it is being deleted, and which object it waits for, and why.",
		play:       playSilentClaim,
	}
}

func playSilentClaim(ctx context.Context, s *scene) ([]finding, error) {
	user := s.stage.user()
	key := client.ObjectKey{Namespace: namespace, Name: "shop-" + s.side.key}
	cm, xr := objectOf(platformKind("App"), key), objectOf(platformKind("XApp"), client.ObjectKey{Name: key.Name})
	xr.SetFinalizers([]string{backupFinalizer})
	xr.Object["spec"] = map[string]any{"claimRef": map[string]any{"apiVersion": platformGroup + "/v1", "kind": "App", "namespace": key.Namespace, "name": key.Name}}
	cm.Object["spec"] = map[string]any{
		"compositeDeletePolicy": string(xpv2.CompositeDeleteForeground),
		"resourceRef":           map[string]any{"apiVersion": platformGroup + "/v1", "kind": "XApp", "name": key.Name},
	}

	s.recorder.timeline.watch(user, platformKind("App"), key)

	for _, o := range []client.Object{xr, cm} {
		if err := user.Create(ctx, o); err != nil {
			return nil, err
		}
	}

	c, err := s.stage.program()
	if err != nil {
		return nil, err
	}
	r := s.side.newClaimant(c)
	pass := func() (*claim.Unstructured, bool, error) {
		if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key}); err != nil {
			return nil, false, err
		}
		now := claim.New(claim.WithGroupVersionKind(platformKind("App")))
		err := user.Get(ctx, key, now.GetUnstructured())
		return now, err == nil, client.IgnoreNotFound(err)
	}

	if _, _, err := pass(); err != nil {
		return nil, err
	}
	s.recorder.timeline.add(byUser, "deletes "+key.Name)
	if err := user.Delete(ctx, cm); err != nil {
		return nil, err
	}
	now, _, err := pass()
	if err != nil {
		return nil, err
	}
	ready := now.GetCondition(xpv2.TypeReady)
	findings := []finding{
		finding{Where: "READY after the first reconcile", Seen: fmt.Sprintf("%s (%s)", ready.Status, ready.Reason), Good: ready.Status == corev1.ConditionFalse}.knownToFail().headline("READY %s"),
	}
	s.advance(reconcileBackoff)
	if now, _, err = pass(); err != nil {
		return nil, err
	}
	why := now.GetCondition(reconciler.TypeDeleting)
	seen := "no condition says why"
	if why.Status == corev1.ConditionTrue {
		seen = string(why.Reason)
	}

	findings = append(findings, finding{
		Where: whyRow, Seen: seen,
		Good: why.Reason == reconciler.ReasonWaitingForDependents && strings.Contains(now.GetCondition(xpv2.TypeReady).Message, backupFinalizer),
	}.knownToFail())

	s.recorder.timeline.add(byUser, "has a backup, which removes its finalizer from the composite resource")
	if err := user.Patch(ctx, xr, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		return nil, err
	}
	_, there, err := pass()
	s.recorder.timeline.look(ctx)
	end := finding{Where: "in the end", Seen: "gone", Good: !there}
	if there {
		end.Seen = "the claim is still there"
	}
	return append(findings, end), err
}

// Package cluster reads and writes objects of any kind as the user of a kubeconfig, who may not read all of them.
package cluster

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// fieldManager is the name under which the API server records writes.
const fieldManager = "kubectl-graft"

// A Cluster is the one that the flags of a command choose. It may be used concurrently.
type Cluster struct {
	Kinds
	discovery.ServerVersionInterface

	// Namespace is set by the flags, or by the kubeconfig's context.
	Namespace string

	clock *clock

	objects  dynamic.Interface
	requests rest.Interface
}

// Open connects to the cluster and discovers its kinds. now is the own clock.
func Open(flags genericclioptions.RESTClientGetter, now func() time.Time) (*Cluster, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	local := &clock{local: now}
	config.Wrap(local.follow)

	// The API server limits requests fairly; all lists are read by a few workers.
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, h)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, h)
	if err != nil {
		return nil, err
	}
	requests, err := rest.UnversionedRESTClientForConfigAndClient(dynamic.ConfigFor(config), h)
	if err != nil {
		return nil, err
	}

	// Not from the cache on disk, which may be hours old: a kind that is missing would be missing in a backup.
	kinds, err := discoverKinds(d)
	return &Cluster{
		Kinds: kinds, ServerVersionInterface: d, Namespace: namespace, clock: local,
		objects: objects, requests: requests,
	}, err
}

// Get returns an object. The namespace is ignored for cluster-scoped kinds.
func (c *Cluster) Get(ctx context.Context, k Kind, namespace, name string) (*unstructured.Unstructured, error) {
	return c.client(k, namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c *Cluster) client(k Kind, namespace string) dynamic.ResourceInterface {
	r := c.objects.Resource(k.GroupVersion().WithResource(k.Resource.Name))
	if k.Resource.Namespaced {
		return r.Namespace(namespace)
	}
	return r
}

// Objects returns all objects of a kind, whole. An empty namespace means all.
func (c *Cluster) Objects(ctx context.Context, k Kind, namespace string) ([]unstructured.Unstructured, error) {
	return pages(func(next string) ([]unstructured.Unstructured, string, error) {
		l, err := c.client(k, namespace).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return nil, "", err
		}
		return l.Items, l.GetContinue(), nil
	})
}

// Changed reports whether a write failed because the object has changed or was replaced since it was read.
func Changed(err error) bool {
	// A webhook that protects an object answers with the code of a conflict, but not with
	// its reason. An object with another UID is invalid, not in conflict.
	if kerrors.ReasonForError(err) == metav1.StatusReasonConflict {
		return true
	}
	var s kerrors.APIStatus
	return kerrors.IsInvalid(err) && errors.As(err, &s) && s.Status().Details != nil &&
		slices.ContainsFunc(s.Status().Details.Causes,
			func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// Patch merges a patch into an object, if it still has the UID and the resource version at which it was read. It
// returns the new object. With dryRun the API server checks the request and stores nothing.
func (c *Cluster) Patch(
	ctx context.Context, k Kind, o *unstructured.Unstructured, patch map[string]any, dryRun bool,
) (*unstructured.Unstructured, error) {
	body, metadata := maps.Clone(patch), map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
	m, _ := patch["metadata"].(map[string]any)
	maps.Copy(metadata, m)
	body["metadata"] = metadata
	text, err := json.Marshal(body)
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode a patch")
	}
	options := metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRunOf(dryRun)}
	return c.client(k, o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, text, options)
}

// SetFinalizers changes the finalizers of an object, if it still has the UID and the resource version at which it was
// read. With dryRun the API server checks the request and stores nothing.
//
// It updates an object that keeps none: when the last finalizer is removed the API server deletes the object, after a
// patch by name only. Another object may have the name by then. After an update the API server compares the UID.
func (c *Cluster) SetFinalizers(
	ctx context.Context, k Kind, o *unstructured.Unstructured, finalizers []string, dryRun bool,
) error {
	if len(finalizers) > 0 {
		_, err := c.Patch(ctx, k, o, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, dryRun)
		return err
	}
	o = o.DeepCopy()
	o.SetFinalizers(nil)
	options := metav1.UpdateOptions{FieldManager: fieldManager, DryRun: dryRunOf(dryRun)}
	_, err := c.client(k, o.GetNamespace()).Update(ctx, o, options)
	return err
}

// Orphan deletes an object, if it still has the UID and the resource version at which it
// was read, and keeps the objects that it owns.
func (c *Cluster) Orphan(ctx context.Context, k Kind, o *unstructured.Unstructured, dryRun bool) error {
	uid, version, orphan := o.GetUID(), o.GetResourceVersion(), metav1.DeletePropagationOrphan
	return c.client(k, o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &orphan,
		DryRun:            dryRunOf(dryRun),
	})
}

func dryRunOf(dryRun bool) []string {
	if dryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Package cluster reads and writes objects of any kind as the user of a kubeconfig, who
// may be forbidden to read some of them.
package cluster

import (
	"context"
	"net/http"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A Cluster is the one that the flags of a command choose. It may be used concurrently.
type Cluster struct {
	Kinds

	// Namespace is set by the flags, or by the kubeconfig's context.
	Namespace string

	objects  dynamic.Interface
	requests rest.Interface
	version  discovery.ServerVersionInterface
}

// Open connects to the cluster and discovers its kinds.
func Open(flags genericclioptions.RESTClientGetter) (*Cluster, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)

	// The API server limits requests fairly; all lists are read by a few workers.
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return open(config, h, namespace)
}

func open(config *rest.Config, h *http.Client, namespace string) (*Cluster, error) {
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

	// Not from the cache on disk, which may be hours old: a kind that is missing would be
	// missing in a backup.
	kinds, err := discoverKinds(d)
	if err != nil {
		return nil, err
	}
	return &Cluster{Kinds: kinds, Namespace: namespace, objects: objects, requests: requests, version: d}, nil
}

// Version returns the version of the API server.
func (c *Cluster) Version() (string, error) {
	v, err := c.version.ServerVersion()
	if err != nil {
		return "", errors.Wrap(err, "cannot read the version of the API server")
	}
	return v.GitVersion, nil
}

// Get returns an object. The namespace is ignored for cluster-scoped kinds.
func (c *Cluster) Get(ctx context.Context, k Kind, namespace, name string) (*unstructured.Unstructured, error) {
	return c.client(k, namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c *Cluster) client(k Kind, namespace string) dynamic.ResourceInterface {
	if k.Namespaced {
		return c.objects.Resource(k.gvr()).Namespace(namespace)
	}
	return c.objects.Resource(k.gvr())
}

// Objects returns all objects of a kind, whole. An empty namespace means all.
func (c *Cluster) Objects(ctx context.Context, k Kind, namespace string) ([]unstructured.Unstructured, error) {
	var out []unstructured.Unstructured
	for next := ""; ; {
		l, err := c.client(k, namespace).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return nil, err
		}
		out = append(out, l.Items...)
		if next = l.GetContinue(); next == "" {
			return out, nil
		}
	}
}

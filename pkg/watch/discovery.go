package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/singleflight"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// resolveTimeout bounds one discovery request.
const resolveTimeout = 30 * time.Second

// A resolver looks kinds up by discovery. Calls for kinds of one group and version share
// requests.
type resolver struct {
	ctx     context.Context //nolint:containedctx // Requests outlive the call that sends them.
	client  rest.Interface
	limiter flowcontrol.RateLimiter
	group   singleflight.Group
}

// newResolver returns a resolver whose requests end with the context.
func newResolver(ctx context.Context, cfg *rest.Config, hc *http.Client) (*resolver, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Burst = cmp.Or(cfg.Burst, rest.DefaultBurst) // Discovery clients have a larger default.
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create discovery client")
	}
	r := &resolver{ctx: ctx, client: dc.RESTClient(), limiter: dc.RESTClient().GetRateLimiter()}
	if r.limiter == nil { // The config has none.
		r.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return r, nil
}

// resolve returns how the API server serves a kind.
func (r *resolver) resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	l, err := r.resources(ctx, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}

	// A kind may have more than one resource. Take the one that can be watched.
	err = &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	for _, res := range l.APIResources {
		if res.Kind != gvk.Kind || strings.Contains(res.Name, "/") {
			continue // Subresources have kinds, too.
		}
		if !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "watch") {
			err = &KindError{GVK: gvk, Reason: ErrNotWatchable}
			continue
		}
		scope := meta.RESTScopeRoot
		if res.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		return &meta.RESTMapping{
			GroupVersionKind: gvk,
			Resource:         gvk.GroupVersion().WithResource(res.Name),
			Scope:            scope,
		}, nil
	}
	return nil, err
}

// resources returns the resources of a group and version. A request that was sent before the
// call may have an obsolete answer, because a kind may have come back with another scope or
// plural. So a call that joins such a request takes the answer of the next one.
func (r *resolver) resources(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	for joined := false; ; joined = true {
		sent := false
		answer := r.group.DoChan(gv.String(), func() (any, error) {
			sent = true
			return r.get(gv)
		})
		select {
		case a := <-answer:
			if l, ok := a.Val.(*metav1.APIResourceList); sent || joined {
				if !ok {
					return nil, a.Err
				}
				return l, a.Err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *resolver) get(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	if err := r.limiter.Wait(r.ctx); err != nil {
		return nil, err
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	// The wait for the limiter is over. Kinds have a backoff, so one retry is enough.
	raw, err := r.client.Get().AbsPath(path).SetHeader("Accept", "application/json").
		Throttle(nil).Timeout(resolveTimeout).MaxRetries(1).Do(r.ctx).Raw()
	if kerrors.IsNotFound(err) {
		return &metav1.APIResourceList{}, nil // The group and version isn't served.
	}
	if err != nil {
		return nil, errors.Wrapf(err, "cannot discover %s", gv)
	}
	l := &metav1.APIResourceList{}
	if err := json.Unmarshal(raw, l); err != nil || l.Kind != "APIResourceList" || l.GroupVersion != gv.String() {
		return nil, errors.Errorf("cannot discover %s: the answer isn't its list of resources", gv)
	}
	return l, nil
}

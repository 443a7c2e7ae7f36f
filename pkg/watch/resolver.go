package watch

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// How long the API server has to answer one look-up.
const resolveTimeout = 30 * time.Second

// A discoveryResolver finds out how the API server serves kinds. Calls for kinds of one
// group and version share requests, but no call gets the answer to a request that was
// sent before the call: kinds come back with another scope or plural.
type discoveryResolver struct {
	client  rest.Interface
	limiter flowcontrol.RateLimiter

	mu sync.Mutex

	// Look-ups whose requests wait to be sent, which more calls may join, and those
	// whose requests were sent.
	unsent, sent map[schema.GroupVersion]*lookUp
}

// A lookUp is one request that several calls wait for.
type lookUp struct {
	done chan struct{} // Closed when the rest is set.
	list *metav1.APIResourceList
	err  error

	// The call that was to send the request gave up.
	abandoned bool
}

func newDiscoveryResolver(cfg *rest.Config, hc *http.Client) (*discoveryResolver, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Burst = cmp.Or(cfg.Burst, rest.DefaultBurst) // That of discovery clients is larger.
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create discovery client")
	}
	r := &discoveryResolver{
		client:  dc.RESTClient(),
		limiter: dc.RESTClient().GetRateLimiter(),
		unsent:  make(map[schema.GroupVersion]*lookUp),
		sent:    make(map[schema.GroupVersion]*lookUp),
	}
	if r.limiter == nil { // The config has none.
		r.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return r, nil
}

// resolve looks a kind up.
func (r *discoveryResolver) resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	l, err := r.discover(ctx, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}

	// A kind may have more than one resource. That which can be watched counts.
	err = &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	for _, res := range l.APIResources {
		if res.Kind != gvk.Kind || strings.Contains(res.Name, "/") {
			continue // Subresources have kinds, too.
		}
		if !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "watch") {
			err = &KindError{GVK: gvk, Reason: ErrNotWatchable}
			continue
		}
		m := &meta.RESTMapping{
			GroupVersionKind: gvk,
			Resource:         gvk.GroupVersion().WithResource(res.Name),
			Scope:            meta.RESTScopeRoot,
		}
		if res.Namespaced {
			m.Scope = meta.RESTScopeNamespace
		}
		return m, nil
	}
	return nil, err
}

// discover what a group and version has. Of the calls that come before a request is
// sent the first sends it, when the answer to the one before has come.
func (r *discoveryResolver) discover(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	for {
		r.mu.Lock()
		l, joined := r.unsent[gv]
		if !joined {
			l = &lookUp{done: make(chan struct{})}
			r.unsent[gv] = l
		}
		before := r.sent[gv]
		r.mu.Unlock()

		if !joined {
			r.send(ctx, gv, l, before)
			return l.list, l.err
		}
		if err := await(ctx, l.done); err != nil {
			return nil, err
		}
		if !l.abandoned {
			return l.list, l.err
		}
	}
}

// send the request of a look-up.
func (r *discoveryResolver) send(ctx context.Context, gv schema.GroupVersion, l, before *lookUp) {
	if before != nil {
		l.err = await(ctx, before.done)
	}
	if l.err == nil {
		l.err = r.limiter.Wait(ctx)
	}
	r.mu.Lock()
	delete(r.unsent, gv)
	r.sent[gv] = l
	r.mu.Unlock()

	if l.err == nil {
		l.list, l.err = r.get(ctx, gv)
	}
	l.abandoned = ctx.Err() != nil

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent[gv] == l {
		delete(r.sent, gv)
	}
	close(l.done)
}

func (r *discoveryResolver) get(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()

	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	// A group and version that isn't served is answered by 404. The wait for the limiter
	// isn't part of the time that the API server has, and is over.
	l := &metav1.APIResourceList{}
	err := r.client.Get().AbsPath(path).Throttle(nil).Do(ctx).Into(l)
	return l, errors.Wrapf(err, "cannot discover %s", gv)
}

// await waits for a channel that may be nil, or for the context's end.
func await(ctx context.Context, ch <-chan struct{}) error {
	if ch == nil || isClosed(ch) {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

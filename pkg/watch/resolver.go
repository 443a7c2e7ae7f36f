package watch

import (
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

// How long one look-up may take, by default.
const defaultResolveTimeout = 30 * time.Second

// A Resolver finds out under which resource, and in which scope, the API server
// serves a kind now. It must not answer from memory, since kinds come back with
// another scope or plural. It must return when its context ends, and be safe for
// concurrent use. An error for which meta.IsNoMatchError is true says that the
// API server doesn't serve the kind.
type Resolver interface {
	Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)
}

// A ResolverFunc is a function that is a Resolver.
type ResolverFunc func(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error)

// Resolve calls the function.
func (fn ResolverFunc) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return fn(ctx, gvk)
}

// NewDiscoveryResolver returns a Resolver that asks the API server. Calls for kinds
// of one group and version share requests, but no call gets the answer to a request
// that was sent before the call. The config's rate limit applies, and time spent
// waiting for it doesn't count as time that the API server takes to answer. The
// HTTP client is made from the config if it is nil.
func NewDiscoveryResolver(cfg *rest.Config, hc *http.Client) (Resolver, error) {
	return newDiscoveryResolver(cfg, hc, defaultResolveTimeout)
}

func newDiscoveryResolver(cfg *rest.Config, hc *http.Client, timeout time.Duration) (*discoveryResolver, error) {
	if hc == nil {
		var err error
		if hc, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.Wrap(err, "cannot create HTTP client")
		}
	}
	r := &discoveryResolver{
		limiter: limiterFor(cfg),
		timeout: timeout,
		unsent:  make(map[schema.GroupVersion]*lookUp),
		sent:    make(map[schema.GroupVersion]*lookUp),
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.RateLimiter = -1, nil // The resolver waits for its limiter itself.
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, hc)
	if err != nil {
		return nil, errors.Wrap(err, "cannot create discovery client")
	}
	r.client = dc.RESTClient()
	return r, nil
}

// limiterFor returns what a client of the config is limited by.
func limiterFor(cfg *rest.Config) flowcontrol.RateLimiter {
	qps, burst := cfg.QPS, cfg.Burst
	switch {
	case cfg.RateLimiter != nil:
		return cfg.RateLimiter
	case qps < 0:
		return flowcontrol.NewFakeAlwaysRateLimiter()
	case qps == 0:
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

type discoveryResolver struct {
	client  rest.Interface
	limiter flowcontrol.RateLimiter
	timeout time.Duration // Of a request.

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

// Resolve looks a kind up.
func (r *discoveryResolver) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
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
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()

	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	// A group and version that isn't served is answered by 404.
	l := &metav1.APIResourceList{}
	err := r.client.Get().AbsPath(path).Do(ctx).Into(l)
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

package watch

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
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

	mu     sync.Mutex
	shared map[schema.GroupVersion]*lookUps // Of the calls that there are.
}

// lookUps are the calls for one group and version. One at a time has the turn.
type lookUps struct {
	calls int           // Guarded by the resolver's mutex, as is asked.
	asked uint64        // How many calls came.
	turn  chan struct{} // Full while a call has the turn, which guards the rest.

	// The last answer, and how many calls had come when its request was sent.
	answered uint64
	list     *metav1.APIResourceList
	err      error
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
		shared:  make(map[schema.GroupVersion]*lookUps),
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
		scope := meta.RESTScopeRoot
		if res.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		return &meta.RESTMapping{GroupVersionKind: gvk, Resource: gvk.GroupVersion().WithResource(res.Name), Scope: scope}, nil
	}
	return nil, err
}

// discover what a group and version has. Of the calls that wait for their turn the next
// sends the request, and its answer is for all those that came before it was sent.
func (r *discoveryResolver) discover(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	r.mu.Lock()
	l, ok := r.shared[gv]
	if !ok {
		l = &lookUps{turn: make(chan struct{}, 1)}
		r.shared[gv] = l
	}
	l.calls++
	l.asked++
	own := l.asked
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if l.calls--; l.calls == 0 {
			delete(r.shared, gv)
		}
	}()

	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.answered >= own {
		return l.list, l.err
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	asked := l.asked
	r.mu.Unlock()
	list, err := r.get(ctx, gv)
	if ctx.Err() == nil { // Else the others ask themselves.
		l.answered, l.list, l.err = asked, list, err
	}
	return list, err
}

func (r *discoveryResolver) get(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	// A group and version that isn't served is answered by 404. The wait for the limiter is
	// over. An API server that is busy is asked once more: kinds have a backoff.
	l := &metav1.APIResourceList{}
	err := r.client.Get().AbsPath(path).Throttle(nil).Timeout(resolveTimeout).MaxRetries(1).Do(ctx).Into(l)
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

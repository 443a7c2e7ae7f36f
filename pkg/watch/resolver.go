package watch

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// resolveTimeout bounds one look-up.
const resolveTimeout = 30 * time.Second

// A discoveryResolver looks kinds up by discovery. Calls for kinds of one group and version
// share requests. No call gets the answer to a request that was sent before the call, because a
// kind may have come back with another scope or plural.
type discoveryResolver struct {
	client  rest.Interface
	limiter flowcontrol.RateLimiter

	mu     sync.Mutex
	shared map[schema.GroupVersion]*lookUps // Has an entry while there are calls.
}

// lookUps are the calls for one group and version.
type lookUps struct {
	calls int           // In progress. Guarded by the resolver's mutex, as is begun.
	begun uint64        // How many calls have begun.
	turn  chan struct{} // Full while a call sends a request. It guards the rest.

	// The last answer is for the first calls, this many, because they began before its request.
	answered uint64
	list     *metav1.APIResourceList
	err      error
}

func newDiscoveryResolver(cfg *rest.Config, hc *http.Client) (*discoveryResolver, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Burst = cmp.Or(cfg.Burst, rest.DefaultBurst) // Discovery clients have a larger default.
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

// resolve returns how the API server serves a kind.
func (r *discoveryResolver) resolve(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	l, err := r.discover(ctx, gvk.GroupVersion())
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

// discover returns the resources of a group and version. The next call that gets its turn sends
// a request, whose answer is for all calls that began before it was sent.
func (r *discoveryResolver) discover(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	r.mu.Lock()
	l, ok := r.shared[gv]
	if !ok {
		l = &lookUps{turn: make(chan struct{}, 1)}
		r.shared[gv] = l
	}
	l.calls++
	l.begun++
	own := l.begun
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
	begun := l.begun
	r.mu.Unlock()
	list, err := r.get(ctx, gv)
	if ctx.Err() == nil { // Else the next call sends a request.
		l.answered, l.list, l.err = begun, list, err
	}
	return list, err
}

func (r *discoveryResolver) get(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	// The wait for the limiter is over. Kinds have a backoff, so one retry is enough.
	raw, err := r.client.Get().AbsPath(path).SetHeader("Accept", "application/json").
		Throttle(nil).Timeout(resolveTimeout).MaxRetries(1).Do(ctx).Raw()
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

// await waits until a channel is closed, unless it is nil, or the context ends.
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

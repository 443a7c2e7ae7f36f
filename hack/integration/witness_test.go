//go:build integration

package integration

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

type sight struct {
	*unstructured.Unstructured

	at   time.Time
	gone bool
}

// A witness watches all objects of a kind, without a cache, and remembers every
// state of each that the API server had.
type witness struct {
	mu   sync.Mutex
	seen map[string][]sight
}

func watchKind(t *testing.T, of schema.GroupVersionResource) *witness {
	t.Helper()
	c, err := dynamic.NewForConfig(plane.Config())
	must(t, "dynamic.NewForConfig()", err)
	list, err := c.Resource(of).List(t.Context(), metav1.ListOptions{Limit: 1})
	must(t, "List()", err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))

	// The API server ends the watch of a slow client. The watch then resumes.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Resource(of).Watch(ctx, o)
		},
	})
	must(t, "NewRetryWatcherWithContext()", err)
	out := &witness{seen: map[string][]sight{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			at := time.Now()
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				out.mu.Lock()
				out.seen[u.GetName()] = append(
					out.seen[u.GetName()], sight{Unstructured: u, at: at, gone: e.Type == watch.Deleted},
				)
				out.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { cancel(); w.Stop(); <-done })
	return out
}

func (w *witness) of(name string) []sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen[name])
}

// until waits until something was seen of an object, and returns that: the first
// time, however often it was seen.
func (w *witness) until(t *testing.T, name, what string, holds func(s sight) bool) sight {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	n, last := 0, sight{Unstructured: &unstructured.Unstructured{}}
	for end := time.Now().Add(patience); time.Now().Before(end); <-ticker.C {
		for _, last = range w.of(name)[n:] {
			if n++; holds(last) {
				return last
			}
		}
	}
	is := saysOf(last.Unstructured, reconciler.TypeDeleting)
	t.Fatalf(
		"waiting for %s: %s: Ready %s, Deleting %s: %s",
		name,
		what,
		saysOf(last.Unstructured, xpv2.TypeReady),
		is,
		is.Message,
	)
	return sight{}
}

func isGone(s sight) bool  { return s.gone }
func isReady(s sight) bool { return saysOf(s.Unstructured, xpv2.TypeReady).Status == "True" }

type said struct{ Status, Reason, Message string }

func (s said) String() string { return s.Status + "/" + s.Reason }

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

func saysOf(u *unstructured.Unstructured, ct xpv2.ConditionType) said {
	c := (&composed.Unstructured{Unstructured: *u}).GetCondition(ct)
	return said{Status: string(c.Status), Reason: string(c.Reason), Message: timestamp.ReplaceAllString(c.Message, "T")}
}

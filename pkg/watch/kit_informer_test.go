package watch_test

import (
	"sync"
	"time"

	"github.com/pkg/errors"
	kcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// A clingingInformer doesn't let handlers go.
type clingingInformer struct{ cache.Informer }

func (clingingInformer) RemoveEventHandler(kcache.ResourceEventHandlerRegistration) error {
	return errors.New("boom")
}

// A pausingInformer adds a handler when it is told to, and counts those it has.
type pausingInformer struct {
	cache.Informer

	// adding is closed when a handler is being added, and add lets it happen.
	adding, add chan struct{}

	mu sync.Mutex
	n  int
}

type pausedRegistration struct{}

func (pausedRegistration) HasSynced() bool { return true }

func (i *pausingInformer) AddEventHandler(kcache.ResourceEventHandler) (kcache.ResourceEventHandlerRegistration, error) {
	close(i.adding)
	<-i.add
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	return pausedRegistration{}, nil
}

func (i *pausingInformer) AddEventHandlerWithResyncPeriod(h kcache.ResourceEventHandler, _ time.Duration) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (i *pausingInformer) AddEventHandlerWithOptions(h kcache.ResourceEventHandler, _ kcache.HandlerOptions) (kcache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (i *pausingInformer) RemoveEventHandler(kcache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n--
	return nil
}

func (i *pausingInformer) IsStopped() bool { return false }
func (i *pausingInformer) HasSynced() bool { return true }

func (i *pausingInformer) handlers() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.n
}

package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

var _ WatchGarbageCollector = &GarbageCollector{}

// Dependencies are the kinds that a controller still needs. They have to include a kind
// before the controller calls StartWatches for it: then a watch that is needed is never
// collected. They must be safe for concurrent use.
type Dependencies interface {
	// Needed returns the kinds that are needed. If it returns an error nothing is
	// collected. If it returns none, none is needed.
	Needed(ctx context.Context) ([]schema.GroupVersionKind, error)
}

// A DependenciesFn is a function that is Dependencies.
type DependenciesFn func(ctx context.Context) ([]schema.GroupVersionKind, error)

// Needed calls the function.
func (fn DependenciesFn) Needed(ctx context.Context) ([]schema.GroupVersionKind, error) {
	return fn(ctx)
}

// A GarbageCollector stops watches of a controller whose kind isn't needed any
// more.
//
// It reads how often each watch was requested, gets the kinds that are needed, and stops the
// watches that aren't needed and weren't requested since. If nothing is needed, as after a
// start, the answer must be the same twice in a row, and watches that were requested in between
// stay.
type GarbageCollector struct {
	controller string
	engine     *ControllerEngine
	needed     Dependencies
	types      []WatchType

	mu   sync.Mutex
	idle map[*controllerWatch]uint64 // The requests, if nothing was needed the last time.
}

// NewGarbageCollector returns a collector for a controller's watches of the given
// types, and no others.
func NewGarbageCollector(controller string, e *ControllerEngine, d Dependencies, types []WatchType) *GarbageCollector {
	return &GarbageCollector{controller: controller, engine: e, needed: d, types: slices.Clone(types)}
}

// GarbageCollectWatches collects at the interval, until the context ends. Failures in a
// row are logged once.
func (gc *GarbageCollector) GarbageCollectWatches(ctx context.Context, interval time.Duration) {
	var last error
	_ = wait.PollUntilContextCancel(ctx, interval, false, func(ctx context.Context) (bool, error) {
		err := gc.GarbageCollectWatchesNow(ctx)
		if err != nil && last == nil && ctx.Err() == nil {
			gc.engine.log.Info("Cannot garbage collect watches", "controller", gc.controller, "error", err)
		}
		last = err
		return false, nil
	})
}

// GarbageCollectWatchesNow collects once.
func (gc *GarbageCollector) GarbageCollectWatchesNow(ctx context.Context) error {
	c, err := gc.engine.running(ctx, gc.controller)
	if err != nil {
		return errors.Wrap(err, "cannot get running watches")
	}
	if is.Nil(gc.needed) {
		return errors.New("cannot get kinds that are needed: there are no Dependencies")
	}
	asked := make(map[*controllerWatch]uint64)
	c.mu.RLock()
	for _, w := range c.watches {
		asked[w] = w.requests.Load()
	}
	c.mu.RUnlock()
	needed, err := gc.needed.Needed(ctx)
	gc.mu.Lock()
	last := gc.idle
	gc.idle = nil
	if err == nil && len(needed) == 0 {
		gc.idle, asked = asked, last
	}
	gc.mu.Unlock()
	if err != nil {
		return errors.Wrap(err, "cannot get kinds that are needed")
	}
	_, err = c.stopAndDrain(ctx, func(w *controllerWatch) bool {
		requests, was := asked[w]
		return was && requests == w.requests.Load() && slices.Contains(gc.types, w.id.Type) &&
			!slices.Contains(needed, w.id.GVK)
	})
	return errors.Wrap(err, "cannot stop watches that aren't needed")
}

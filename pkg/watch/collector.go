package watch

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

var _ WatchGarbageCollector = &GarbageCollector{}

// A Tracker knows which kinds a controller still needs. It must know that a kind
// is needed before the controller calls StartWatches for it: then a watch that is
// needed is never collected. It must be safe for concurrent use.
type Tracker interface {
	// Needed returns the kinds that are needed. If it returns an error, or no
	// kind at all, nothing is collected: a tracker that was just started knows
	// nothing.
	Needed(ctx context.Context) ([]schema.GroupVersionKind, error)
}

// A TrackerFunc is a function that is a Tracker.
type TrackerFunc func(ctx context.Context) ([]schema.GroupVersionKind, error)

// Needed calls the function.
func (fn TrackerFunc) Needed(ctx context.Context) ([]schema.GroupVersionKind, error) {
	return fn(ctx)
}

// A GarbageCollector stops watches of a controller whose kind isn't needed any
// more.
//
// It notes how many requests for watches there were, then asks the tracker, then
// stops those watches that the tracker doesn't need and that nobody asked for
// since. The last two questions are asked under the lock that a request takes.
type GarbageCollector struct {
	controller string
	engine     *ControllerEngine
	tracker    Tracker
	types      []WatchType
	log        logging.Logger
	clock      clock.WithTicker
}

// A GarbageCollectorOption configures a collector.
type GarbageCollectorOption func(*GarbageCollector)

// WithCollectorLogger sets where a collector logs; nowhere by default.
func WithCollectorLogger(l logging.Logger) GarbageCollectorOption {
	return func(gc *GarbageCollector) { gc.log = l }
}

// WithCollectorClock sets the clock for a collector's interval; the system's by
// default.
func WithCollectorClock(c clock.WithTicker) GarbageCollectorOption {
	return func(gc *GarbageCollector) { gc.clock = c }
}

// NewGarbageCollector returns a collector for a controller's watches of the given
// types, and no others.
func NewGarbageCollector(controller string, e *ControllerEngine, t Tracker, types []WatchType, o ...GarbageCollectorOption) *GarbageCollector {
	gc := &GarbageCollector{
		controller: controller,
		engine:     e,
		tracker:    t,
		types:      slices.Clone(types),
		log:        logging.NewNopLogger(),
		clock:      clock.RealClock{},
	}
	for _, fn := range o {
		fn(gc)
	}
	return gc
}

// GarbageCollectWatches collects at the interval, until the context ends.
func (gc *GarbageCollector) GarbageCollectWatches(ctx context.Context, interval time.Duration) {
	t := gc.clock.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
			if err := gc.GarbageCollectWatchesNow(ctx); err != nil {
				gc.log.Info("Cannot garbage collect watches", "controller", gc.controller, "error", err)
			}
		}
	}
}

// GarbageCollectWatchesNow collects once.
func (gc *GarbageCollector) GarbageCollectWatchesNow(ctx context.Context) error {
	c, err := gc.engine.running(ctx, gc.controller)
	if err != nil {
		return errors.Wrap(err, "cannot get running watches")
	}
	before := gc.engine.requests.Load()

	needed, err := gc.tracker.Needed(ctx)
	if err != nil {
		return errors.Wrap(err, "cannot get kinds that are needed")
	}
	if len(needed) == 0 {
		return nil
	}
	keep := make(map[schema.GroupVersionKind]struct{}, len(needed))
	for _, gvk := range needed {
		keep[gvk] = struct{}{}
	}

	var candidates []WatchID
	c.mu.RLock()
	for id := range c.watches {
		if _, ok := keep[id.GVK]; !ok && slices.Contains(gc.types, id.Type) {
			candidates = append(candidates, id)
		}
	}
	c.mu.RUnlock()

	n, err := gc.engine.stopWatchesIf(ctx, c, candidates, func(w *watch) bool { return w.requested.Load() <= before })
	if n > 0 {
		gc.log.Debug("Garbage collected watches", "controller", gc.controller, "count", n)
	}
	return errors.Wrap(err, "cannot stop watches that aren't needed")
}

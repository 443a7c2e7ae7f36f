package watch

import (
	"context"
	"time"

	kcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
)

// Metrics of the engine. Each controller and watch that is started is stopped once.
type Metrics interface {
	ControllerStarted(name string)
	ControllerStopped(name string)
	WatchStarted(name string, t WatchType)
	WatchStopped(name string, t WatchType)
}

// NopMetrics records nothing.
type NopMetrics struct{}

// ControllerStarted does nothing.
func (m *NopMetrics) ControllerStarted(_ string) {}

// ControllerStopped does nothing.
func (m *NopMetrics) ControllerStopped(_ string) {}

// WatchStarted does nothing.
func (m *NopMetrics) WatchStarted(_ string, _ WatchType) {}

// WatchStopped does nothing.
func (m *NopMetrics) WatchStopped(_ string, _ WatchType) {}

// A WatchGarbageCollector stops watches that aren't needed, at an interval, until its
// context ends.
type WatchGarbageCollector interface { //nolint:revive // It is the name that forks know.
	GarbageCollectWatches(ctx context.Context, interval time.Duration)
}

// A NewControllerFn makes a controller. It isn't started.
type NewControllerFn func(name string, options kcontroller.Options) (kcontroller.Controller, error)

// ControllerOptions configure a controller.
type ControllerOptions struct {
	runtime kcontroller.Options
	nc      NewControllerFn
	gc      WatchGarbageCollector
}

// A ControllerOption configures a controller.
type ControllerOption func(o *ControllerOptions)

// WithRuntimeOptions sets the options of the controller-runtime controller. Its
// name isn't validated, because controllers come back under the same name.
// UsePriorityQueue is false by default: before controller-runtime v0.25 a busy priority queue that is shut
// down may never end. Then its controller doesn't end, and the next one of that name doesn't start.
func WithRuntimeOptions(ko kcontroller.Options) ControllerOption {
	return func(o *ControllerOptions) { o.runtime = ko }
}

// WithWatchGarbageCollector sets a collector that runs for as long as the
// controller does, once a minute.
func WithWatchGarbageCollector(gc WatchGarbageCollector) ControllerOption {
	return func(o *ControllerOptions) { o.gc = gc }
}

// WithNewControllerFn sets what makes the controller-runtime controller;
// controller.NewUnmanaged by default.
func WithNewControllerFn(fn NewControllerFn) ControllerOption {
	return func(o *ControllerOptions) { o.nc = fn }
}

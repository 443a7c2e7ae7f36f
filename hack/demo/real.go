package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	controller "github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

const (
	// realReplicas is how many managed resources there are at once, and
	// realWorkers how many are reconciled at a time.
	realReplicas = 50
	realWorkers  = 2

	// Backoff of the work queue. A provider's is from a second to a minute; a
	// story needn't take as long.
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 100 * time.Millisecond

	// cachePoll is how often to look whether the cache has caught up.
	cachePoll = 5 * time.Millisecond

	// stageLabel has the name of an object's stage.
	stageLabel = "graft.crossplane.io/demo-stage"
)

// realPlane is the environment with a real control plane, and a manager with a
// cache, watches and workers.
type realPlane struct {
	plane   *controlplane.ControlPlane
	scheme  *runtime.Scheme
	client  client.Client
	version string
}

// startReal starts the control plane. Progress of a build goes to w.
func startReal(ctx context.Context, w io.Writer) (*realPlane, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{CRDs: crds(), Progress: w})
	if err != nil {
		return nil, err
	}
	e := &realPlane{plane: plane, scheme: scheme}
	if err := e.connect(); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return e, nil
}

func (e *realPlane) connect() error {
	c, err := client.New(e.plane.Config(), client.Options{Scheme: e.scheme})
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(e.plane.Config())
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	v, err := d.ServerVersion()
	if err != nil {
		return fmt.Errorf("cannot ask the API server for its version: %w", err)
	}
	e.client, e.version = c, v.GitVersion
	return nil
}

func (e *realPlane) describe() string {
	return fmt.Sprintf("kube-apiserver %s: %d managed resources at once, reconciled by a manager with a cache and %d "+
		"workers. A cell speaks for all of them, or counts", e.version, realReplicas, realWorkers)
}

func (e *realPlane) replicas() int { return realReplicas }

func (e *realPlane) parallel() int { return 1 }

func (e *realPlane) close() error { return e.plane.Stop() }

func (e *realPlane) stage(name string, r *recorder) (stage, error) {
	return &realStage{realPlane: e, name: name, recorder: r}, nil
}

type realStage struct {
	*realPlane

	name     string
	recorder *recorder
}

func (s *realStage) user() client.Client { return s.client }

func (s *realStage) config() *rest.Config { return s.plane.Config() }

// program returns a client whose writes are recorded.
func (s *realStage) program() (client.WithWatch, error) {
	return s.recorded(s.plane.Config(), client.Options{Scheme: s.scheme})
}

func (s *realStage) recorded(c *rest.Config, o client.Options) (client.WithWatch, error) {
	wc, err := client.NewWithWatch(c, o)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(wc, embedded.Intercept(s.recorder.request)), nil
}

func (s *realStage) place(o client.Object, i int) {
	placed(o, s.name, i)
	o.SetLabels(map[string]string{stageLabel: s.name})
}

func (s *realStage) start(ctx context.Context, p provider) (process, error) {
	obj, ok := resource.MustCreateObject(schema.GroupVersionKind(p.kind), s.scheme).(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s has no metadata", p.kind)
	}
	m, err := controller.NewManager(s.plane.Config(), ctrl.Options{
		Scheme: s.scheme,
		Logger: logr.Discard(),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			obj: {Label: labels.SelectorFromSet(labels.Set{stageLabel: s.name})},
		}},
		NewClient: func(c *rest.Config, o client.Options) (client.Client, error) {
			return s.recorded(c, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a manager: %w", err)
	}

	// The reconciler expects polls. Here they happen when the story says so.
	polls := make(chan event.GenericEvent)
	r := polled{Reconciler: s.recorder.reconciles(p.build(m)), polls: polls}
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, lastBackoff)
	if err := controller.Control(m, p.kind, r, backoff, realWorkers); err != nil {
		return nil, fmt.Errorf("cannot make a controller: %w", err)
	}
	return startProcess(ctx, m, s, polls)
}

// A polled reconciler is called for each object that polls has.
type polled struct {
	reconcile.Reconciler

	polls chan event.GenericEvent
}

func (p polled) Source() source.Source {
	return source.Channel(p.polls, &handler.EnqueueRequestForObject{})
}

// A realProcess is a manager that runs.
type realProcess struct {
	stage *realStage
	cache cache.Cache
	polls chan<- event.GenericEvent

	cancel context.CancelFunc

	// ended is closed when the manager has ended, with err.
	ended chan struct{}
	err   error
}

var errEnded = errors.New("the manager has ended")

func startProcess(
	ctx context.Context, m manager.Manager, s *realStage, polls chan<- event.GenericEvent,
) (*realProcess, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &realProcess{stage: s, cache: m.GetCache(), polls: polls, cancel: cancel, ended: make(chan struct{})}

	go func() {
		defer close(p.ended)
		defer cancel()
		p.err = m.Start(ctx)
	}()

	if !p.cache.WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the manager's cache doesn't sync"), p.stop())
	}
	return p, nil
}

func (p *realProcess) stop() error {
	p.cancel()
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("the manager has failed: %w", p.err)
	}
	return nil
}

func (p *realProcess) first(ctx context.Context, objs []sample.Instance) error {
	return p.until(ctx, objs, func(r runs, _ int) bool { return r.ended > 0 })
}

func (p *realProcess) reconcile(ctx context.Context, n int, objs []sample.Instance) error {
	for range n {
		if err := p.round(ctx, objs); err != nil {
			return err
		}
	}
	return nil
}

func (p *realProcess) settle(ctx context.Context, objs []sample.Instance) error {
	for range maxRounds {
		before, err := p.versions(ctx, objs)
		if err != nil {
			return err
		}
		if err := p.round(ctx, objs); err != nil {
			return err
		}
		after, err := p.versions(ctx, objs)
		if err != nil {
			return err
		}
		rests := true
		for i, o := range objs {
			rests = rests && before[i] == after[i] && !p.stage.recorder.runs(requestFor(o)).requeued
		}

		if rests {
			return nil
		}
	}
	return fmt.Errorf("the provider doesn't come to rest in %d rounds", maxRounds)
}

// round reconciles every object once more, as it now is.
func (p *realProcess) round(ctx context.Context, objs []sample.Instance) error {
	if err := p.catchUp(ctx, objs); err != nil {
		return err
	}
	started := make([]int, len(objs))

	for i, o := range objs {
		started[i] = p.stage.recorder.runs(requestFor(o)).started

		select {
		case p.polls <- event.GenericEvent{Object: o}:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ended:
			return errEnded
		}
	}
	return p.until(ctx, objs, func(r runs, i int) bool { return r.ended > started[i] })
}

// until waits until the recorded reconciles of every object are as they should be.
func (p *realProcess) until(ctx context.Context, objs []sample.Instance, done func(r runs, i int) bool) error {
	for i, o := range objs {
		for {
			changed := p.stage.recorder.changed()
			if done(p.stage.recorder.runs(requestFor(o)), i) {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s to be reconciled: %w", o.GetName(), ctx.Err())
			case <-p.ended:
				return errEnded
			}
		}
	}
	return nil
}

// catchUp waits until the manager's cache has every object as the API server has
// it.
func (p *realProcess) catchUp(ctx context.Context, objs []sample.Instance) error {
	for _, o := range objs {
		err := wait.PollUntilContextCancel(ctx, cachePoll, true, func(ctx context.Context) (bool, error) {
			live, err := version(ctx, p.stage.client, o)
			if err != nil {
				return false, err
			}
			cached, err := version(ctx, p.cache, o)
			return live == cached, err
		})
		if err != nil {
			return fmt.Errorf("waiting for the cache to have %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func (p *realProcess) versions(ctx context.Context, objs []sample.Instance) ([]string, error) {
	out := make([]string, len(objs))
	for i, o := range objs {
		var err error
		if out[i], err = version(ctx, p.stage.client, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// version returns the object's resource version, empty if there is no such object.
func version(ctx context.Context, c client.Reader, o sample.Instance) (string, error) {
	now, found, err := read(ctx, c, o)
	if err != nil || !found {
		return "", err
	}
	return now.GetResourceVersion(), nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
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

	// pollEvery is how often to look whether the provider, or its cache, has caught up.
	pollEvery = 5 * time.Millisecond

	// stageLabel has the name of an object's stage.
	stageLabel = "graft.crossplane.io/demo-stage"
)

// startReal starts the environment with a real control plane. Progress of a build goes to w.
func startReal(ctx context.Context, w io.Writer) environment {
	fmt.Fprintln(w, "demo: starting a real control plane")
	plane, err := controlplane.Start(ctx, controlplane.Options{CRDs: crds(), Progress: w})
	check(err)
	version, err := discovery.NewDiscoveryClientForConfigOrDie(plane.Config()).ServerVersion()
	check(err)
	return environment{
		title: fmt.Sprintf("kube-apiserver %s: %d managed resources at once, reconciled by a manager with a cache and "+
			"%d workers. A cell speaks for all of them, or counts", version.GitVersion, realReplicas, realWorkers),
		replicas: realReplicas, parallel: 1,
		stage: func(name string, r *recorder) stage { return realStage(name, r, plane.Config) },
		close: plane.Stop,
	}
}

func realStage(name string, r *recorder, config func() *rest.Config) stage {
	s := stage{config: config, prefix: name, labels: map[string]string{stageLabel: name}}
	recorded := func(c *rest.Config, o client.Options) (client.WithWatch, error) {
		wc, err := client.NewWithWatch(c, o)
		if err != nil {
			return nil, err
		}
		return interceptor.NewClient(wc, embedded.Intercept(r.request)), nil
	}
	scheme := newScheme()
	var err error
	s.user, err = client.New(config(), client.Options{Scheme: scheme})
	check(err)
	s.program, err = recorded(config(), client.Options{Scheme: scheme})
	check(err)
	s.start = func(ctx context.Context, of resource.ManagedKind, build newProvider, objs []sample.Instance) process {
		o, _ := resource.MustCreateObject(schema.GroupVersionKind(of), scheme).(client.Object)
		m, err := controller.NewManager(config(), ctrl.Options{
			Scheme: scheme,
			Logger: logr.Discard(),
			Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
				o: {Label: labels.SelectorFromSet(s.labels)},
			}},
			NewClient: func(c *rest.Config, o client.Options) (client.Client, error) { return recorded(c, o) },
		})
		check(err)

		// The reconciler expects polls. Here they happen when the story says so.
		p := &realProcess{recorder: r, live: s.user, cached: m.GetCache(), polls: make(chan event.GenericEvent)}
		backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, lastBackoff)
		check(controller.Control(m, of, polled{r.reconciles(build(m)), p.polls}, backoff, realWorkers))
		var stop func() error
		p.reconciled(ctx, objs, func() { stop = run(ctx, m) })
		return process{round: p.round, stop: stop}
	}
	return s
}

// run a manager until it is stopped.
func run(ctx context.Context, m manager.Manager) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// A polled reconciler is called for each object that polls has.
type polled struct {
	reconcile.Reconciler

	polls chan event.GenericEvent
}

func (p polled) Source() source.Source {
	return source.Channel(p.polls, &handler.EnqueueRequestForObject{})
}

// A realProcess is a provider whose manager runs.
type realProcess struct {
	recorder     *recorder
	live, cached client.Reader
	polls        chan event.GenericEvent
}

// round reconciles every object once more when the cache has it as the API server has it.
func (p *realProcess) round(ctx context.Context, objs []sample.Instance) {
	for _, o := range objs {
		await(ctx, "the cache to have "+o.GetName(), func() (bool, error) {
			live, err := version(ctx, p.live, o)
			if err != nil {
				return false, err
			}
			cached, err := version(ctx, p.cached, o)
			return live == cached, err
		})
	}
	p.reconciled(ctx, objs, func() {
		for _, o := range objs {
			select {
			case p.polls <- event.GenericEvent{Object: o}:
			case <-ctx.Done():
				check(ctx.Err())
			}
		}
	})
}

// reconciled returns when every object was reconciled that trigger has reconciled.
func (p *realProcess) reconciled(ctx context.Context, objs []sample.Instance, trigger func()) {
	before := make([]runs, len(objs))
	for i, o := range objs {
		before[i] = p.recorder.runs(o)
	}
	trigger()
	for i, o := range objs {
		await(ctx, "the reconcile of "+o.GetName(), func() (bool, error) {
			return p.recorder.runs(o).ended > before[i].started, nil
		})
	}
}

func await(ctx context.Context, what string, done func() (bool, error)) {
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) { return done() })
	if err != nil {
		check(fmt.Errorf("waiting for %s: %w", what, err))
	}
}

package main

import (
	"context"
	"errors"
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
)

// startReal starts the environment with a real control plane. Progress of a build goes to w.
func startReal(ctx context.Context, w io.Writer) environment {
	fmt.Fprintln(w, "demo: starting a real control plane")
	plane := must(controlplane.Start(ctx, controlplane.Options{CRDs: crds(), Progress: w}))
	version := must(discovery.NewDiscoveryClientForConfigOrDie(plane.Config()).ServerVersion())
	return environment{
		title: fmt.Sprintf("kube-apiserver %s: %d managed resources at once, reconciled by a manager with a cache and "+
			"%d workers. A cell speaks for all of them, or counts", version.GitVersion, realReplicas, realWorkers),
		replicas: realReplicas, parallel: 1,
		stage: func(name string, r *recorder) stage { return realStage(name, r, plane.Config) },
		close: plane.Stop,
	}
}

func realStage(name string, r *recorder, config func() *rest.Config) stage {
	s := stage{config: config, prefix: name, labels: map[string]string{"graft.crossplane.io/demo-stage": name}}
	scheme := newScheme()
	user := must(client.NewWithWatch(config(), client.Options{Scheme: scheme}))
	s.user, s.program = user, interceptor.NewClient(user, embedded.Intercept(r.request))
	s.start = func(ctx context.Context, of resource.ManagedKind, build newProvider, objs []sample.Instance) process {
		o, _ := resource.MustCreateObject(schema.GroupVersionKind(of), scheme).(client.Object)
		m := must(controller.NewManager(config(), ctrl.Options{
			Scheme: scheme,
			Logger: logr.Discard(),
			Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
				o: {Label: labels.SelectorFromSet(s.labels)},
			}},
			NewClient: func(cfg *rest.Config, o client.Options) (client.Client, error) {
				c, err := client.NewWithWatch(cfg, o)
				return interceptor.NewClient(c, embedded.Intercept(r.request)), err
			},
		}))

		// The reconciler expects polls. Here they happen when the story says so.
		p := &realProcess{r.reconciles(build(m)), r, user, m.GetCache(), make(chan event.GenericEvent)}

		// A provider's backoff is from a second to a minute. A story needn't take as long.
		backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, 100*time.Millisecond)
		check(controller.Control(m, of, p, backoff, realWorkers))
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

// A realProcess is a provider whose manager runs. Its reconciler is also called for each object that polls has.
type realProcess struct {
	reconcile.Reconciler

	recorder     *recorder
	live, cached client.Reader
	polls        chan event.GenericEvent
}

func (p *realProcess) Source() source.Source {
	return source.Channel(p.polls, &handler.EnqueueRequestForObject{})
}

// round reconciles every object once more when the cache has it as the API server has it.
func (p *realProcess) round(ctx context.Context, objs []sample.Instance) {
	for _, o := range objs {
		await(ctx, "the cache to have "+o.GetName(), func() (bool, error) {
			live, liveErr := version(ctx, p.live, o)
			cached, cachedErr := version(ctx, p.cached, o)
			return live == cached, errors.Join(liveErr, cachedErr)
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
	started := make([]int, len(objs))
	for i, o := range objs {
		started[i] = p.recorder.runs(o).started
	}
	trigger()
	for i, o := range objs {
		await(ctx, "the reconcile of "+o.GetName(), func() (bool, error) {
			return p.recorder.runs(o).ended > started[i], nil
		})
	}
}

// version returns an object's resource version, empty if there is no such object.
func version(ctx context.Context, c client.Reader, o sample.Instance) (string, error) {
	now, _ := o.DeepCopyObject().(sample.Instance)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return now.GetResourceVersion(), nil
}

// await waits until the provider, or its cache, has caught up.
func await(ctx context.Context, what string, done func() (bool, error)) {
	look := func(context.Context) (bool, error) { return done() }
	if err := wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, look); err != nil {
		check(fmt.Errorf("waiting for %s: %w", what, err))
	}
}

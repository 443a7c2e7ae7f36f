package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	// lookEvery is the interval of questions to a provider.
	lookEvery = 250 * time.Millisecond

	// patience bounds what usually takes seconds.
	patience = 10 * time.Minute
)

// A world is a control plane and a cloud. The same managed resources are there for
// both sides, in turn.
type world struct {
	options

	plane *controlplane.ControlPlane
	api   client.WithWatch
	cloud *cloud.Cloud
	url   string

	// latency of each of the cloud's calls.
	latency atomic.Int64
	results *results
}

// realStates measures on a real control plane.
func (o options) realStates(ctx context.Context, r *results) (err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{CRDs: v1alpha1.CRDs(), Progress: o.stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	api, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: s})
	if err != nil {
		return err
	}
	w := &world{options: o, plane: plane, api: api, cloud: cloud.New(cloud.Options{}), results: r}
	w.cloud.SetHooks(cloud.Hooks{Before: func(ctx context.Context, _ cloud.Call) error {
		return cloud.RealClock{}.Sleep(ctx, time.Duration(w.latency.Load()))
	}})
	server := httptest.NewServer(httpapi.Handler(w.cloud))
	defer server.Close()
	w.url = server.URL

	for _, measure := range []func(side string, round int) error{
		func(side string, _ int) error { return w.controllers(ctx, side) },
		func(side string, round int) error { return w.deletion(ctx, side, round) },
	} {
		if err := w.inTurn(measure); err != nil {
			return err
		}
	}

	for _, n := range o.sizes {
		if err := w.populate(ctx, "steady", n); err != nil {
			return err
		}
		if err := w.inTurn(func(side string, round int) error { return w.state(ctx, side, n, round) }); err != nil {
			return err
		}
	}
	return nil
}

// inTurn measures both sides in turn, so that other load of the machine concerns both.
func (w *world) inTurn(measure func(side string, round int) error) error {
	for round := range w.rounds {
		for _, side := range sides() {
			if err := measure(side, round); err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
		}
	}
	return nil
}

func (w *world) start(ctx context.Context, side string, poll time.Duration) (*provider, error) {
	return startProvider(ctx, w.config(side, poll))
}

func (w *world) config(side string, poll time.Duration) providerConfig {
	return providerConfig{Side: side, Kubeconfig: w.plane.Kubeconfig(), Cloud: w.url, Poll: poll, Workers: w.workers}
}

// controllers measures the memory of an idle controller, with its workers and reconciler, and
// without its informer.
func (w *world) controllers(ctx context.Context, side string) error {
	const few, many = 1, 201
	memory := map[int]float64{}

	for _, n := range []int{few, many} {
		c := w.config(side, time.Hour)
		c.Controllers = n
		p, err := startProvider(ctx, c)
		if err != nil {
			return err
		}

		// Its workers have started when the cache has synced and no more is allocated.
		u, err := p.ask(askUsage)
		err = errors.Join(err, w.until(ctx, func() (bool, error) {
			before := u
			u, err = p.ask(askHeap)
			return u.Requests["watch"] > 0 && math.Abs(float64(u.Heap)-float64(before.Heap)) < 1e4, err
		}))
		memory[n] = float64(u.Heap + u.Stacks)
		if err := errors.Join(err, p.stop()); err != nil {
			return err
		}
	}

	w.results.add(fmt.Sprintf("controller/%s/memory", side), "KB", (memory[many]-memory[few])/(many-few)/1000)
	return nil
}

// calls returns how many calls have reached the cloud.
func (w *world) calls() int {
	n := 0
	for c := range maps.Values(w.cloud.Counts()) {
		n += c
	}
	return n
}

// state restarts a provider, and lets it poll each of n managed resources once.
func (w *world) state(ctx context.Context, side string, n, round int) error {
	fmt.Fprintf(w.stderr, "%d managed resources, %s, round %d\n", n, side, round+1)
	p, err := w.start(ctx, side, w.poll)
	if err != nil {
		return err
	}
	return errors.Join(w.measureState(ctx, p, side, n, round), p.stop())
}

func (w *world) measureState(ctx context.Context, p *provider, side string, n, round int) error {
	began, calls := time.Now(), w.calls()
	made := &course{Name: fmt.Sprintf("restart/%d/%s/requests", n, side)}
	called := &course{Name: fmt.Sprintf("restart/%d/%s/external-calls", n, side)}
	var rest spent

	err := w.until(ctx, func() (bool, error) {
		u, err := p.ask(askUsage)
		rest = u
		made.add(time.Since(began), float64(u.requests(all)))
		called.add(time.Since(began), float64(w.calls()-calls))
		return u.Reconciles >= n, err
	})
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	restart := func(measure, unit string, value float64) {
		w.results.add(fmt.Sprintf("restart/%d/%s/%s", n, side, measure), unit, value)
	}
	restart("seconds", "s", took)
	restart("requests", "", float64(rest.requests(all)))
	restart("status-writes", "", float64(rest.requests(statusWrites)))
	restart("requests-per-second", "/s", float64(rest.requests(all))/took)
	restart("external-calls", "", float64(w.calls()-calls))
	restart("external-calls-per-second", "/s", float64(w.calls()-calls)/took)
	if round == 0 && n == slices.Max(w.sizes) {
		w.results.Courses = append(w.results.Courses, made, called)
	}

	// The last reconcile has just ended, and its next one follows after a poll interval.
	// The measurement begins and ends between two polls of everything, because their
	// duration varies.
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	before, err := p.ask(askHeap)
	if err != nil {
		return err
	}
	if before, err = p.ask(askUsage); err != nil {
		return err
	}
	api, err := w.plane.CPU()
	if err != nil {
		return err
	}
	began = time.Now()

	// To ask costs the provider time, so nothing is asked before the end.
	err = errors.Join(sleep(ctx, w.poll), w.until(ctx, func() (bool, error) {
		u, err := p.ask(askUsage)
		return u.Reconciles >= before.Reconciles+n, err
	}))
	if err != nil {
		return err
	}
	took = time.Since(began).Seconds()
	apiAfter, err := w.plane.CPU()
	if err != nil {
		return err
	}
	after, err := p.ask(askHeap)
	if err != nil {
		return err
	}
	steady := func(measure, unit string, value float64) {
		w.results.add(fmt.Sprintf("steady/%d/%s/%s", n, side, measure), unit, value)
	}
	reconciles := float64(after.Reconciles - before.Reconciles)
	w.requests(n, side, before, after)
	steady("reconciles", "", reconciles)
	steady("seconds", "s", took)
	steady("provider-cpu", "s", (after.CPU - before.CPU).Seconds())
	steady("provider-cpu-per-reconcile", "ms", 1000*(after.CPU-before.CPU).Seconds()/max(1, reconciles))
	steady("api-server-cpu", "s", (apiAfter - api).Seconds())
	steady("heap", "MB", float64(after.Heap)/1e6)
	return nil
}

// requests in a steady state, by verb.
func (w *world) requests(n int, side string, before, after spent) {
	add := func(measure string, n0, n1 int) {
		w.results.add(fmt.Sprintf("steady/%d/%s/%s", n, side, measure), "", float64(n1-n0))
	}
	add("status-writes", before.requests(statusWrites), after.requests(statusWrites))
	for _, verb := range verbs() {
		add("requests/"+verb, before.Requests[verb], after.Requests[verb])
	}
	add("requests", before.requests(all), after.requests(all))
}

// verbs of the requests that a provider makes. Lists and watches are few, and
// depend on time alone.
func verbs() []string {
	return []string{"get", "update", "patch", "update status", "patch status", "events"}
}

// latencies of the cloud at which a deletion is measured.
func latencies() []time.Duration {
	return []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond}
}

// deletion measures how long it takes until a watch shows the condition.
func (w *world) deletion(ctx context.Context, side string, round int) error {
	for _, latency := range latencies() {
		fmt.Fprintf(w.stderr, "deletions, %s per external call, %s, round %d\n", latency, side, round+1)
		prefix := fmt.Sprintf("deleted-%s-%d-%d", side, latency.Milliseconds(), round)
		if err := w.populate(ctx, prefix, w.deletions); err != nil {
			return err
		}
		p, err := w.start(ctx, side, time.Hour)
		if err != nil {
			return err
		}
		took, err := w.watchDeletions(ctx, p, prefix, latency)
		if err := errors.Join(err, p.stop()); err != nil {
			return err
		}
		for _, t := range took {
			w.results.add(fmt.Sprintf("deletion/%s/%s/seconds", latency, side), "s", t.Seconds())
		}
	}
	return nil
}

func (w *world) watchDeletions(
	ctx context.Context, p *provider, prefix string, latency time.Duration,
) ([]time.Duration, error) {
	err := w.until(ctx, func() (bool, error) {
		u, err := p.ask(askUsage)
		return u.Reconciles >= w.deletions, err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	events, err := w.api.Watch(ctx, &v1alpha1.DatabaseList{})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	w.latency.Store(int64(latency))
	var took []time.Duration

	for i := range w.deletions {
		d := v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", prefix, i))
		began := time.Now()
		if err := w.api.Delete(ctx, d); err != nil {
			return nil, err
		}
		says := func(_ watch.Event, got *v1alpha1.Database) bool {
			return got.GetCondition(xpv2.TypeReady).Reason == xpv2.ReasonDeleting
		}
		if err := await(ctx, events, d.Name, says); err != nil {
			return nil, fmt.Errorf("waiting until it says that it is being deleted: %w", err)
		}
		took = append(took, time.Since(began))

		// Wait for the end of this deletion, because its requests would delay the next one.
		gone := func(e watch.Event, _ *v1alpha1.Database) bool { return e.Type == watch.Deleted }
		if err := await(ctx, events, d.Name, gone); err != nil {
			return nil, fmt.Errorf("waiting until it is gone: %w", err)
		}
	}

	w.latency.Store(0)
	return took, nil
}

// await the first event of a managed resource that is so.
func await(
	ctx context.Context, events watch.Interface, name string, is func(e watch.Event, d *v1alpha1.Database) bool,
) error {
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return fmt.Errorf("%s: the watch has ended", name)
			}
			if d, ok := e.Object.(*v1alpha1.Database); ok && d.Name == name && is(e, d) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", name, ctx.Err())
		}
	}
}

func (c *course) add(t time.Duration, value float64) {
	c.Seconds = append(c.Seconds, float64(t.Milliseconds())/1000)
	c.Values = append(c.Values, value)
}

func sleep(ctx context.Context, d time.Duration) error { return cloud.RealClock{}.Sleep(ctx, d) }

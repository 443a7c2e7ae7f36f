package main

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	// lookEvery is the interval of questions to a provider.
	lookEvery = 250 * time.Millisecond

	// deletions are how many managed resources a provider deletes while it is measured.
	deletions = 5

	// patience bounds what usually takes seconds.
	patience = 10 * time.Minute
)

// A world is a control plane and a cloud. The same managed resources are there for
// both sides, in turn.
type world struct {
	options

	t     *testing.T
	plane *controlplane.ControlPlane
	api   client.WithWatch
	cloud *cloud.Cloud
	url   string

	// latency of each of the cloud's calls.
	latency atomic.Int64
	results *results
}

// realStates measures on a real control plane.
func (o options) realStates(ctx context.Context, t *testing.T, r *results) {
	s := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(s))
	plane, err := controlplane.Start(ctx, controlplane.Options{CRDs: v1alpha1.CRDs(), Progress: os.Stderr})
	must(t, err)
	defer func() { must(t, plane.Stop()) }()
	api, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: s})
	must(t, err)
	w := &world{options: o, t: t, plane: plane, api: api, cloud: cloud.New(cloud.Options{}), results: r}
	w.cloud.SetHooks(cloud.Hooks{Before: func(ctx context.Context, _ cloud.Call) error {
		return cloud.RealClock{}.Sleep(ctx, time.Duration(w.latency.Load()))
	}})
	server := httptest.NewServer(httpapi.Handler(w.cloud))
	defer server.Close()
	w.url = server.URL

	w.inTurn(func(side string, _ int) { w.controllers(ctx, side) })
	w.inTurn(func(side string, round int) { w.deletion(ctx, side, round) })
	for _, n := range o.sizes {
		w.populate(ctx, "steady", n)
		w.inTurn(func(side string, round int) { w.state(ctx, side, n, round) })
	}
}

// inTurn measures both sides in turn, so that other load of the machine concerns both.
func (w *world) inTurn(measure func(side string, round int)) {
	for round := range w.rounds {
		for _, side := range sides() {
			measure(side, round)
		}
	}
}

// start a provider, with a number of controllers more.
func (w *world) start(ctx context.Context, side string, poll time.Duration, more int) *provider {
	return startProvider(ctx, w.t, providerConfig{
		Side: side, Kubeconfig: w.plane.Kubeconfig(), Cloud: w.url, Poll: poll, Controllers: more,
	})
}

// controllers measures the memory of an idle controller, with its workers and reconciler, and
// without its informer.
func (w *world) controllers(ctx context.Context, side string) {
	const few, many = 1, 201
	memory := map[int]float64{}
	for _, n := range []int{few, many} {
		p := w.start(ctx, side, time.Hour, n)

		// Its workers have started when the cache has synced and no more is allocated.
		u := p.ask(askUsage)
		w.until(ctx, func() bool {
			before := u
			u = p.ask(askHeap)
			return u.Requests["requests/watch"] > 0 && math.Abs(float64(u.Heap)-float64(before.Heap)) < 1e4
		})
		memory[n] = float64(u.Heap + u.Stacks)
		p.stop()
	}
	w.results.add("controller/"+side+"/memory", "KB", (memory[many]-memory[few])/(many-few)/1000)
}

// calls returns how many calls have reached the cloud.
func (w *world) calls() int {
	n := 0
	for _, c := range w.cloud.Counts() {
		n += c
	}
	return n
}

// state restarts a provider, and lets it poll each of n managed resources once.
func (w *world) state(ctx context.Context, side string, n, round int) {
	fmt.Fprintf(os.Stderr, "%d managed resources, %s, round %d\n", n, side, round+1)
	p := w.start(ctx, side, w.poll, 0)
	defer p.stop()
	began, calls := time.Now(), w.calls()
	made := &course{Name: fmt.Sprintf("restart/%d/%s/requests", n, side)}
	called := &course{Name: fmt.Sprintf("restart/%d/%s/external-calls", n, side)}
	var rest usage
	w.until(ctx, func() bool {
		rest = p.ask(askUsage)
		made.add(time.Since(began), rest.Requests["requests"])
		called.add(time.Since(began), w.calls()-calls)
		return rest.Reconciles >= n
	})
	took := time.Since(began).Seconds()
	requests, external := float64(rest.Requests["requests"]), float64(w.calls()-calls)
	restart := w.results.adder("restart/%d/%s/", n, side)
	restart("seconds", "s", took)
	restart("requests", "", requests)
	restart("status-writes", "", float64(rest.Requests["status-writes"]))
	restart("requests-per-second", "/s", requests/took)
	restart("external-calls", "", external)
	restart("external-calls-per-second", "/s", external/took)
	if round == 0 && n == slices.Max(w.sizes) {
		w.results.Courses = append(w.results.Courses, made, called)
	}

	// The last reconcile has just ended, and its next one follows after a poll interval.
	// The measurement begins and ends between two polls of everything, because their
	// duration varies.
	must(w.t, cloud.RealClock{}.Sleep(ctx, time.Second))
	p.ask(askHeap)
	before, apiBefore := p.ask(askUsage), w.apiServerCPU()
	began = time.Now()

	// To ask costs the provider time, so nothing is asked before the end.
	must(w.t, cloud.RealClock{}.Sleep(ctx, w.poll))
	w.until(ctx, func() bool { return p.ask(askUsage).Reconciles >= before.Reconciles+n })
	took = time.Since(began).Seconds()
	apiAfter, after := w.apiServerCPU(), p.ask(askHeap)

	steady := w.results.adder("steady/%d/%s/", n, side)
	addRequests(steady, before.Requests, after.Requests)
	reconciles, cpu := float64(after.Reconciles-before.Reconciles), (after.CPU - before.CPU).Seconds()
	steady("reconciles", "", reconciles)
	steady("seconds", "s", took)
	steady("provider-cpu", "s", cpu)
	steady("provider-cpu-per-reconcile", "ms", 1000*cpu/max(1, reconciles))
	steady("api-server-cpu", "s", (apiAfter - apiBefore).Seconds())
	steady("heap", "MB", float64(after.Heap)/1e6)
}

func (w *world) apiServerCPU() time.Duration {
	cpu, err := w.plane.CPU()
	must(w.t, err)
	return cpu
}

// addRequests adds the requests in a steady state, by verb. Lists and watches are few, and
// depend on time alone.
func addRequests(steady func(measure, unit string, value float64), before, after tally) {
	for _, measure := range []string{
		"status-writes", "requests/get", "requests/update", "requests/patch", "requests/update status",
		"requests/patch status", "requests/events", "requests",
	} {
		steady(measure, "", float64(after[measure]-before[measure]))
	}
}

// latencies of the cloud at which a deletion is measured.
func latencies() []string { return []string{"0s", "100ms", "500ms"} }

// deletion measures how long it takes until a watch shows the condition.
func (w *world) deletion(ctx context.Context, side string, round int) {
	for i, latency := range latencies() {
		fmt.Fprintf(os.Stderr, "deletions, %s per external call, %s, round %d\n", latency, side, round+1)
		prefix := fmt.Sprintf("deleted-%s-%d-%d", side, i, round)
		w.populate(ctx, prefix, deletions)
		p := w.start(ctx, side, time.Hour, 0)
		w.until(ctx, func() bool { return p.ask(askUsage).Reconciles >= deletions })
		takes, err := time.ParseDuration(latency)
		must(w.t, err)
		w.latency.Store(int64(takes))
		for i := range deletions {
			took := w.deleteAndWatch(ctx, fmt.Sprintf("%s-%d", prefix, i))
			w.results.add("deletion/"+latency+"/"+side+"/seconds", "s", took.Seconds())
		}
		w.latency.Store(0)
		p.stop()
	}
}

// deleteAndWatch returns how long it takes until a managed resource says that it is being deleted.
func (w *world) deleteAndWatch(ctx context.Context, name string) (took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	events, err := w.api.Watch(ctx, &v1alpha1.DatabaseList{}, client.MatchingFields{"metadata.name": name})
	must(w.t, err)
	began := time.Now()
	must(w.t, w.api.Delete(ctx, v1alpha1.NewDatabase(name)))
	_, err = toolswatch.UntilWithoutRetry(ctx, events, func(e watch.Event) (bool, error) {
		took = time.Since(began)
		d, ok := e.Object.(*v1alpha1.Database)
		return ok && d.GetCondition(xpv2.TypeReady).Reason == xpv2.ReasonDeleting, nil
	}, func(e watch.Event) (bool, error) {
		// Wait for the end of this deletion, because its requests would delay the next one.
		return e.Type == watch.Deleted, nil
	})
	must(w.t, err)
	return took
}

// populate adds managed resources until there are n, and returns when all are ready.
func (w *world) populate(ctx context.Context, prefix string, n int) {
	p := w.start(ctx, graftSide, time.Hour, 0)
	defer p.stop()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			return client.IgnoreAlreadyExists(w.api.Create(ctx, v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", prefix, i))))
		})
	}
	must(w.t, g.Wait())
	w.until(ctx, func() bool {
		var l v1alpha1.DatabaseList
		must(w.t, w.api.List(ctx, &l))
		ready := 0
		for i := range l.Items {
			if strings.HasPrefix(l.Items[i].Name, prefix+"-") &&
				l.Items[i].GetCondition(xpv2.TypeReady).Status == corev1.ConditionTrue {
				ready++
			}
		}
		return ready == n
	})
}

// until a condition holds.
func (w *world) until(ctx context.Context, holds func() bool) {
	w.t.Helper()
	must(w.t, wait.PollUntilContextTimeout(ctx, lookEvery, patience, true, func(context.Context) (bool, error) {
		return holds(), nil
	}))
}

func (c *course) add(t time.Duration, value int) {
	c.Seconds = append(c.Seconds, float64(t.Milliseconds())/1000)
	c.Values = append(c.Values, float64(value))
}

package crashtest

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

const (
	// horizon is how long a run goes on after the last act or fault, if a managed resource is not as the user wants
	// it. It is longer by a few polls of the provider.
	horizon = time.Hour

	// betweenActs is how long each managed resource has to be as the user wants it before the next act. atEnd is how
	// long at the end of a run, longer by a few polls.
	betweenActs = 2 * time.Minute
	atEnd       = 5 * time.Minute

	// polls is how many polls are waited for. A shorter interval than shortestPoll is no poll, a longer one than
	// longestPoll is not waited for.
	polls        = 3
	shortestPoll = 10 * time.Second
	longestPoll  = 2 * time.Hour

	// maxRequests is how many requests follow one act at the most. Only a provider that loops makes more.
	maxRequests = 6000
)

// newRun returns a run in which nothing has happened. beats counts what happens: it is read outside of the bubble.
func newRun(p *subject, c testCase, seed uint64, beats *atomic.Int64) (*run, error) {
	cloud, err := p.newCloud()
	if err != nil {
		return nil, err
	}
	r := &run{
		provider: p, faults: striker{injections: c.injections, status: p.Status}, cloud: cloud,
		expect: oracle.NewExpectations(), first: p.Object, second: p.second,
		objects: map[string]oracle.Object{}, stored: map[string]client.Object{}, foreign: len(cloud.Made()),
	}
	beside := make([]client.Object, 0, len(p.Beside))
	for _, o := range p.Beside {
		o, _ := o.DeepCopyObject().(client.Object)
		if o.GetUID() == "" {
			o.SetUID(types.UID("beside-" + o.GetName()))
		}
		beside = append(beside, o)
	}
	r.sim, err = simulation.New(simulation.Options{
		Scheme: copyScheme(p.Scheme), CRDs: p.crds, Objects: beside, Seed: seed, Serial: p.Serial,
		Start: func(sp *simulation.Process) (reconcile.Reconciler, error) {
			return p.Start(&Process{sim: sp, external: func(
				ctx context.Context, q history.Request, call func(e *history.Event) error,
			) error {
				return sp.Pass(ctx, q, func(s *simulation.Request) error { return r.effect(s, call) })
			}}, cloud)
		},
		Turn: r.turn, Changed: r.changed,
		Answered: r.answered,
		Record: func(e history.Event) {
			beats.Add(1)
			r.events = append(r.events, &e)
		},
	})
	if err != nil {
		return nil, err
	}
	for name := range cloud.Exists() {
		(&User{run: r}).protect(name)
	}
	return r, nil
}

// play a scenario to its end.
func (r *run) play(s Scenario) error {
	u := &User{run: r, specs: map[string]map[string]any{}}
	r.sim.Start()
	if err := r.acts(u, s.Setup, false); err != nil || r.phase.settled == unsettled && len(s.Setup) > 0 {
		// Without a fault this is a finding already.
		return err
	}
	r.faults.armed = true
	defer func() { r.faults.armed = false }()
	return r.acts(u, s.Acts, true)
}

// acts does one act after the other. Acts during calls that nothing called for happen as any other.
func (r *run) acts(u *User, list []Act, last bool) error {
	for i := 0; i < len(list); {
		next := i + 1
		var during []func() error
		for ; next < len(list) && list[next].DuringCall; next++ {
			do := list[next].Do
			during = append(during, func() error {
				u.calling = true
				defer func() { u.calling = false }()
				return do(u)
			})
		}
		r.phase = phase{
			final: last && next == len(list), disturbed: r.sim.Since(), settled: unsettled, pending: during,
		}
		if err := list[i].Do(u); err != nil {
			return err
		}
		if err := r.sim.Run(r.until); err != nil {
			return err
		}
		if r.phase.final && len(r.phase.pending) == 0 {
			break
		}
		i = next - len(r.phase.pending)
	}
	return nil
}

// until returns when the phase ends.
func (r *run) until(idle bool) (time.Duration, error) {
	if r.broken != nil || r.phase.requests > maxRequests {
		return 0, r.broken
	}
	if idle {
		r.look()
	}
	limit := r.phase.disturbed + horizon + r.polls() + r.phase.wait
	if r.phase.settled == unsettled {
		return limit, nil
	}
	return min(limit, max(r.phase.settled, r.phase.disturbed)+r.window()), nil
}

// window is how long each managed resource has to be as the user wants it until the phase ends.
func (r *run) window() time.Duration {
	if r.phase.final && len(r.phase.pending) == 0 {
		return max(atEnd+r.polls(), r.phase.wait)
	}
	return max(betweenActs, r.phase.wait)
}

// polls is how long some polls of the provider take.
func (r *run) polls() time.Duration {
	if d := r.sim.Poll(); d >= shortestPoll {
		return polls * min(d, longestPoll)
	}
	return 0
}

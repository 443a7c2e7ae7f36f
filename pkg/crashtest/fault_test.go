package crashtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// TestFaults proves the effect of each fault on a call: the process that gets the answer, and how often the call has
// its effect.
func TestFaults(t *testing.T) {
	const (
		reset   = "read tcp: connection reset by peer (injected)"
		timeout = "read tcp: i/o timeout"
		status  = "1: the external system answered with status %d (injected)"
	)
	cases := map[string]struct {
		reason  string
		answers []string
		effects int
	}{
		"crash-before":    {"The next process should make the call.", []string{"2: <nil>"}, 1},
		"crash-after":     {"A process that crashed should get no answer.", nil, 1},
		"crash-inflight":  {"The call should arrive, too.", []string{"2: <nil>"}, 2},
		"stop-before":     {"A stop should end the call.", []string{"1: context canceled", "2: <nil>"}, 1},
		"stop-after":      {"The call should have its effect.", []string{"1: context canceled"}, 1},
		"failover-before": {"The old process should still make the call.", []string{"1: <nil>"}, 1},
		"failover-after":  {"The old process should get its answer.", []string{"1: <nil>"}, 1},
		"reset-before":    {"The call should be made again.", []string{"1: " + reset, "1: <nil>"}, 1},
		"reset-after":     {"The answer should be lost, and no more.", []string{"1: " + reset}, 1},
		"timeout-before":  {"The call should be made again.", []string{"1: " + timeout, "1: <nil>"}, 1},
		"timeout-after":   {"The answer should be lost, and no more.", []string{"1: " + timeout}, 1},
		"409-before":      {"The provider's SDK should say so.", []string{fmt.Sprintf(status, 409), "1: <nil>"}, 1},
		"409-after":       {"The first attempt of a client succeeded.", []string{fmt.Sprintf(status, 409)}, 1},
		"403-before":      {"The call should be made again.", []string{fmt.Sprintf(status, 403), "1: <nil>"}, 1},
		"503-before":      {"The call should be made again.", []string{fmt.Sprintf(status, 503), "1: <nil>"}, 1},
		"429-before":      {"The call should be made again.", []string{fmt.Sprintf(status, 429), "1: <nil>"}, 1},
		"500-before":      {"The call should be made again.", []string{fmt.Sprintf(status, 500), "1: <nil>"}, 1},
		"500-after":       {"The call should have its effect.", []string{fmt.Sprintf(status, 500)}, 1},
		"late":            {"The call should succeed.", []string{"1: <nil>"}, 1},
	}
	var answers []string
	effects := 0
	p := vmProvider(t, nil)
	p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
		r := rightPlain(p, vmAPI{})
		r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
			if err := p.Step(ctx, "Read", func() error { return nil }); err != nil || len(c.Made()) > 0 {
				return err
			}
			err := p.Step(ctx, "Create", func() error {
				effects++
				c.Create(b.GetName(), vm{})
				return nil
			})
			answers = append(answers, fmt.Sprintf("%d: %v", p.sim.ID, err))
			return err
		}
		return r, nil
	}
	p.Scenarios = Scenarios()[:1]
	calm := replayed(t, p, "create/undisturbed")
	numberOf := func(verb string) int {
		i := slices.IndexFunc(calm.events, func(e *history.Event) bool { return e.Request.Verb == verb })
		if i < 0 {
			t.Fatalf("there is no request %s", verb)
		}
		return calm.events[i].Number
	}
	read, create := numberOf("Read"), numberOf("Create")
	var ofRead []string
	for _, c := range (testCase{scenario: p.Scenarios[0]}).further(calm.events, true) {
		name := c.injections[0].Fault.Name
		switch c.injections[0].Number {
		case read:
			ofRead = append(ofRead, name)
		case create:
			t.Run(name, func(t *testing.T) {
				tc := cases[name]
				answers, effects = nil, 0
				r := replayed(t, p, c.name())
				// The run without a fault comes first, and creates once.
				diff := cmp.Diff(tc.answers, answers[1:], cmpopts.EquateEmpty())
				if diff != "" || effects-1 != tc.effects || len(r.Violations) > 0 {
					t.Errorf(
						"\n%s\nwant %d effects, got %d; %v; answers: -want, +got:\n%s\n%s", tc.reason, tc.effects,
						effects-1,
						r.Violations, diff, r.Timeline(),
					)
				}
				delete(cases, name)
			})
		}
	}
	for name := range cases {
		t.Errorf("%s was not tried: it does not suit a call that creates", name)
	}
	want := []string{
		"crash-before", "stop-before", "failover-before", "reset-before", "timeout-before", "403-before", "429-before",
		"500-before", "503-before",
	}
	if diff := cmp.Diff(want, ofRead); diff != "" {
		t.Errorf("A call that changes nothing has no effect that could be lost.\n-want, +got:\n%s", diff)
	}
}

func TestFaults_Away(t *testing.T) {
	failures := 0
	p := plainProvider(t, func(p *Process, r *plain) {
		r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
			err := p.Manager().GetAPIReader().Get(ctx, client.ObjectKeyFromObject(b), b)
			if err != nil {
				failures++
			}
			return false, err
		}
	})
	p.Scenarios = Scenarios()[:1]
	if fs := findings(t, p, Only("create/^away-before$/^1$")); len(fs) > 0 {
		t.Errorf("The provider is right: %v", fs[0].Violations)
	}
	// The backoff is 1, 2, 4 … seconds.
	if failures != 6 {
		t.Errorf("The API server should be away for a minute: want 6 failed requests, got %d", failures)
	}
}

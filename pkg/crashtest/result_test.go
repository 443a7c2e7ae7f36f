package crashtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestLead(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options []Option
		points  int // With one fault.
		pairs   int
	}{
		"OneLife": {"A whole name should select one life.", []Option{Only("create/crash-after/4")}, 1, 0},
		"PointsOfALife": {
			"The name of a life should select its points.", []Option{Only("create"), Points(3), Pairs(0)}, 3, 0,
		},
		"OneFault": {
			"A pattern should select the points of one fault, and no others.",
			[]Option{Only("create/^crash-inflight$")},
			1,
			0,
		},
		"NoPairs":   {"Without pairs each life should have one fault.", []Option{Points(8), Pairs(0)}, 8, 0},
		"SomePairs": {"Pairs should be taken from the points.", []Option{Points(8), Pairs(3)}, 5, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, upstreamNamed)
			p.Lives = Lives()[:1]
			results, err := Lead(t, p, tc.options...)
			if err != nil {
				t.Fatal(err)
			}
			points, pairs := 0, 0
			for _, r := range results {
				switch strings.Count(r.Name, "/") {
				case 2:
					points++
				case 4:
					pairs++
				}
				if len(r.Violations) > 0 || !strings.Contains(r.Timeline(), "the user creates one") {
					t.Errorf("\n%s\n%s: %v\n%s", tc.reason, r.Name, r.Violations, r.Timeline())
				}
			}
			if points != tc.points || pairs != tc.pairs {
				t.Errorf(
					"\n%s\nLead(...): want %d points and %d pairs, got %d and %d",
					tc.reason,
					tc.points,
					tc.pairs,
					points,
					pairs,
				)
			}
		})
	}

	if _, err := Lead(t, vmProvider(t, upstreamNamed), Points(1), Pairs(2)); err == nil ||
		!strings.Contains(err.Error(), "Pairs(2)") {
		t.Errorf("Lead(...): more pairs than points: want an error, got %v", err)
	}
}

// TestLead_AcceptedVerdict proves that a life with an accepted verdict is led with faults.
func TestLead_AcceptedVerdict(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		r, err := upstreamNamed(p, a)
		return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			result, err := r.Reconcile(ctx, req)
			b := &v1alpha1.Bucket{}
			if p.live.Get(ctx, req.NamespacedName, b) == nil {
				b.Status.AtProvider.State = time.Now().String()
				_ = p.live.Status().Update(ctx, b)
			}
			return result, err
		}), err
	})
	p.Lives, p.Accept = Lives()[:1], []Verdict{HotLoop}
	results, err := Lead(t, p, Points(1), Pairs(0))
	if err != nil || len(results) != 2 {
		t.Fatalf("Lead(...): want a life without a fault and one with, got %d, error %v", len(results), err)
	}
	if vs := results[0].Violations; len(vs) == 0 || vs[0].Verdict != HotLoop {
		t.Errorf("Lead(...): want %s, got %v", HotLoop, vs)
	}
}

// TestLead_Reconciles proves that the reconciles before the first act are not counted.
func TestLead_Reconciles(t *testing.T) {
	p := vmProvider(t, upstreamNamed)
	p.Lives = []Life{{Name: "restart", Before: Lives()[1].Before, Acts: []Act{{Do: (*User).Restart}}}}
	results, err := Lead(t, p, Points(0))
	if err != nil || len(results) != 1 || results[0].Reconciles != 0 {
		t.Errorf("Lead(...): want no reconcile until the last change, got %+v, error %v", results, err)
	}
}

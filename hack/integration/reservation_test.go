//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// Managed resources of two kinds have one external name. The one that holds the
// external resource is deleted, or removed without releasing its reservation. The
// next one takes over. Two never act on it at the same time, even if requests for
// Leases fail.
func TestReservation(t *testing.T) {
	faults := []fault{refuseForbidden, refuseInternal, loseRequest, refuseConflict, loseAnswer}
	cases := map[string]struct {
		reason string
		// contenders is how many there are of each kind, and turns how many of
		// them have it, one after the other, before all are deleted.
		contenders, turns int
		unreserved        bool
		// outage is how all requests for Leases fail before the first turn, and
		// faults how one in three does during the turns.
		outage, faults []fault
	}{
		"Unreserved": {
			reason:     "Without a reservation they act on it all at once.",
			contenders: 10,
			unreserved: true,
		},
		"TwoHundred": {
			reason:     "Of 200, one does.",
			contenders: 100,
			turns:      4,
		},
		"LeasesFail": {
			reason:     "While the holder of the Lease is unknown, no managed resource acts. A Lease whose answer was lost may be held.",
			contenders: 5,
			turns:      8,
			outage:     faults[:3],
			faults:     faults,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.createLeaseNamespace(t)
			r := newReferee(cloud.New(cloud.Options{RequestLatency: 2 * time.Millisecond}))
			f := r.reserved(name)
			if tc.unreserved {
				f = r.provider(name)
			}
			d := newDice(100, tc.outage...)
			tr := &traffic{fault: func(c call, _ []byte) fault {
				if c.Resource != "leases" {
					return noFault
				}
				return d.throw()
			}}
			s.create(t, contenders(tc.contenders)...)
			start(t, f, setup{wrap: tr.wrap})
			if tc.outage != nil {
				eventually(t, "requests for Leases fail", func() (bool, string) {
					return d.count() >= 20*tc.contenders, fmt.Sprint(d.count())
				})
				if acts := r.acted(func(act) bool { return true }); len(acts) > 0 {
					t.Errorf("\n%s\nwant nothing done while there are no Leases, got %v", tc.reason, acts)
				}
			}
			d.set(33, tc.faults...)
			if tc.unreserved {
				eventually(t, "two act on it", func() (bool, string) { return len(r.seen()) > 0, "none do" })
				// They delete what isn't theirs, and wait for what is created again.
				return
			}
			for turn := range tc.turns {
				r.handOver(t, s, turn%2 == 1)
			}
			for _, mg := range s.list(t.Context(), t) {
				s.remove(t, mg)
			}
			s.untilGone(t)
			r.check(t)
		})
	}
}

// handOver waits until a managed resource holds the external resource, and deletes
// it. If silently is true it is removed without releasing its reservation.
func (r *referee) handOver(t *testing.T, s server, silently bool) {
	t.Helper()
	var has sample.Instance
	eventually(t, "a managed resource holds it", func() (bool, string) {
		owner := r.owner(t)
		has = s.list(t.Context(), t)[owner]

		// One that is available does nothing more: it isn't looked at for an hour.
		return has != nil && isAvailable(has), fmt.Sprintf("%q has it", owner)
	})
	if silently {
		r.lose(t)
		s.merge(t, `{"metadata":{"finalizers":null}}`, has)
	}
	s.remove(t, has)
	eventually(t, "it is another one's", func() (bool, string) {
		owner := r.owner(t)
		return owner != "" && owner != has.GetUID(), fmt.Sprintf("%q has it", owner)
	})
}

// createLeaseNamespace makes the namespace with the Leases. None is left from a
// test before.
func (s server) createLeaseNamespace(t *testing.T) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaseNamespace}}
	must(t, "Create()", client.IgnoreAlreadyExists(s.Create(t.Context(), ns)))
	must(t, "DeleteAllOf()", s.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(leaseNamespace)))
}

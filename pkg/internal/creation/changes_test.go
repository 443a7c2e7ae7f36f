package creation

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The record of a create that failed is stored together with upstream's annotation.
func TestChanges_FailedCreate(t *testing.T) {
	announced := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type want struct {
		Phase    Phase
		Named    bool
		Repeated bool
		Failed   time.Time
	}
	cases := map[string]struct {
		reason string
		store  func(c Changes, r *Record) Changes
		want   want
	}{
		"Failed": {
			reason: "The create failed when it ended, not when it was announced.",
			store: func(c Changes, r *Record) Changes {
				return c.FailedWith(r.EndedWith(Outcome{At: announced.Add(time.Minute)}), announced.Add(time.Minute))
			},
			want: want{Phase: Failed, Failed: announced.Add(time.Minute)},
		},
		"Absent": {
			reason: "A create that made nothing failed when it was announced, so that the next may be announced in this second.",
			store: func(c Changes, r *Record) Changes {
				return c.AbsentWith(r.EndedWith(Outcome{At: announced.Add(time.Minute)}))
			},
			want: want{Phase: Failed, Failed: announced},
		},
		"AbsentAndNamed": {
			reason: "A name of an external resource that does not exist says nothing about the next create.",
			store: func(c Changes, r *Record) Changes {
				r.Named, r.Repeated = true, true
				return c.AbsentWith(r.EndedWith(Outcome{At: announced.Add(time.Minute)}))
			},
			want: want{Phase: Failed, Failed: announced},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
			meta.SetExternalCreatePending(o, announced)
			tc.store(On(o), NewRecord(o, Create, "holder", "token", announced, time.Hour)).Apply(o)

			s, err := Of(o)
			if err != nil {
				t.Fatal(err)
			}
			got := want{Phase: s.Phase, Named: s.Named, Repeated: s.Record.Repeated, Failed: meta.GetExternalCreateFailed(o)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if !s.Record.Announces(o) {
				t.Errorf("\n%s\nthe record is not that of the last create that was announced", tc.reason)
			}

			// A provider without Graft whose clock is behind announces the next create.
			meta.SetExternalCreatePending(o, announced.Add(-time.Hour))
			if s, err := Of(o); err != nil || s.Phase != Announced || s.Record != nil {
				t.Errorf("\nA create that is announced later has no record.\ngot %s, %v", s.Phase, err)
			}
		})
	}
}

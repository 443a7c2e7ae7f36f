package contested

import (
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

func TestContests_Forgotten(t *testing.T) {
	cases := map[string]struct {
		reason string
		ages   []time.Duration // since the last tries to write the fields
		want   int
	}{
		"Old": {
			reason: "Fields that were not written for long should be forgotten by a reconcile that writes nothing.",
			ages:   []time.Duration{contestedFor, 2 * contestedFor},
		},
		"Recent": {
			reason: "Fields should be kept while one of them may still be contested: the next write forgets the others.",
			ages:   []time.Duration{contestedFor / 2, 2 * contestedFor},
			want:   2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := v1alpha1.NewBucket("default", "b")
			b := &contests{store: &store.Store{}}
			b.key.Update(b.store, o, func(v *map[string]contest) {
				*v = map[string]contest{}
				for _, age := range tc.ages {
					(*v)[age.String()] = contest{tried: time.Now().Add(-age)}
				}
			})
			b.forget(o, time.Now())
			testkit.ExpectEqual(t, tc.reason, "contests", tc.want, len(b.key.Get(b.store, o)))
		})
	}
}

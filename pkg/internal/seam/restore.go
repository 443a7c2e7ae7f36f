package seam

import (
	"hash/fnv"
	"io"
	"slices"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
)

// maxRestorations is how often in a row a condition is restored at once.
const maxRestorations = 3

// restores reports whether c is to be written in place of the stored condition. It returns
// false while the condition is left to another writer, and then requeues the object.
func (s *Session) restores(stored, c xpv2.Condition) bool {
	was, is, version := hashOf(stored), hashOf(c), s.base.GetResourceVersion()
	i := slices.IndexFunc(s.patches, func(p Patch) bool { return slices.Contains(p.Restore.Conditions, c.Type) })
	if was == is || i < 0 {
		return true
	}
	limit, now := s.patches[i].Restore, s.Now()
	var left time.Duration
	limited := false

	s.histories.update(s.base, func(v *history) {
		if v.restorations.conditions == nil {
			v.restorations.conditions = map[xpv2.ConditionType]*restoration{}
		}
		r := v.restorations.conditions[c.Type]
		if r == nil {
			r = &restoration{}
			v.restorations.conditions[c.Type] = r
		}

		if !r.isOwn(was) && r.version != version && v.fresh(version) {
			// Another writer has replaced it.
			quiet := now.Sub(r.last)
			if quiet >= 2*limit.Interval {
				r.count, v.restorations.limited = 0, false
			}
			switch {
			case r.own[0] != 0 && !r.isOwn(is):
			case r.count < maxRestorations, quiet >= limit.Interval:
				r.count++
			default:
				left, limited = limit.Interval-quiet, !v.restorations.limited
				v.restorations.limited = true
				return
			}
			r.last = now
		}
		r.version = version
		if !r.isOwn(is) {
			copy(r.own[1:], r.own[:])
			r.own[0] = is
		}
	})

	if limited {
		limit.Limited(s.base)
	}
	if left > 0 {
		s.Requeue(Within(left))
	}
	return left == 0
}

// refusedConditions forgets the conditions that this process was to write: the API server has
// refused them, so no other writer has replaced them.
func (s *Session) refusedConditions() {
	s.histories.update(s.base, func(v *history) { v.restorations = restorations{} })
}

// hashOf returns a hash of the status, the reason and the message of a condition, or 0 if it
// isn't set.
func hashOf(c xpv2.Condition) uint64 {
	if c.Status == "" || c.Status == corev1.ConditionUnknown && c.Reason == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, string(c.Status)+" "+string(c.Reason)+" "+c.Message)
	return h.Sum64()
}

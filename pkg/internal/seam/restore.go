package seam

import (
	"hash/fnv"
	"io"
	"slices"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
)

// Another writer's change of a condition is undone at once three times in a row, and then once an interval: each write
// causes a reconcile, so two writers that replace each other's conditions would write without end.
const (
	maxRestorations = 3

	// RestoreInterval is the time between two restorations after that.
	RestoreInterval = 10 * time.Second
)

// A restoration counts how often in a row a condition was restored.
type restoration struct {
	// own are hashes of the last conditions that this process tried to write, the newest
	// first. One reconcile may write several, and a write may have failed.
	own [8]uint64

	count   int
	last    time.Time
	version string // The resource version of the object at the last try to write the condition.
}

// isOwn reports whether this process tried to write the condition with this hash. A missing
// condition, whose hash is 0, is its own until the first try.
func (r *restoration) isOwn(hash uint64) bool {
	if hash == 0 {
		return r.own[0] == 0
	}
	return slices.Contains(r.own[:], hash)
}

// restores reports whether c is to be written in place of the stored condition. It returns
// false while the condition is left to another writer, and then requeues the object. A condition that is new is
// written at once.
func (s *Session) restores(stored, c xpv2.Condition) bool {
	was, is, version := hashOf(stored), hashOf(c), s.base.GetResourceVersion()
	if was == is || !slices.ContainsFunc(s.patches, func(p Patch) bool { return slices.Contains(p.Restored, c.Type) }) {
		return true
	}
	var left time.Duration

	s.histories.update(s.base, func(v *history) {
		if v.restorations == nil {
			v.restorations = map[xpv2.ConditionType]*restoration{}
		}
		r := v.restorations[c.Type]
		if r == nil {
			r = &restoration{}
			v.restorations[c.Type] = r
		}

		if !r.isOwn(was) && r.version != version && v.fresh(version) {
			// Another writer has replaced it.
			quiet := s.Now().Sub(r.last)
			if quiet >= 2*RestoreInterval {
				r.count = 0
			}
			switch {
			case r.own[0] != 0 && !r.isOwn(is):
			case r.count < maxRestorations, quiet >= RestoreInterval:
				r.count++
			default:
				left = RestoreInterval - quiet
				return
			}
			r.last = s.Now()
		}
		r.version = version
		if !r.isOwn(is) {
			copy(r.own[1:], r.own[:])
			r.own[0] = is
		}
	})

	if left > 0 {
		s.Requeue(Within(left))
	}
	return left == 0
}

// refusedConditions forgets the conditions that this process was to write: the API server has
// refused them, so no other writer has replaced them.
func (s *Session) refusedConditions() {
	s.histories.update(s.base, func(v *history) { v.restorations = nil })
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

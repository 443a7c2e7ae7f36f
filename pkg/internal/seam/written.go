package seam

import (
	"slices"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written are the writes of this process to one object: the newest one, and the histories of
// conditions and fields that another writer may change back.
type written struct {
	// version is the newest resourceVersion that a write of this process led to.
	version string

	// doubt is the resourceVersion that the object had before a status write with an
	// unknown outcome. A read that is not newer may lack that status.
	doubt string

	// pending are annotations that could not be stored.
	pending Changes

	// failures counts the reconciles in a row that could not store the deletion status.
	failures int

	// contests are the histories of the fields that the inner reconciler has written, by
	// path.
	contests map[string]contest

	// restorations are of conditions that another writer may replace.
	restorations restorations
}

// fresh reports whether a read of resource version v is known to have all writes of this
// process.
func (w written) fresh(v string) bool {
	return (w.version == "" || asFreshAs(v, w.version)) && (w.doubt == "" || OlderThan(w.doubt, v))
}

// restorations count how often the conditions of one object were restored.
type restorations struct {
	conditions map[xpv2.ConditionType]*restoration
	limited    bool
}

// A restoration counts how often in a row a condition was restored.
type restoration struct {
	// own are hashes of the last conditions that this process was to write, the newest
	// first. One reconcile may write several, and a write may have failed.
	own [8]uint64

	count   int
	last    time.Time
	version string // The resource version of the object when the condition was last to be written.
}

// isOwn reports whether this process was to write a condition. It is true for none as long as
// there is none to write.
func (r *restoration) isOwn(hash uint64) bool {
	if hash == 0 {
		return r.own[0] == 0
	}
	return slices.Contains(r.own[:], hash)
}

// A contest is the history of one field.
type contest struct {
	// value is a hash of the value that was written last, at a time.
	value   uint64
	written time.Time

	// rounds counts the writes that replaced another writer's change of value.
	rounds int

	// ours identifies the inner reconciler's own field manager.
	ours fieldManager

	// tried is when the inner reconciler last wrote the field, or was to write it.
	tried time.Time

	// reported is true once the field counts as contested. other is the other writer then.
	reported bool
	other    string
}

type fieldManager struct {
	name      string
	operation metav1.ManagedFieldsOperationType
}

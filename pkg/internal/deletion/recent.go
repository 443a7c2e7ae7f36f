package deletion

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxRecent is the number of UIDs that are kept of objects that no longer exist.
const maxRecent = 64

// recentUIDs has the last objects that no longer exist, because a stale cache may still return
// them.
type recentUIDs struct {
	mu   sync.Mutex
	uids []types.UID
}

func (r *recentUIDs) add(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uid != "" {
		r.uids = append(r.uids[max(0, len(r.uids)-maxRecent+1):], uid)
	}
}

func (r *recentUIDs) remove(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uids = slices.DeleteFunc(r.uids, func(u types.UID) bool { return u == uid })
}

func (r *recentUIDs) has(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.uids, uid)
}

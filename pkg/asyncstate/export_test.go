package asyncstate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// ObjectsInMemory returns about how many objects a tracker knows something between reconciles.
func ObjectsInMemory(t *Tracker) int { return t.objects.Len() }

// OperationsInMemory returns how many operations, semaphores and places in semaphores a tracker has.
func OperationsInMemory(t *Tracker) int {
	n := 0
	t.operations.Range(func(any, any) bool {
		n++
		return true
	})
	t.semaphores.mu.Lock()
	defer t.semaphores.mu.Unlock()
	for _, s := range t.semaphores.byAccount {
		n += 1 + s.running + len(s.queue) + len(s.waiting)
	}
	t.shutdown.mu.Lock()
	defer t.shutdown.mu.Unlock()
	return n + t.shutdown.running
}

// KeepsHandle reports whether a create that has set a handle is resumed after err.
func KeepsHandle(err error) bool {
	now := metav1.Now()
	r := creation.Record{
		Type: creation.Create, Handle: "h", Started: now, Deadline: metav1.NewTime(now.Add(time.Hour)),
	}
	ended := failedRecord(&r, err, "", now.Time)
	return ended.Handle == r.Handle && ended.Phase == creation.RecordUnknown
}

package asyncstate

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

package asyncstate

// Known returns about how many objects a tracker knows something between reconciles.
func Known(t *Tracker) int { return t.known.Len() }

// Remembered returns how many operations and places in semaphores a tracker has.
func Remembered(t *Tracker) int {
	n := 0
	t.operations.Range(func(any, any) bool {
		n++
		return true
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ss := range []*slots{t.working, t.deleting} {
		n += len(ss.of) + len(ss.line) + len(ss.inLine)
	}
	return n + t.running
}

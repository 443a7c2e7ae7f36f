package asyncstate

// Remembered returns how many things a tracker has in memory, without what expires
// by itself.
func Remembered(t *Tracker) int {
	n := 0
	t.operations.Range(func(any, any) bool {
		n++
		return true
	})
	t.details.kept.mu.Lock()
	n += len(t.details.kept.of)
	t.details.kept.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ss := range []*slots{t.working, t.deleting} {
		n += len(ss.of) + len(ss.line) + len(ss.inLine)
	}
	return n + t.running
}

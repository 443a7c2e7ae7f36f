package asyncstate

import (
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// maxProgress is how many bytes a progress message may have.
const maxProgress = 1 << 10

// An operationProgress is how far an operation is. The zero value is ready to use, and safe for concurrent
// use.
type operationProgress struct {
	mu       sync.Mutex
	percent  int
	message  string
	reported time.Time
	waiting  bool // A report is due.
}

// set the progress. report is called for it, at most once in each interval.
func (p *operationProgress) set(percent int, message string, interval time.Duration, report func()) error {
	if percent < 0 || percent > 100 {
		return errors.Errorf("%d%% is not valid: pass a number from 0 to 100", percent)
	}
	message = creation.Clean(message, maxProgress)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.percent == percent && p.message == message {
		return nil
	}

	p.percent, p.message = percent, message
	if p.waiting {
		return nil
	}
	now := time.Now()
	wait := max(0, p.reported.Add(interval).Sub(now))
	p.reported, p.waiting = now.Add(wait), true

	time.AfterFunc(wait, func() {
		p.mu.Lock()
		p.waiting = false
		p.mu.Unlock()
		report()
	})
	return nil
}

// get the progress.
func (p *operationProgress) get() (percent int, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.percent, p.message
}

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
	reported time.Time // when the last report was, or will be
}

// set the progress. It returns how long a report of it has to wait, and false if one is due that shows it.
func (p *operationProgress) set(percent int, message string) (wait time.Duration, report bool, err error) {
	if percent < 0 || percent > 100 {
		return 0, false, errors.Errorf("%d%% is not valid: pass a number from 0 to 100", percent)
	}
	message = creation.Clean(message, maxProgress)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.percent == percent && p.message == message {
		return 0, false, nil
	}
	p.percent, p.message = percent, message
	now := time.Now()
	if p.reported.After(now) {
		return 0, false, nil
	}
	wait = max(0, p.reported.Add(reportInterval).Sub(now))
	p.reported = now.Add(wait)
	return wait, true, nil
}

// get the progress.
func (p *operationProgress) get() (percent int, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.percent, p.message
}

package asyncstate

import (
	"sync"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// maxProgress is how many bytes a progress message may have.
const maxProgress = 1 << 10

// An operationProgress is how far an operation is. The zero value is ready to use, and safe for concurrent
// use.
type operationProgress struct {
	mu      sync.Mutex
	percent int
	message string
}

// set the progress. It reports whether that has changed anything.
func (p *operationProgress) set(percent int, message string) (changed bool, err error) {
	if percent < 0 || percent > 100 {
		return false, errors.Errorf("%d%% is not valid: pass a number from 0 to 100", percent)
	}
	message = creation.Clean(message, maxProgress)
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.percent != percent || p.message != message
	p.percent, p.message = percent, message
	return changed, nil
}

// get the progress.
func (p *operationProgress) get() (percent int, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.percent, p.message
}

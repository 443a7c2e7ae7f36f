package reconciler

import (
	"context"
	"time"
)

// ReleaseWithWait sets how Release waits between tries.
func ReleaseWithWait(wait func(ctx context.Context, d time.Duration) error) ReleaseOption {
	return func(r *release) { r.wait = wait }
}

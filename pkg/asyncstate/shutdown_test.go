package asyncstate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A process that ends waits for what runs, stores its result, and begins nothing.
func TestShutdown(t *testing.T) {
	cases := map[string]struct {
		reason string
		takes  time.Duration
		within time.Duration
		name   string
	}{
		"EndsInTime":   {reason: "What comes during shutdown is stored.", takes: 30 * time.Second, within: 16 * time.Second, name: "id-1"},
		"TakesTooLong": {reason: "It is cancelled, and its record survives.", takes: time.Hour, within: 21 * time.Second},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nothing, bucket("b"), bucket("other"))
				w.manual = true
				w.cloud.takes = tc.takes
				p := w.start()
				defer w.end()

				reconciled(t, p, "b")
				pass(15 * time.Second)
				p.cancel()
				synctest.Wait()

				begun := time.Now()

				// Nothing may begin, and so nothing may be announced.
				reconciled(t, p, "other")

				if b := w.get("other"); record(b) != "" || meta.ExternalCreateIncomplete(b) || reason(b, asyncstate.TypeOperation) != asyncstate.ReasonQueued {
					t.Errorf("\n%s\nSomething was begun: %s", tc.reason, describe(b))
				}

				<-p.ended

				if d := time.Since(begun); d > tc.within {
					t.Errorf("\n%s\nIt took %s", tc.reason, d)
				}

				b := w.get("b")
				if got := meta.GetExternalName(b); got != tc.name || (record(b) == "") != (tc.name != "") {
					t.Errorf("\n%s\n%s", tc.reason, describe(b))
				}

				if n := w.cloud.count(asyncstate.Create); n != 1 {
					t.Errorf("\n%s\n%d creates", tc.reason, n)
				}

				// The next process begins what this one didn't.
				p = w.start()
				reconciled(t, p, "other")
				pass(2 * time.Hour)

				if got := meta.GetExternalName(w.get("other")); got == "" {
					t.Errorf("\n%s\n%s", tc.reason, describe(w.get("other")))
				}
			})
		})
	}
}

func TestStartMoreThanOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := asyncstate.NewTracker(newFastAPI())
		ctx, cancel := context.WithCancel(t.Context())

		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- tr.Start(ctx) }()
		}

		synctest.Wait()
		cancel()

		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

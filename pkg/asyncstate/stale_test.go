package asyncstate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// The cache can catch up with a result at any moment, also between two looks.
func TestCacheCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("b"))
		w.manual = true
		p := w.start()

		w.cloud.set(func(c *fakeCloud) { c.lose = func() error { return errQuota } })

		reconciled(t, p, "b")

		if err := w.api.Freeze(context.Background(), w.get("b")); err != nil {
			t.Fatal(err)
		}

		pass(11*time.Minute + 300*time.Millisecond)
		reconciled(t, p, "b")

		if got := reason(w.get("b"), xpv2.TypeSynced); got != xpv2.ReasonReconcileSuccess {
			t.Errorf("What is read is older than the result, so nothing is to be said: %s", describe(w.get("b")))
		}

		w.cloud.set(func(c *fakeCloud) { c.lose = nil })
		w.api.Thaw()
		reconciled(t, p, "b")

		b := w.get("b")
		if got := reason(b, asyncstate.TypeOperation); got != asyncstate.ReasonRunning || !meta.ExternalCreateIncomplete(b) {
			t.Errorf("The second attempt should run: %s", describe(b))
		}

		// A process that ends does not wait for its cache.
		if err := w.api.Freeze(context.Background(), b); err != nil {
			t.Fatal(err)
		}

		p.stop()
	})
}

package asyncstate_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// The condition of a create without an outcome should have its last error, also after a restart of the provider.
func TestOutcomeUnknown_LastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironmentWithClient(t, false, func(context.Context, resource.Managed) error {
			return errors.Wrap(syscall.ECONNRESET, "cannot create")
		})
		p := e.startProvider()
		p.reconcileRepeatedly(3, time.Minute)
		message := condition(e.get("b"), asyncstate.TypeOperation)
		expectContains(t, "condition", message, "OutcomeUnknown", "Its last error: cannot create: connection reset by peer")
		p.kill()
		said := len(e.events.Events("CreateResultUnknown"))
		e.startProvider().reconcileRepeatedly(3, time.Hour)
		expectEqual(
			t, "A process that does not know the error should keep it.", "condition", message,
			condition(e.get("b"), asyncstate.TypeOperation),
		)
		expectEqual(t, "It should be reported once.", "events", said, len(e.events.Events("CreateResultUnknown")))
	})
}

package asyncstate_test

import (
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// The text of an error is in conditions, before and after a restart, and not in the
// record.
func TestFailure_IsQuotedInConditionsAlone(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		class  string
	}{
		"Plain": {
			reason: "An error of the external system is not written to an annotation, which many users may read.",
			err:    errors.New(`tenant "acme": quota of 12345 exceeded`),
			class:  `"error":"error"`,
		},
		"GRPC": {
			reason: "A status has a code.",
			err:    status.Error(codes.ResourceExhausted, `tenant "acme": quota of 12345 exceeded`),
			class:  `"error":"ResourceExhausted"`,
		},
		"Long": {
			reason: "An error as long as a web page does not fill up the annotations.",
			err:    errors.New(`tenant "acme": quota of 12345 exceeded` + strings.Repeat("<br>", 10<<10)),
			class:  `"error":"error"`,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Hour, time.Hour)}
			w.cloud.refuses(tc.err)
			p := w.start()

			check := func(when string) {
				t.Helper()

				b := w.get("b")
				contains(t, tc.reason+" "+when+": OperationRunning", condition(b, asyncstate.TypeOperation),
					"create, attempt 1, failed at 2000-01-01T00:00:00Z, next attempt at 2000-01-01T01:00:00Z: ", "acme", "quota of 12345 exceeded")
				contains(t, tc.reason+" "+when+": Synced", condition(b, xpv2.TypeSynced), "create failed: ", "acme", "quota of 12345 exceeded")
				contains(t, tc.reason+" "+when+": record", record(b), tc.class)

				if r := record(b); strings.Contains(r, "acme") || len(r) > 1<<10 {
					t.Errorf("\n%s\n%s: the record is %s", tc.reason, when, r)
				}
			}

			pass(time.Minute)
			check("at first")

			p.kill()
			w.start()
			pass(10 * time.Minute)
			writes := w.api.Writes()

			pass(20 * time.Minute)
			check("after a restart")

			if n := w.api.Writes() - writes; n != 0 {
				t.Errorf("\n%s\n%d writes", tc.reason, n)
			}
		})
	}
}

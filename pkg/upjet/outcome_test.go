package upjet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

func TestClassified(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         bool
	}{
		"Refused": {
			"the external system answered: the request was refused",
			"creating VPC: operation error EC2: CreateVpc, https response error StatusCode: 400, api error VpcLimitExceeded",
			false,
		},
		"Validation": {
			"an argument that is called timeout is no time-out",
			"expected timeout_seconds to be at least (1), got 0",
			false,
		},
		"EOFInAWord": {"EOF is a word, not a part of one", `invalid value "GEOFENCE"`, false},
		"NotDialed": {
			"nothing was sent on a connection that was not made",
			`Post "https://api.example.org/": dial tcp 192.0.2.1:443: i/o timeout`,
			false,
		},
		"ConnectionRefused": {
			"nothing was sent on a connection that was refused",
			`Post "https://api.example.org/": dial tcp 192.0.2.1:443: connect: connection refused`,
			false,
		},
		"NotDialedAfterReset": {
			"a request before the connection that was not made may have been carried out",
			"read: connection reset by peer; dial tcp 192.0.2.1:443: i/o timeout",
			true,
		},
		"NotResolved": {
			"nothing was sent to a host whose name was not resolved",
			`Post "https://api.example.org/": dial tcp: lookup api.example.org on 192.0.2.53:53: read udp 192.0.2.2:5->192.0.2.53:53: i/o timeout`,
			false,
		},
		"LostAfterNotResolved": {
			"a request after the connection that was not made may have been carried out",
			"dial tcp: lookup api.example.org: no such host; read tcp 192.0.2.2:5->192.0.2.1:443: i/o timeout",
			true,
		},
		"Broken": {
			"the answer could not be read",
			`Post "https://api.example.org/": net/http: HTTP/1.x transport connection broken: malformed HTTP response`,
			true,
		},
		"Deadline": {
			"Terraform's own time-out says nothing of the request",
			"creating VPC: context deadline exceeded",
			true,
		},
		"Waiting": {
			"the resource was requested, and did not become ready in time",
			"timeout while waiting for state to become 'available' (last state: 'pending', timeout: 10m0s)",
			true,
		},
		"Reset": {
			"the answer was lost with the connection",
			`Post "https://api.example.org/": read tcp 192.0.2.2:5->192.0.2.1:443: read: connection reset by peer`,
			true,
		},
		"EOF": {
			"the answer was lost with the connection",
			`resource creation call returned error diags: cannot create: Post "https://api.example.org/": EOF`,
			true,
		},
		"Unavailable": {
			"gRPC gives that status to calls it has no answer to",
			"resource creation call returned error diags: rpc error: code = Unavailable desc = transport is closing",
			true,
		},
		"Gateway": {
			"a gateway that gave up knows no outcome",
			"googleapi: got HTTP response code 504 Gateway Timeout",
			true,
		},
		"SuccessWithoutID": {
			"Terraform created it, and did not see it when it read it",
			"failed to read the ID of the new resource",
			true,
		},
		"SuccessWithoutState": {
			"Terraform created it, and did not see it when it read it",
			"new state is empty after creation",
			true,
		},
		"SuccessWithStateThatCannotBeRead": {
			"Terraform created it, and upjet cannot read its state",
			"cannot unmarshal planned state: unexpected attribute",
			true,
		},
		"SuccessWithStateThatCannotBeConverted": {
			"Terraform created it, and upjet cannot convert its state",
			"cannot convert native state to go map",
			true,
		},
		"SuccessWithoutName": {
			"Terraform created it, and upjet cannot get its name",
			"failed to set the external-name of the managed resource during create: cannot find arn in tfstate",
			true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := errors.Errorf("failed to create the resource: [{0 %s  []}]", tc.text)
			err := classified(given)
			wants(
				t,
				tc.reason,
				fmt.Sprintf("OutcomeUnknown(classified(%q))", tc.text),
				tc.want,
				asyncstate.OutcomeUnknown(err),
			)
			if err.Error() != given.Error() || !errors.Is(err, given) {
				t.Errorf("\n%s\nclassified(%q) is another error: %v", tc.reason, tc.text, err)
			}
		})
	}
}

func TestJudged(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         bool
	}{
		"SDKArgument": {
			"an argument that cannot change is refused until the spec changes",
			`cannot change the value of the argument "region" from "a" to "b"`,
			true,
		},
		"FrameworkArgument": {
			"a field that needs a replacement is refused until the spec changes",
			"diff contains fields that require resource replacement: region",
			true,
		},
		"UpdateLoop": {
			"an update that repeats for ever is blocked until the spec changes",
			"update operation was blocked because of a possible update loop: tags",
			true,
		},
		"CloudRefused": {
			"an answer of the external system may change without the spec",
			"failed to update the resource: [{0 api error AccessDenied  []}]",
			false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given := errors.New(tc.text)
			err := judged(given)
			wants(t, tc.reason, "terminal", tc.want, failure.Of(err, time.Now()).Terminal)
			if err.Error() != given.Error() || !errors.Is(err, given) {
				t.Errorf("\n%s\njudged(%q) is another error: %v", tc.reason, tc.text, err)
			}
		})
	}
	if err := judged(nil); err != nil {
		t.Errorf("An update that succeeded should have no error: got %v", err)
	}
}

func TestRateLimits(t *testing.T) {
	if first := RateLimits(10, 20); first != RateLimits(10, 20) {
		t.Error("The controllers of a provider should share their limits")
	}
	defer func() {
		if recover() == nil {
			t.Error("A limit that cannot work should be refused when controllers are generated")
		}
	}()
	WithRateLimits(0, 20)
}

func TestGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGates()
		leave, first := g.try("a")
		other, another := g.try("b")
		if _, again := g.try("a"); !first || !another || again {
			t.Fatalf(
				"want a state entered unless it is in use, got %t, %t, and %t for one in use",
				first,
				another,
				again,
			)
		}
		other()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.enter(ctx, "a"); err == nil || asyncstate.OutcomeUnknown(err) {
			t.Errorf(
				"enter() with a context that is done: want an error that does not look like a lost answer, got %v",
				err,
			)
		}
		go func() {
			synctest.Wait() // Until enter waits.
			leave()
		}()
		last, err := g.enter(t.Context(), "a")
		must(t, err)
		last()
		wants(t, "", "states that are kept, and not in use", 0, len(g.taken))
	})
}

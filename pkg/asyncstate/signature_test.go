package asyncstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

type (
	noop        struct{ upstream.ExternalClient }
	goodFinder  struct{ noop }
	typedFinder struct{ noop }
	pointer     struct{ noop }
	wrongType   struct{ noop }
	unrelated   struct{ noop }
	badResumer  struct{ noop }
	ofPointer   struct{ noop }
	noAttempt   struct{ noop }
)

func (noop) Disconnect(context.Context) error { return nil }

func (goodFinder) Find(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (typedFinder) Find(context.Context, *v1alpha1.Bucket, asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (pointer) Find(context.Context, resource.Managed, *asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (wrongType) Find(context.Context, *v1alpha1.Database, asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (noAttempt) Find(context.Context, resource.Managed) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (unrelated) Find(string) error { return nil }

func (*ofPointer) Find(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
	return asyncstate.Finding{}, nil
}

func (badResumer) Resume(context.Context, asyncstate.Attempt) error { return nil }

// An error of a connector is its own.
func TestConnector_Fails(t *testing.T) {
	c := asyncstate.Connector(upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
		return nil, errQuota
	}), asyncstate.NewTracker(testkit.NewAPI().Client()))

	if _, err := c.Connect(t.Context(), bucket("b")); !errors.Is(err, errQuota) {
		t.Errorf("got %v", err)
	}
}

// A method whose signature keeps it from ever being called is an error.
func TestConnector_RefusesWrongSignatures(t *testing.T) {
	cases := map[string]struct {
		reason string
		client upstream.ExternalClient
		want   string
	}{
		"None":            {reason: "A client need not be a Finder.", client: noop{}},
		"Finder":          {reason: "It is one.", client: goodFinder{}},
		"TypedFinder":     {reason: "It is one for connectors of its type alone.", client: typedFinder{}, want: "typedFinder.Find"},
		"Pointer":         {reason: "An Attempt is no pointer.", client: pointer{}, want: "pointer.Find"},
		"NoAttempt":       {reason: "It lacks the attempt.", client: noAttempt{}, want: "noAttempt.Find"},
		"AnotherType":     {reason: "It is of another type of managed resource.", client: wrongType{}, want: "wrongType.Find"},
		"Receiver":        {reason: "It is one of a pointer, and the client is none.", client: ofPointer{}, want: "of a asyncstate_test.ofPointer"},
		"ReceiverFits":    {reason: "The client is a pointer.", client: &ofPointer{}},
		"Unrelated":       {reason: "It happens to have the same name.", client: unrelated{}},
		"ResumeWithoutMG": {reason: "It lacks the managed resource.", client: badResumer{}, want: "badResumer.Resume"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tr := asyncstate.NewTracker(testkit.NewAPI().Client())

			for range 2 {
				_, err := asyncstate.Connector(upstream.ExternalConnectorFn(func(context.Context, resource.Managed) (upstream.ExternalClient, error) {
					return tc.client, nil
				}), tr).Connect(t.Context(), bucket("b"))
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("\n%s\nConnect(...): %v, want %q", tc.reason, err, tc.want)
				}
			}
		})
	}
}

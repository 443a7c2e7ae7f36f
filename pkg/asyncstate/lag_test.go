package asyncstate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	fake "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// lag is how long the cloud hides a new resource. It is less than the creation grace period.
const lag = 20 * time.Second

// newLaggingEnvironment returns an environment whose cloud hides new resources for a while, and whose Create
// fails with an error after it has created the resource.
func newLaggingEnvironment(
	t testing.TB, k clientKind, fails func(p *process, ctx context.Context, mg resource.Managed, id string) error,
) *environment {
	t.Helper()
	e := newEnvironment(t, k, bucket("b"))
	e.cloud.Cloud = fake.New(fake.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}, VisibleAfter: lag})
	e.cloud.requestDuration = 0
	e.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
		c := p.client(mg)
		return overridden{ExternalClient: c, create: func(ctx context.Context, mg resource.Managed) error {
			e.cloud.set(func(c *fakeCloud) { c.calls[asyncstate.Create]++ })
			req := requestOf(string(mg.GetUID()), "", regionOf(mg))
			if k == token {
				req.Token = asyncstate.Token(ctx)
			}
			r, err := e.cloud.Session("").Create(ctx, req)
			if err != nil {
				return err
			}
			return fails(p, ctx, mg, r.ID)
		}}.finding(), nil
	}
	return e
}

// overridden is an external client with another Create.
type overridden struct {
	upstream.ExternalClient

	create func(ctx context.Context, mg resource.Managed) error
}

func (c overridden) Create(ctx context.Context, mg resource.Managed) (upstream.ExternalCreation, error) {
	return upstream.ExternalCreation{}, c.create(ctx, mg)
}

// finding returns a client that is a Finder if the overridden one is.
func (c overridden) finding() upstream.ExternalClient {
	f, ok := c.ExternalClient.(asyncstate.Finder)
	if !ok {
		return c
	}
	return struct {
		overridden
		asyncstate.Finder
	}{c, f}
}

// A create that set the external name and then failed has created something. The external
// system may hide it for a while.
func TestCreateSetNameAndFailed(t *testing.T) {
	errWait := errors.New("cannot wait for the bucket: it is degraded")
	cases := map[string]struct {
		reason  string
		options []asyncstate.TrackerOption
		fails   func(p *process, ctx context.Context, mg resource.Managed, id string) error
	}{
		"SetExternalName": {
			reason: "A create that stored its external name should not be repeated while its external resource is hidden.",
			fails: func(_ *process, ctx context.Context, _ resource.Managed, id string) error {
				if err := asyncstate.SetExternalName(ctx, id); err != nil {
					return err
				}
				return errWait
			},
		},
		"Annotation": {
			reason: "A create that set the annotation of its managed resource has created something, too.",
			fails: func(_ *process, _ context.Context, mg resource.Managed, id string) error {
				meta.SetExternalName(mg, id)
				return errWait
			},
		},
		"Begin": {
			reason:  "An operation that a client ends with an error should keep the external name.",
			options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()},
			fails: func(p *process, ctx context.Context, mg resource.Managed, id string) error {
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err != nil {
					// The repetition of a create is begun only once.
					return err
				}
				go func() {
					_ = op.SetExternalName(context.WithoutCancel(ctx), id)
					op.End(errWait)
				}()
				return nil
			},
		},
		"Inline": {
			reason:  "A create that is over when the call returns should keep the external name.",
			options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()},
			fails: func(_ *process, _ context.Context, mg resource.Managed, id string) error {
				meta.SetExternalName(mg, id)
				return errWait
			},
		},
	}

	for name, tc := range cases {
		for _, k := range []clientKind{plainClient, finder, token} {
			for _, plain := range []bool{false, true} {
				for _, deleting := range []bool{false, true} {
					name := fmt.Sprintf("%s/%s/Plain=%t/Deleting=%t", name, k, plain, deleting)
					runInBubble(t, name, func(t *testing.T) {
						e := newLaggingEnvironment(t, k, tc.fails)
						e.upstreamOnly, e.options = plain, tc.options
						p := e.startProvider()
						advanceClock(2 * time.Second)
						if deleting {
							e.delete("b")
						}
						for range 10 {
							advanceClock(30 * time.Second)
							if !e.objectGone() {
								e.enqueue(e.get("b"))
							}
						}

						got := e.finalState()
						want := finalState{Created: 1, Remaining: 1, Name: "id-0001"}
						if deleting {
							want = finalState{Created: 1, Gone: true}
						}
						expectEqual(t, tc.reason+"\n"+describe(e.get("b")), "final state", want, finalState{
							Created:   got.Created,
							Remaining: got.Remaining,
							Name:      got.Name,
							Gone:      got.Gone,
						})
						if n := p.reconciles.Load(); n > 200 {
							t.Errorf("\n%s\n%d reconciles", tc.reason, n)
						}
					})
				}
			}
		}
	}
}

// A Finder whose list lags should not have a create repeated.
func TestFinderLags(t *testing.T) {
	cases := map[string]struct {
		reason   string
		deleting bool
		err      error
	}{
		"NoAnswer": {
			reason: "An answer that was lost says nothing, and absence proves nothing for a while.",
			err:    asyncstate.ErrOutcomeUnknown,
		},
		"NoAnswerDeleted": {
			reason:   "An external resource that is hidden should be deleted, not leaked.",
			err:      asyncstate.ErrOutcomeUnknown,
			deleting: true,
		},
		"ServerError": {reason: "A server that failed may have created the resource.", err: serverError{}},
		"ServerErrorDelete": {
			reason: "The resource that a failed server may have created should be deleted.",
			err:    serverError{}, deleting: true,
		},
	}
	for name, tc := range cases {
		for _, own := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s/Own=%t", name, own), func(t *testing.T) {
				e := newLaggingEnvironment(t, finder, func(*process, context.Context, resource.Managed, string) error {
					return errors.Wrap(tc.err, "cannot create bucket")
				})
				if own {
					e.options = []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}
				}
				e.startProvider()
				advanceClock(2 * time.Second)
				if tc.deleting {
					e.delete("b")
				}
				advanceClock(5 * time.Minute)
				got := e.finalState()
				want := finalState{Created: 1, Remaining: 1, Name: "id-0001"}
				if tc.deleting {
					want = finalState{Created: 1, Gone: true}
				}
				expectEqual(t, tc.reason+"\n"+describe(e.get("b")), "final state", want, finalState{
					Created:   got.Created,
					Remaining: got.Remaining,
					Name:      got.Name,
					Gone:      got.Gone,
				})
			})
		}
	}
}

// serverError is what SDKs return for an HTTP status 503.
type serverError struct{}

func (serverError) Error() string { return "the service is overloaded" }

func (serverError) HTTPStatusCode() int { return 503 }

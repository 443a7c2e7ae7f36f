package managed_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// TestCreateError has a first Create whose error the cases give. With a resolver whose Finder finds nothing, a second
// Create is made only if the first one certainly made nothing.
func TestCreateError(t *testing.T) {
	cases := map[string]struct {
		reason string
		errs   []error
		again  bool
	}{
		"LostAnswer": {
			reason: "The create may have been carried out, so it should not be repeated before the grace period.",
			errs: []error{
				errors.New("POST https://h/x: 502  []"),
				errors.New(`POST https://h/x: 503 (request "a-b") unavailable`),
				errors.New("Expected HTTP response code [202] when accessing [POST https://h/x], but got 504 instead"),
				errors.New("POST https://h/x giving up after 5 attempt(s)"),
				errors.New("[503] no backend"),
				errors.New("create failed 502"),
				errors.New("unexpected status code got: 502"),
				errors.New("502 \nPOST https://h/x"),
				errors.New("server returned 502"),
				errors.New("request failed with 500"),
				errors.New(`creating rule {"x: POST https://h/x: 502 `),
				errors.New(`creating disk 5" wide: POST https://h/x: 502 (request "a-b") unavailable`),
				errors.New("cannot create DatabaseCredential: POST https://h/x: 502"),
				errors.New("attempt 1: status 429; attempt 2: status 502; attempt 3: status 409"),
				errors.New("cannot create rule Many 409 Conflict: unexpected EOF"),
				errors.New(`{"error":"try again","status":500}`),
				actualStatus{Actual: http.StatusGatewayTimeout},
				codeOfItsOwn{Code: 422, cause: context.DeadlineExceeded},
				managed.NoAnswer(errors.New("no")),
			},
		},
		"Refused": {
			reason: "An explicit refusal should be repeated, whatever a user has written.",
			errs: []error{
				errors.New(`409 Conflict: rule "Many 502 Bad Gateway" exists`),
				errors.New("400 Bad Request: name Connection reset by peer is invalid"),
				errors.New(`invalid name "Connection reset by peer"`),
				errors.New("creating group (Many 502 Bad Gateway): https response error StatusCode: 400, RequestID: 1"),
				errors.New(`cannot create: 409 Conflict: {"message":"StatusCode: 503 is no na`),
				errors.New("400 Bad Request: description timed out waiting for approval"),
				managed.Refused(context.DeadlineExceeded),
			},
			again: true,
		},
	}
	for name, tc := range cases {
		for _, createErr := range tc.errs {
			t.Run(name+"/"+createErr.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api, creates := testkit.NewAPI(kit.NewBucket()), 0
					absent := asyncstate.FinderFn(
						func(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
							return asyncstate.Absent(), nil
						},
					)
					r := kit.NewBucketReconciler(api, resolve.With(absent), kit.WithClient(managed.ExternalClientFns{
						ObserveFn: kit.ObserveAbsent,
						CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
							creates++
							return managed.ExternalCreation{}, createErr
						},
					}))
					for range 4 {
						kit.TryReconcile(r, 1)
						time.Sleep(2 * time.Second)
					}
					kit.ExpectEqual(t, tc.reason, "creates again", tc.again, creates > 1)
				})
			})
		}
	}
}

// An actualStatus is an error as OpenStack's client returns it.
type actualStatus struct{ Actual int }

func (actualStatus) Error() string { return "unexpected answer" }

// A codeOfItsOwn is an error with a code of the external system's own, which looks like an HTTP status.
type codeOfItsOwn struct {
	Code  int
	cause error
}

func (codeOfItsOwn) Error() string   { return "the operation failed" }
func (e codeOfItsOwn) Unwrap() error { return e.cause }

// TestCreateError_Named has a Create that sets the external name before the external system refuses it.
func TestCreateError_Named(t *testing.T) {
	conflict := &kit.TooManyRequests{Response: &http.Response{StatusCode: http.StatusConflict}}
	cases := map[string]struct {
		reason    string
		err       error
		succeeded bool // is stored as a success, because it created something
	}{
		"Status": {reason: "A refused create should have created nothing.", err: conflict},
		"Exists": {
			reason: "An external resource of another owner should not count as created.",
			err:    kerrors.NewAlreadyExists(schema.GroupResource{Resource: "buckets"}, "n"),
		},
		"Stated": {reason: "A refusal that the client states should count.", err: managed.Refused(errors.New("no"))},
		"Text": {
			reason:    "A create of several steps should have created something if only the text has a refusal.",
			err:       errors.New("cannot add rule: 409 Conflict: rule already exists"),
			succeeded: true,
		},
		"Throttled": {
			reason:    "A create that is throttled after it set the name should have created something.",
			err:       ratelimit.Throttled(errors.New("no"), 0),
			succeeded: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket())
			kit.TryReconcile(kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.ObserveAbsent,
				CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					meta.SetExternalName(mg, "n")
					return managed.ExternalCreation{}, tc.err
				},
			})), 1)
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(t, tc.reason, "succeeded", tc.succeeded, !meta.GetExternalCreateSucceeded(b).IsZero())
			kit.ExpectEqual(t, "The name should be stored in any case.", "name", "n", meta.GetExternalName(b))
		})
	}
}

// TestCreateError_EmptiedName has an Observe that empties the external name, and a Create that sets it again.
func TestCreateError_EmptiedName(t *testing.T) {
	for name, sets := range map[string]bool{"Sets": true, "Leaves": false} {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
			kit.TryReconcile(kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
					meta.SetExternalName(mg, "")
					return managed.ExternalObservation{}, nil
				},
				CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
					if sets {
						meta.SetExternalName(mg, "n")
					}
					return managed.ExternalCreation{}, errors.New("cannot tag")
				},
			})), 1)
			b := kit.GetBucket(t, api)
			kit.ExpectEqual(
				t, "A create that sets the emptied name again should have created something.", "succeeded", sets,
				!meta.GetExternalCreateSucceeded(b).IsZero(),
			)
			kit.ExpectEqual(t, "The name should be kept in any case.", "name", "n", meta.GetExternalName(b))
		})
	}
}

// TestCreateError_ExistsAgain has a create whose external resource existed once, and was removed.
func TestCreateError_ExistsAgain(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		confirmed    bool
	}{
		"Whole": {"The earlier create should be confirmed.", "the bucket already exists", true},
		"Code":  {"The earlier create should be confirmed.", "BucketAlreadyOwnedByYou: use it", true},
		"Part":  {"A part of it exists.", `cannot add rule "a": rule already exists`, false},
		"Other": {"It is another refusal.", "422: the bucket already exists elsewhere", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hour := kit.WithAnnotation(
				meta.AnnotationKeyExternalCreateSucceeded, time.Now().Add(-time.Hour).Format(time.RFC3339),
			)
			api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n"), hour))
			kit.TryReconcile(kit.NewBucketReconciler(api, kit.WithClient(managed.ExternalClientFns{
				ObserveFn: kit.ObserveAbsent,
				CreateFn: func(context.Context, resource.Managed) (managed.ExternalCreation, error) {
					return managed.ExternalCreation{}, errors.New(tc.text)
				},
			})), 1)
			failed := meta.GetExternalCreateFailed(kit.GetBucket(t, api))
			kit.ExpectEqual(t, tc.reason, "confirmed", tc.confirmed, failed.IsZero())
		})
	}
}

// TestWithRateLimits_AnswersOfTheAPIServer has Connect read from an API server that throttles.
func TestWithRateLimits_AnswersOfTheAPIServer(t *testing.T) {
	unavailable := kerrors.NewServiceUnavailable("etcd")
	unavailable.ErrStatus.Details = kerrors.NewTimeoutError("", 3600).ErrStatus.Details
	for name, err := range map[string]error{
		"Unavailable":     errors.Wrap(unavailable, "cannot get Secret"),
		"TooManyRequests": kerrors.NewTooManyRequests("slow down", 3600),
		"Aggregate": utilerrors.NewAggregate(
			[]error{kit.ErrProvider, kerrors.NewTooManyRequests("slow down", 3600)},
		),
	} {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(kit.WithExternalName("n")))
			ext := &kit.CountingClient{Errs: map[string]error{"connect": err}}
			r := kit.NewBucketReconciler(api, ext.Connect(), ratelimit.With(ratelimit.New(100, 100)))
			kit.TryReconcile(r, 1)
			ext.Errs = nil
			kit.TryReconcile(r, 1)
			kit.ExpectEqual(
				t, "An answer of the API server should not close the account of the external system.", "observed", true,
				ext.Count("observe") > 0,
			)
		})
	}
}

// TestWithRateLimits_TextOfAUser has a text that a user has written.
func TestWithRateLimits_TextOfAUser(t *testing.T) {
	for _, text := range []string{
		`invalid description "see TooManyRequests, try again in 60 seconds"`,
		"invalid description see TooManyRequests, try again in 60 seconds",
	} {
		api := testkit.NewAPI(
			kit.NewBucket(kit.WithExternalName("n")),
			kit.NewBucket(kit.WithName("neighbour"), kit.WithExternalName("m")),
		)
		ext := &kit.CountingClient{Errs: map[string]error{"observe": errors.New(text)}}
		r := kit.NewBucketReconciler(api, ext.Connect(), ratelimit.With(ratelimit.New(100, 100)))
		kit.TryReconcile(r, 1)
		before := len(ext.Calls)
		_, _ = r.Reconcile(t.Context(), kit.RequestFor("neighbour"))
		if len(ext.Calls) == before {
			t.Errorf("The text of one object's error should hold up no other object: %s", text)
		}
	}
}

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	v1 "example.org/provider/apis/v1"
	"example.org/provider/fakecloud"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

var errBoom = errors.New("boom")

func orders() *v1.Database {
	db := &v1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orders"}}
	db.Spec.ProviderConfigReference = &xpv2.ProviderConfigReference{Kind: "ProviderConfig", Name: "team-a"}
	db.Spec.ForProvider.Size = 1
	return db
}

// account returns a provider config that logs in to an account with token.
func account() *v1.ProviderConfig {
	pc := &v1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team-a"}}
	pc.Spec.Endpoint, pc.Spec.Account = "http://cloud", "team-a"
	pc.Spec.Credentials.Source = xpv2.CredentialsSourceSecret
	pc.Spec.Credentials.SecretRef = &xpv2.SecretKeySelector{
		SecretReference: xpv2.SecretReference{Namespace: "default", Name: "team-a"},
		Key:             "token",
	}
	return pc
}

func token() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "team-a"},
		Data:       map[string][]byte{"token": []byte(fakecloud.Token)},
	}
}

func TestConnect(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   string
		get    test.MockGetFn
		track  error
		want   *cloud
		err    string
	}{
		"ProviderConfig": {
			reason: "The provider config of the namespace should say where and how to log in.",
			kind:   "ProviderConfig",
			want:   &cloud{url: "http://cloud/accounts/team-a", token: fakecloud.Token},
		},
		"ClusterProviderConfig": {
			reason: "The cluster's provider config should, too.",
			kind:   "ClusterProviderConfig",
			want:   &cloud{url: "http://cloud/accounts/team-a", token: fakecloud.Token},
		},
		"OtherKind": {
			reason: "We should return an error for a kind that does not exist.",
			kind:   "Secret",
			err:    `cannot get the provider config: there is no kind "Secret"`,
		},
		"CannotGet": {
			reason: "We should return the API server's error.",
			kind:   "ProviderConfig",
			get:    test.NewMockGetFn(errBoom),
			err:    "cannot get the provider config: boom",
		},
		"CannotTrack": {
			reason: "We should not log in without a usage: it keeps the provider config.",
			kind:   "ProviderConfig",
			track:  errBoom,
			err:    "cannot record the usage of the provider config: boom",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			get := tc.get
			if get == nil {
				get = func(_ context.Context, _ kube.ObjectKey, o kube.Object) error {
					switch o := o.(type) {
					case *v1.ProviderConfig:
						o.Spec = account().Spec
					case *v1.ClusterProviderConfig:
						o.Spec = account().Spec
					case *corev1.Secret:
						o.Data = token().Data
					}
					return nil
				}
			}
			db := orders()
			db.Spec.ProviderConfigReference.Kind = tc.kind
			c := &connector{
				kube: &test.MockClient{MockGet: get},
				usage: resource.ModernTrackerFn(
					func(context.Context, resource.ModernManaged) error { return tc.track },
				),
			}
			got, err := c.Connect(t.Context(), db)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s\nConnect(...): want error %q, got %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nConnect(...): %v", tc.reason, err)
			}
			if diff := cmp.Diff(&client{cloud: tc.want}, got, cmp.AllowUnexported(client{}, cloud{})); diff != "" {
				t.Errorf("%s\nConnect(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	cases := map[string]struct {
		reason   string
		external string
		answer   http.HandlerFunc
		want     managed.ExternalObservation
		ready    bool
		fails    bool
	}{
		"NoName": {
			reason: "Without an external name nothing should be asked, and nothing exists.",
			answer: func(http.ResponseWriter, *http.Request) { panic("no request is expected") },
		},
		"NotFound": {
			reason:   "An answer of 404 should mean that nothing exists.",
			external: "db-1",
			answer:   http.NotFound,
		},
		"Fails": {
			reason:   "An answer of 500 should be an error: it does not say that nothing exists.",
			external: "db-1",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "boom", http.StatusInternalServerError)
			},
			fails: true,
		},
		"UpToDate": {
			reason:   "A database of the desired size should be available and up to date.",
			external: "db-1",
			answer:   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"db-1","size":1}`)) },
			want:     managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true},
			ready:    true,
		},
		"OtherSize": {
			reason:   "A database of another size should be updated.",
			external: "db-1",
			answer:   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"db-1","size":7}`)) },
			want:     managed.ExternalObservation{ResourceExists: true},
			ready:    true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			db := orders()
			meta.SetExternalName(db, tc.external)
			got, err := (&client{cloud: serve(t, tc.answer)}).Observe(t.Context(), db)
			if (err != nil) != tc.fails {
				t.Errorf("%s\nObserve(...): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nObserve(...): -want, +got:\n%s", tc.reason, diff)
			}
			if ready := db.GetCondition(xpv2.TypeReady).Equal(xpv2.Available()); ready != tc.ready {
				t.Errorf("%s\nObserve(...): want Ready %t, got %t", tc.reason, tc.ready, ready)
			}
		})
	}
}

// TestClasses shows the error, and its class, for each answer to a create.
func TestClasses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		answer  http.HandlerFunc
		want    string // of the error
		class   error  // of the same type
		unknown bool
	}{
		"Unprocessable": {
			reason: "The same spec is refused again: nothing was created.",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "too large", http.StatusUnprocessableEntity)
			},
			want:  "Unprocessable Entity: too large",
			class: ratelimit.Terminal(errBoom),
		},
		"Throttled": {
			reason: "The create was refused, and is made again later.",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "30")
				http.Error(w, "slow down", http.StatusTooManyRequests)
			},
			want:  "Too Many Requests: slow down",
			class: ratelimit.Throttled(errBoom, 0),
		},
		"ServerFailed": {
			reason:  "The server may have created the database.",
			answer:  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", http.StatusBadGateway) },
			want:    "Bad Gateway: boom",
			unknown: true,
		},
		"AnswerBroken": {
			reason:  "The database was created, and its id is lost.",
			answer:  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":`)) },
			want:    "cannot read the answer",
			unknown: true,
		},
		"AnswerNotJSON": {
			reason:  "A proxy answered in place of the cloud, which may have created the database.",
			answer:  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			want:    "cannot read the answer",
			unknown: true,
		},
		"ConnectionBroken": {
			reason:  "The database may have been created.",
			answer:  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			want:    "EOF",
			unknown: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, tc.answer).create(t.Context(), database{Size: 1})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ncreate(...): want error %q, got %v", tc.reason, tc.want, err)
			}
			if tc.class != nil && reflect.TypeOf(err) != reflect.TypeOf(tc.class) {
				t.Errorf("%s\ncreate(...): want an error of type %T, got %T", tc.reason, tc.class, err)
			}
			if got := asyncstate.OutcomeUnknown(err); got != tc.unknown {
				t.Errorf("%s\nOutcomeUnknown(%v): want %t, got %t", tc.reason, err, tc.unknown, got)
			}
		})
	}
}

// serve returns a client of a cloud that answers like that.
func serve(t *testing.T, answer http.HandlerFunc) *cloud {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return &cloud{http: s.Client(), url: s.URL, token: fakecloud.Token}
}

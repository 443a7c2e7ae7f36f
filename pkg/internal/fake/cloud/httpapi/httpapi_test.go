package httpapi_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, c *cloud.Cloud) *httpapi.Client {
	t.Helper()
	s := httptest.NewServer(httpapi.Handler(c))
	t.Cleanup(s.Close)
	return httpapi.NewClient(s.URL, s.Client())
}

// A session over HTTP does and returns what a session of the cloud itself does.
func TestSession(t *testing.T) {
	type result struct {
		Resources []cloud.Resource
		Error     string
	}
	life := func(ctx context.Context, s cloud.Client) []result {
		var out []result
		add := func(rs []cloud.Resource, err error) {
			r := result{Resources: rs}
			if err != nil {
				r.Error = err.Error()
			}
			out = append(out, r)
		}
		one := func(r cloud.Resource, err error) { add([]cloud.Resource{r}, err) }
		one(s.Create(ctx, cloud.CreateRequest{}))
		one(s.Create(ctx, cloud.CreateRequest{Kind: "DB", Owner: "me", Token: "t", Properties: map[string]string{"size": "1"}}))
		one(s.Create(ctx, cloud.CreateRequest{Kind: "DB", Owner: "me", Token: "t", Properties: map[string]string{"size": "2"}}))
		one(s.Create(ctx, cloud.CreateRequest{Kind: "DB", Owner: "you", Name: "mine"}))
		one(s.Create(ctx, cloud.CreateRequest{Kind: "DB", Name: "mine"}))
		one(s.Update(ctx, "db-0001", map[string]string{"size": "3"}))
		one(s.Get(ctx, "db-0001"))
		one(s.Get(ctx, "db-0002"))
		add(s.List(ctx, cloud.Filter{Owner: "me", Token: "t"}))
		add(s.List(ctx, cloud.Filter{Kind: "DB"}))
		add(nil, s.Delete(ctx, "db-0001"))
		one(s.Update(ctx, "db-0001", nil))
		add(nil, s.Delete(ctx, "db-0002"))
		return out
	}
	options := func() cloud.Options {
		clock := cloud.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		return cloud.Options{Clock: clock, Token: "secret", GoneAfter: time.Minute, IDPrefixes: map[string]string{"DB": "db"}}
	}
	direct, err := cloud.New(options()).NewSession(t.Context(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	remote, err := serve(t, cloud.New(options())).NewSession(t.Context(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(life(t.Context(), direct), life(t.Context(), remote)); diff != "" {
		t.Errorf("-direct, +over HTTP:\n%s", diff)
	}
}

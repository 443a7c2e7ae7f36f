package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// Handler serves c. It is safe for concurrent use.
func Handler(c *cloud.Cloud) http.Handler {
	mux := http.NewServeMux()

	serve := func(op cloud.Op, do func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error)) {
		mux.HandleFunc("POST /"+string(op), func(w http.ResponseWriter, r *http.Request) {
			var in request
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			out := response{}

			// The request is carried out even if the client disconnects.
			rs, err := do(context.WithoutCancel(r.Context()), c.Session(in.Token), in)
			if out.Resources = rs; err != nil {
				out = failed(err)
			}
			w.Header().Set("Content-Type", "application/json")
			// The client may have disconnected, so an error is ignored.
			_ = json.NewEncoder(w).Encode(out)
		})
	}

	serve(cloud.OpLogin, func(ctx context.Context, _ *cloud.Session, r request) ([]cloud.Resource, error) {
		_, err := c.NewSession(ctx, r.Token)
		return nil, err
	})
	serve(cloud.OpCreate, func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error) {
		return alone(s.Create(ctx, r.Create))
	})
	serve(cloud.OpGet, func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error) {
		return alone(s.Get(ctx, r.ID))
	})
	serve(cloud.OpUpdate, func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error) {
		return alone(s.Update(ctx, r.ID, r.Properties))
	})
	serve(cloud.OpDelete, func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error) {
		return nil, s.Delete(ctx, r.ID)
	})
	serve(cloud.OpList, func(ctx context.Context, s *cloud.Session, r request) ([]cloud.Resource, error) {
		return s.List(ctx, r.Filter)
	})
	return mux
}

func alone(r cloud.Resource, err error) ([]cloud.Resource, error) { return []cloud.Resource{r}, err }

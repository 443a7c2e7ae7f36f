// Package fakecloud stands in for your external system, in the tests and in the tutorial.
package fakecloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// Token logs in to all accounts.
const Token = "secret-of-team-a"

// A Cloud is an HTTP API with its databases, whose ids it assigns. The zero value answers at
// once.
type Cloud struct {
	crashtest.Resources[Database]

	// Slow is how long the answer to a create takes. The database exists before.
	Slow time.Duration
}

// A Database of the cloud.
type Database struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Size  int64  `json:"size"`
}

func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, d := range c.List() {
			fmt.Fprintf(w, "%s, size %d\n", d.ID, d.Size)
		}
	})
	const all, one = "/accounts/{account}/databases", "/accounts/{account}/databases/{id}"
	mux.HandleFunc("POST "+all, allowed(c.create))
	mux.HandleFunc("GET "+all, allowed(c.list))
	mux.HandleFunc("GET "+one, allowed(c.get))
	mux.HandleFunc("PUT "+one, allowed(c.update))
	mux.HandleFunc("DELETE "+one, allowed(c.delete))
	mux.ServeHTTP(w, r)
}

func allowed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+Token {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func (c *Cloud) create(w http.ResponseWriter, r *http.Request) {
	d, ok := valid(w, r)
	if !ok {
		return
	}
	d.ID = c.NewName("db")
	c.Create(d.ID, d)
	time.Sleep(c.Slow)
	answer(w, d)
}

// valid returns the database of a request, unless it was refused.
func valid(w http.ResponseWriter, r *http.Request) (d Database, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&d); err != nil || d.Size > 1000 {
		http.Error(w, "a database has at most 1000 GiB", http.StatusUnprocessableEntity)
		return d, false
	}
	return d, true
}

func (c *Cloud) list(w http.ResponseWriter, r *http.Request) {
	out := []Database{}
	for _, d := range c.List() {
		if d.Owner == r.URL.Query().Get("owner") {
			out = append(out, d)
		}
	}
	answer(w, out)
}

func (c *Cloud) get(w http.ResponseWriter, r *http.Request) {
	d, ok := c.Get(r.PathValue("id"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	answer(w, d)
}

func (c *Cloud) update(w http.ResponseWriter, r *http.Request) {
	if d, ok := valid(w, r); ok && !c.Update(r.PathValue("id"), d) {
		http.NotFound(w, r)
	}
}

func (c *Cloud) delete(w http.ResponseWriter, r *http.Request) {
	if !c.Delete(r.PathValue("id")) {
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

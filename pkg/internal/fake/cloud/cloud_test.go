package cloud

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLifecycle(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := NewManualClock(start)
	c := New(Options{
		Clock:      clock,
		IDPrefixes: map[string]string{"Database": "db"},
		Defaults:   map[string]string{"region": "north"},
		ReadyAfter: time.Minute,
		GoneAfter:  time.Hour,
	})
	s, err := c.NewSession(t.Context(), "")
	if err != nil {
		t.Fatalf("NewSession(): %v", err)
	}
	want := Resource{
		ID:         "db-0001",
		Kind:       "Database",
		Owner:      "me",
		Endpoint:   "db-0001.cloud.example.org",
		State:      StateCreating,
		CreatedAt:  start,
		Properties: map[string]string{"region": "north", "size": "1"},
	}
	created, err := s.Create(t.Context(), CreateRequest{Kind: "Database", Owner: "me", Properties: map[string]string{"size": "1"}})
	if diff := cmp.Diff(want, created); err != nil || diff != "" {
		t.Errorf("Create(): %v, -want, +got:\n%s", err, diff)
	}
	created.Properties["size"] = "changed by the caller"
	clock.Advance(time.Minute)
	want.State = StateAvailable
	got, err := s.Get(t.Context(), "db-0001")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Get() once it is ready: %v, -want, +got:\n%s", err, diff)
	}
	want.Properties = map[string]string{"region": "north", "size": "2"}
	got, err = s.Update(t.Context(), "db-0001", map[string]string{"size": "2"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Update(): %v, -want, +got:\n%s", err, diff)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "db-0001"); err != nil {
			t.Errorf("Delete(): %v", err)
		}
		clock.Advance(30 * time.Minute)
	}
	if _, err := s.Get(t.Context(), "db-0001"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get() an hour after the first of two deletes: want %v, got %v", ErrNotFound, err)
	}
	if diff := cmp.Diff(Stats{Existing: 0, Created: 1}, c.Stats("me")); diff != "" {
		t.Errorf("Stats(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(Counts{OpLogin: 1, OpCreate: 1, OpGet: 2, OpUpdate: 1, OpDelete: 2}, c.Counts()); diff != "" {
		t.Errorf("Counts(): -want, +got:\n%s", diff)
	}
}

package cloud

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var errBoom = errors.New("boom")

func login(t *testing.T, c *Cloud) *Session {
	t.Helper()
	s, err := c.NewSession(t.Context(), "")
	if err != nil {
		t.Fatalf("NewSession: %v", err)
	}
	return s
}

func create(t *testing.T, s *Session, req CreateRequest) Resource {
	t.Helper()
	r, err := s.Create(t.Context(), req)
	if err != nil {
		t.Fatalf("Create(%+v): %v", req, err)
	}
	return r
}

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
	s := login(t, c)
	want := Resource{
		ID:         "db-0001",
		Kind:       "Database",
		Owner:      "me",
		Endpoint:   "db-0001.cloud.example.org",
		State:      StateCreating,
		CreatedAt:  start,
		Properties: map[string]string{"region": "north", "size": "1"},
	}
	created := create(t, s, CreateRequest{Kind: "Database", Owner: "me", Properties: map[string]string{"size": "1"}})
	if diff := cmp.Diff(want, created); diff != "" {
		t.Errorf("Create(): -want, +got:\n%s", diff)
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

// A new resource shows after a delay, a deleted one goes after a delay.
func TestEventualConsistency(t *testing.T) {
	clock := NewManualClock(time.Time{})
	c := New(Options{Clock: clock, VisibleAfter: 2 * time.Minute, GoneAfter: time.Minute})
	s := login(t, c)
	r := create(t, s, CreateRequest{Kind: "Database"})
	if got := len(c.Inventory()); got != 1 {
		t.Errorf("Inventory(): want the resource whether it is visible or not, got %d", got)
	}
	for minute, want := range []error{ErrNotFound, ErrNotFound, nil, nil, ErrNotFound} {
		listed, err := s.List(t.Context(), Filter{})
		if err != nil {
			t.Fatalf("List(): %v", err)
		}
		if _, err = s.Get(t.Context(), r.ID); !errors.Is(err, want) || (len(listed) == 1) != (want == nil) {
			t.Errorf("minute %d: want error %v, got %v; List(): %v", minute, want, err, listed)
		}
		if minute == 2 {
			if err := s.Delete(t.Context(), r.ID); err != nil {
				t.Fatalf("Delete(): %v", err)
			}

			// It goes a minute after that.
			continue
		}
		clock.Advance(time.Minute)
	}
}

func TestHooks(t *testing.T) {
	fail := func(op Op) Hook {
		return func(_ context.Context, c Call) error {
			if c.Op == op {
				return errBoom
			}
			return nil
		}
	}
	cases := map[string]struct {
		reason string
		hooks  Hooks
		do     func(ctx context.Context, s *Session) error
		want   []string
	}{
		"CreateRefused": {
			reason: "A create that fails before it takes effect makes nothing.",
			hooks:  Hooks{Before: fail(OpCreate)},
			do: func(ctx context.Context, s *Session) error {
				_, err := s.Create(ctx, CreateRequest{Kind: "db"})
				return err
			},
			want: []string{"db-0001 1"},
		},
		"CreateAnswerLost": {
			reason: "A create whose answer is lost has made the resource.",
			hooks:  Hooks{After: fail(OpCreate)},
			do: func(ctx context.Context, s *Session) error {
				_, err := s.Create(ctx, CreateRequest{Kind: "db"})
				return err
			},
			want: []string{"db-0001 1", "db-0002 "},
		},
		"CreateGivenUp": {
			reason: "It may let it take effect when its caller has given up.",
			hooks: Hooks{
				Around: func(_ context.Context, _ Call, effect Effect) error { return errors.Join(errBoom, effect()) },
				After:  func(context.Context, Call) error { panic("the caller has an error already") },
			},
			do: func(ctx context.Context, s *Session) error {
				_, err := s.Create(ctx, CreateRequest{Kind: "db"})
				return err
			},
			want: []string{"db-0001 1", "db-0002 "},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			s := login(t, c)
			create(t, s, CreateRequest{Kind: "db", Properties: map[string]string{"size": "1"}})
			c.SetHooks(tc.hooks)
			if err := tc.do(t.Context(), s); !errors.Is(err, errBoom) {
				t.Errorf("\n%s\nwant error %v, got %v", tc.reason, errBoom, err)
			}
			var got []string
			for _, r := range c.Inventory() {
				got = append(got, r.ID+" "+r.Properties["size"])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nInventory(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

package cloud

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

func TestEventualConsistency(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   Options
		// gets are the answers of Gets in a row, a minute apart.
		created []error
		deleted []error
	}{
		"Consistent": {
			reason:  "Nothing lags unless it is asked for.",
			created: []error{nil},
			deleted: []error{ErrNotFound},
		},
		"Lagging": {
			reason:  "A new resource shows after a delay, a deleted one goes after a delay.",
			opts:    Options{VisibleAfter: 2 * time.Minute, GoneAfter: time.Minute},
			created: []error{ErrNotFound, ErrNotFound, nil},
			deleted: []error{nil, ErrNotFound},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := NewManualClock(time.Time{})
			tc.opts.Clock = clock
			c := New(tc.opts)
			s := login(t, c)
			r := create(t, s, CreateRequest{Kind: "Database"})

			if got := len(c.Inventory()); got != 1 {
				t.Errorf("\n%s\nInventory(): want the resource whether it is visible or not, got %d", tc.reason, got)
			}

			observe := func(phase string, want []error) {
				for i, want := range want {
					listed, err := s.List(t.Context(), Filter{})
					if err != nil {
						t.Fatalf("\n%s\nList(): %v", tc.reason, err)
					}

					_, err = s.Get(t.Context(), r.ID)
					if !errors.Is(err, want) {
						t.Errorf("\n%s\n%s: Get() number %d: want error %v, got %v", tc.reason, phase, i+1, want, err)
					}

					if (len(listed) == 1) != (want == nil) {
						t.Errorf("\n%s\n%s: List() number %d: want what Get() says, %v, got %v", tc.reason, phase, i+1, want, listed)
					}

					clock.Advance(time.Minute)
				}
			}

			observe("created", tc.created)

			if err := s.Delete(t.Context(), r.ID); err != nil {
				t.Fatalf("\n%s\nDelete(): %v", tc.reason, err)
			}

			observe("deleted", tc.deleted)
		})
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
		"DeleteAnswerLost": {
			reason: "A delete whose answer is lost has deleted the resource.",
			hooks:  Hooks{After: fail(OpDelete)},
			do:     func(ctx context.Context, s *Session) error { return s.Delete(ctx, "db-0001") },
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
		"OneResourceOnly": {
			reason: "The hook after a create knows the id that was assigned.",
			hooks: Hooks{After: func(_ context.Context, c Call) error {
				if diff := cmp.Diff(Call{Op: OpCreate, ID: "db-0002", Kind: "db", Owner: "me"}, c); diff != "" {
					return errors.New(diff)
				}

				return errBoom
			}},
			do: func(ctx context.Context, s *Session) error {
				_, err := s.Create(ctx, CreateRequest{Kind: "db", Owner: "me"})
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

func TestLatencyHonoursContext(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   Options
		want   int
	}{
		"Request": {
			reason: "A caller that gives up before the request arrives has changed nothing.",
			opts:   Options{RequestLatency: time.Second},
			want:   0,
		},
		"Response": {
			reason: "A caller that gives up on the answer has created the resource.",
			opts:   Options{ResponseLatency: time.Second},
			want:   1,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(tc.opts)

				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()

				if _, err := c.Session("").Create(ctx, CreateRequest{Kind: "db"}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("\n%s\nCreate(): want error %v, got %v", tc.reason, context.DeadlineExceeded, err)
				}

				if got := len(c.Inventory()); got != tc.want {
					t.Errorf("\n%s\nInventory(): want %d resources, got %d", tc.reason, tc.want, got)
				}
			})
		})
	}
}

// A request that was sent takes effect even if its caller no longer waits.
func TestLateEffect(t *testing.T) {
	c := New(Options{})
	s := login(t, c)

	var late Effect

	c.SetHooks(Hooks{Around: func(_ context.Context, _ Call, effect Effect) error {
		late = effect
		return errBoom
	}})

	r, err := s.Create(t.Context(), CreateRequest{Kind: "db", Token: "t"})
	if !errors.Is(err, errBoom) || r.ID != "" || len(c.Inventory()) != 0 {
		t.Errorf("Create() that is on its way: want nothing yet, got %+v, %v, %v", r, err, c.Inventory())
	}

	if err := late(); err != nil {
		t.Errorf("effect(): %v", err)
	}

	c.SetHooks(Hooks{})

	got, err := s.List(t.Context(), Filter{Token: "t"})
	if err != nil || len(got) != 1 || got[0].ID != "db-0001" {
		t.Errorf("List() by token: want db-0001, got %+v, %v", got, err)
	}

	if got, err = s.List(t.Context(), Filter{Token: "another"}); err != nil || len(got) != 0 {
		t.Errorf("List() by another token: want nothing, got %+v, %v", got, err)
	}
}

func TestCreateIdempotency(t *testing.T) {
	type answer struct {
		ID  string
		Err error
	}

	first := CreateRequest{Kind: "db", Token: "t", Properties: map[string]string{"size": "1"}}

	cases := map[string]struct {
		reason string
		reqs   []CreateRequest
		want   []answer
	}{
		"NoToken": {
			reason: "Without a token every request makes a resource.",
			reqs:   []CreateRequest{{Kind: "db"}, {Kind: "db"}},
			want:   []answer{{ID: "db-0001"}, {ID: "db-0002"}},
		},
		"SameToken": {
			reason: "The same request with the same token gets the same resource.",
			reqs:   []CreateRequest{first, first},
			want:   []answer{{ID: "db-0001"}, {ID: "db-0001"}},
		},
		"TokenReused": {
			reason: "Another request with the same token is refused.",
			reqs:   []CreateRequest{first, {Kind: "db", Token: "t"}},
			want:   []answer{{ID: "db-0001"}, {Err: ErrTokenReused}},
		},
		"SameName": {
			reason: "A name is given once.",
			reqs:   []CreateRequest{{Kind: "db", Name: "a"}, {Kind: "db", Name: "a"}},
			want:   []answer{{ID: "a"}, {Err: ErrAlreadyExists}},
		},
		"NameLikeAnID": {
			reason: "Ids that the cloud makes up avoid names that were asked for.",
			reqs:   []CreateRequest{{Kind: "db", Name: "db-0001"}, {Kind: "db"}},
			want:   []answer{{ID: "db-0001"}, {ID: "db-0002"}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := login(t, New(Options{}))

			for i, req := range tc.reqs {
				r, err := s.Create(t.Context(), req)
				if !errors.Is(err, tc.want[i].Err) || r.ID != tc.want[i].ID {
					t.Errorf("\n%s\nCreate() number %d: want %+v, got %q and error %v", tc.reason, i+1, tc.want[i], r.ID, err)
				}
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	c := New(Options{Token: "good"})

	if _, err := c.NewSession(t.Context(), "bad"); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("NewSession() with a wrong token: want %v, got %v", ErrUnauthenticated, err)
	}

	s, err := c.NewSession(t.Context(), "good")
	if err != nil {
		t.Fatalf("NewSession(): %v", err)
	}

	c.SetToken("rotated")

	if _, err := s.List(t.Context(), Filter{}); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("List() after the token was rotated: want %v, got %v", ErrUnauthenticated, err)
	}

	c.SetToken("")

	if _, err := s.List(t.Context(), Filter{}); err != nil {
		t.Errorf("List() when no token is asked for: %v", err)
	}
}

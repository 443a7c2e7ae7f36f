package crashtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// TestRun_FailedStart proves that a process whose start fails because of a fault starts again, as a Deployment has it.
func TestRun_FailedStart(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		if err := p.Manager().GetAPIReader().List(context.Background(), &v1alpha1.BucketList{}); err != nil {
			return nil, err
		}
		return graftNamed(p, a)
	})
	p.Scenarios = []Scenario{{
		Name: "restart-update", Setup: []Act{{Do: Create}},
		Acts: []Act{{Do: Restart}, {Do: Change}},
	}}
	for _, r := range findings(t, p, Only("restart-update/before/^1$")) {
		t.Errorf("%s: %v", r.Name, r.Violations)
	}
}

// TestRun_FailedLogin proves that a process whose start calls the external system starts again until its credentials
// are repaired.
func TestRun_FailedLogin(t *testing.T) {
	cases := map[string]struct {
		reason string
		start  func(p *Process, c *vmCloud) error
	}{
		"Transport": {
			reason: "A login through the transport should be repeated.",
			start: func(p *Process, c *vmCloud) error {
				api := vmAPI{http: &http.Client{Transport: p.Transport(c)}}
				return api.do(context.Background(), http.MethodGet, "/vms", nil, &[]vm{})
			},
		},
		"Step": {
			reason: "A login that is a step should be repeated.",
			start: func(p *Process, _ *vmCloud) error {
				return p.Step(context.Background(), "login", func() error { return nil })
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, graftNamed)
			start := p.Start
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				if err := tc.start(p, c); err != nil {
					return nil, err
				}
				return start(p, c)
			}
			p.Scenarios = append(slices.DeleteFunc(Scenarios(), func(l Scenario) bool {
				return !strings.HasPrefix(l.Name, "credentials")
			}), Scenario{
				Name: "restart-without-access", Setup: []Act{{Do: Create}},
				Acts: []Act{{Do: DenyAccess}, {Do: Restart}, {Do: GrantAccess}},
			})
			for _, r := range findings(t, p, Runs(30)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}

func TestRun_SameSeedSameTimeline(t *testing.T) {
	for _, name := range []string{
		"create/undisturbed",
		"delete-in-create/failover-after/5",
		"update/crash-after/4/reset-before/9",
		"same-name/away-after/3",
		"delete-in-create/stale/6/stale/16",
	} {
		t.Run(name, func(t *testing.T) {
			var got [2]string
			for i := range got {
				r := replayed(t, vmProvider(t, graftFound), name, Seed(3))
				if len(r.Violations) > 0 {
					t.Fatalf("%v\n%s", r.Violations, r.Timeline())
				}
				got[i] = r.Timeline()
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("The same seed has to lead the same life.\n-first, +second:\n%s", diff)
			}
		})
	}
}

// TestRun_ParallelRequests proves that the order of requests that wait at the same time does not depend on
// which one was faster.
func TestRun_ParallelRequests(t *testing.T) {
	cases := map[string]struct {
		reason string
		first  [2]string // A path and a body.
		second [2]string
	}{
		"Query": {"Requests to one path differ in their query.", [2]string{"/x?a"}, [2]string{"/x?b"}},
		"Body":  {"Requests to one path differ in their body.", [2]string{"/x", `"a"`}, [2]string{"/x", `"b"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			served := func(requests ...[2]string) (got []string) {
				p := vmProvider(t, nil)
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					got = nil
					fake := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						body, err := io.ReadAll(r.Body)
						if err != nil {
							t.Error(err)
						}
						got = append(got, r.URL.RawQuery+string(body))
					})
					api := &http.Client{Transport: p.Transport(fake)}
					var both sync.WaitGroup
					for _, r := range requests {
						both.Go(func() {
							req, err := http.NewRequestWithContext(
								p.sim.Context(), http.MethodPut, "http://cloud"+r[0], strings.NewReader(r[1]),
							)
							if err != nil {
								t.Error(err)
								return
							}
							resp, err := api.Do(req)
							if err != nil || resp.Body.Close() != nil {
								t.Errorf("Do(...): %v", err)
							}
						})
						time.Sleep(time.Millisecond)
					}
					both.Wait()
					return rightPlain(p, vmAPI{http: api}), nil
				}
				p.Scenarios = Scenarios()[:1]
				findings(t, p, Runs(0))
				return got[:2]
			}
			if diff := cmp.Diff(served(tc.first, tc.second), served(tc.second, tc.first)); diff != "" {
				t.Errorf("\n%s\nRun(...): -one order, +the other:\n%s", tc.reason, diff)
			}
		})
	}
}

// A randomBody logs in before each request. The body of the log-in depends on the salt.
type randomBody struct {
	inner http.RoundTripper
	salt  int
	calls atomic.Int64
}

func (r *randomBody) RoundTrip(req *http.Request) (*http.Response, error) {
	body := fmt.Sprint(r.salt, r.calls.Add(1))
	login, err := http.NewRequestWithContext(
		req.Context(), http.MethodPost, "http://cloud/token", strings.NewReader(body),
	)
	if err != nil {
		return nil, err
	}
	resp, err := r.inner.RoundTrip(login)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	return r.inner.RoundTrip(req)
}

// TestRun_RandomBody proves that a random token in a body does not change the order of requests of two reconciles.
func TestRun_RandomBody(t *testing.T) {
	var want string
	for salt := range 8 {
		p := vmProvider(t, nil)
		p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
			fake := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/token" {
					c.ServeHTTP(w, r)
				}
			})
			api := vmAPI{http: &http.Client{Transport: &randomBody{inner: p.Transport(fake), salt: salt}}}
			return graftNamed(p, api)
		}
		p.Scenarios = []Scenario{{
			Name:  "two",
			Setup: []Act{{Do: CreateSecond}}, Acts: []Act{{Do: Create}, {Do: Restart}},
		}}
		got := replayed(t, p, "two/500-before/35").Timeline()
		if salt == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("The same seed has to lead the same life. -first, +salt %d:\n%s", salt, diff)
		}
	}
}

// TestRun_ReadyLate proves that a life is not at rest while the next reconcile may make it right.
func TestRun_ReadyLate(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		r, polls := rightPlain(p, a), 0
		conditions := r.conditions
		r.conditions = func(b *v1alpha1.Bucket, err error) {
			if polls++; polls > 2 {
				conditions(b, err)
			}
		}
		pollsRarely(p, r)
		return r, nil
	})
	p.Scenarios = Scenarios()[:1]
	for _, r := range findings(t, p, Runs(0)) {
		t.Errorf("A provider may take some polls until it is ready. %s: %v", r.Name, r.Violations)
	}
}

// pollsRarely makes a plain reconciler poll every ten minutes.
func pollsRarely(_ *Process, r *plain) {
	r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: 10 * time.Minute}, err
	}
}

// TestRun_RarePolls proves that a life is not at rest while the next poll may repair an external resource.
func TestRun_RarePolls(t *testing.T) {
	create := []Act{{Do: Create}}
	cases := map[string]struct {
		reason string
		life   Scenario
		change func(p *Process, r *plain)
	}{
		"LateCall": {
			reason: "A call of a dead process may arrive last. Only the life without a fault has the right state.",
			life:   Scenario{Setup: create, Acts: []Act{{Do: resize(5)}, {Do: resize(7), DuringCall: true}}},
			change: pollsRarely,
		},
		"LateUpdate": {
			reason: "An update may start at the next poll, without any fault.",
			life:   Scenario{Setup: create, Acts: []Act{{Do: resize(5)}}},
			change: func(p *Process, r *plain) {
				pollsRarely(p, r)
				update, calls := r.update, 0
				r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
					if calls++; calls == 1 {
						return nil
					}
					return update(ctx, b)
				}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, tc.change)
			tc.life.Name = "own"
			p.Scenarios = []Scenario{tc.life}
			for _, r := range findings(t, p, Only("own/crash-inflight")) {
				t.Errorf("%s %s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}

// TestTimeline proves that a timeline says what happened to each process.
func TestTimeline(t *testing.T) {
	cases := map[string]struct {
		reason string
		want   []string
	}{
		"create/stop-before/2": {
			"A stop should be told apart from a crash.", []string{"1 is asked to stop", "2 starts"},
		},
		"create/crash-before/2": {
			"A crash should be shown with its step.", []string{"← crash-before", "1 is killed"},
		},
		"create/away-after/2": {
			"The API server should be away for later requests, too.",
			[]string{"process, user", "connection reset by peer", "connection refused"},
		},
		"create/crash-inflight/7": {
			"A call of a dead process should be shown when it arrives.", []string{"PUT /vms/one arrives"},
		},
		"create/500-before/2": {"An answer that is an error should be shown.", []string{"→ Internal error"}},
		"pause/undisturbed": {
			"The user should be shown.", []string{"the user pauses", "the user changes", "the user resumes"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tl := replayed(t, vmProvider(t, graftNamed), name).Timeline()
			for _, want := range tc.want {
				if !strings.Contains(tl, want) {
					t.Errorf("\n%s\nlead(...): want %q in\n%s", tc.reason, want, tl)
				}
			}
		})
	}
}

// TestRun_Escape proves that a life that can't end is reported with the stack of the
// goroutine that prevents it.
func TestRun_Escape(t *testing.T) {
	cases := map[string]struct {
		reason string
		start  func(p *Process, a vmAPI) (reconcile.Reconciler, error)
		want   string
	}{
		"Goroutine": {
			reason: "A goroutine that ignores its context is left when its process is gone.",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				go func() { <-make(chan struct{}) }()
				return graftNamed(p, a)
			},
			want: "TestRun_Escape.func1",
		},
		"Timer": {
			reason: "A ticker that nothing stops is left, too.",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				go func() {
					for range time.Tick(time.Minute) {
						_ = p
					}
				}()
				return graftNamed(p, a)
			},
			want: "TestRun_Escape.func2",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, tc.start)
			p.Scenarios = Scenarios()[:1]
			got := findings(t, p, Runs(20))
			if len(got) == 0 {
				t.Fatalf("\n%s\nRun(...): no finding", tc.reason)
			}
			if r := got[0]; !oracleHas(r, Escaped) || !strings.Contains(fmt.Sprint(r.Violations), tc.want) {
				t.Errorf("\n%s\nRun(...): want %s with %q, got %+v", tc.reason, Escaped, tc.want, r.Violations)
			}
		})
	}
}

// TestRun_Unfinished proves that an incomplete test or fake ends in a finding with the missing part.
func TestRun_Unfinished(t *testing.T) {
	// reads reconciles after it has read a secret.
	reads := func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		r := rightPlain(p, a)
		r.before = func(ctx context.Context, _ *v1alpha1.Bucket) (bool, error) {
			key := client.ObjectKey{Namespace: "default", Name: "credentials"}
			return false, errors.Wrap(r.kube.Get(ctx, key, &corev1.Secret{}), "cannot get credentials")
		}
		return r, nil
	}
	right := func(p *Process, a vmAPI) (reconcile.Reconciler, error) { return rightPlain(p, a), nil }
	cases := map[string]struct {
		reason string
		life   string
		start  func(p *Process, a vmAPI) (reconcile.Reconciler, error)
		change func(t *testing.T, p *Provider[*vmCloud])
		want   []string
	}{
		"KindNotInScheme": {
			reason: "The error of the reconcile and the field of the test are named.",
			life:   "create",
			start:  reads,
			want:   []string{"cannot get credentials: no kind is registered", "Add the kind to Provider.Scheme."},
		},
		"ObjectMissing": {
			reason: "An object that exists beside the managed resource is a part of the test.",
			life:   "create",
			start:  reads,
			change: func(t *testing.T, p *Provider[*vmCloud]) {
				t.Helper()
				if err := corev1.AddToScheme(p.Scheme); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{`"credentials" not found`, "List objects that the provider reads in Provider.Beside."},
		},
		"Reference": {
			reason: "Upstream resolves a reference with server-side apply, which the API server in memory has not.",
			life:   "create",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				r := rightPlain(p, a)
				r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
					resolved := client.RawPatch(
						types.ApplyPatchType, []byte(`{"spec":{"forProvider":{"region":"north"}}}`),
					)
					return false, r.kube.Patch(ctx, b, resolved, client.FieldOwner("resolver"), client.ForceOwnership)
				}
				return r, nil
			},
			want: []string{"Set the fields of Provider.Object that its references resolve to."},
		},
		"StartBlocks": {
			reason: "A Start that waits for something never gets it.",
			life:   "create",
			start: func(*Process, vmAPI) (reconcile.Reconciler, error) {
				<-make(chan struct{})
				return nil, nil
			},
			want: []string{"Provider.Start did not return"},
		},
		"NoCalls": {
			reason: "A provider whose calls are no steps is not proved at all.",
			life:   "create",
			start: func(*Process, vmAPI) (reconcile.Reconciler, error) {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{}, nil
				}), nil
			},
			want: []string{
				"No call to the external system was seen: use Process.Transport, Process.Step or Connector.",
			},
		},
		"NameElsewhere": {
			reason: "Not every provider keeps the name in the annotation.",
			life:   "create",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				r := rightPlain(p, a)
				r.create = func(ctx context.Context, _ *v1alpha1.Bucket) error {
					return a.do(ctx, http.MethodPut, "/vms/elsewhere", vm{}, nil)
				}
				return r, nil
			},
			want: []string{"set Provider.Name"},
		},
		"ChangeDoesNotShow": {
			reason: "A change that the external system never shows can't be lost.",
			life:   "update",
			start:  right,
			change: func(_ *testing.T, p *Provider[*vmCloud]) { p.Change = func(client.Object) {} },
			want:   []string{"Provider.Change has to show in Cloud.Exists"},
		},
		"RequeuesAtOnce": {
			reason: "A reconciler that never rests is stopped.",
			life:   "create",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				r := rightPlain(p, a)
				r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
					return reconcile.Result{RequeueAfter: time.Nanosecond}, err
				}
				return r, nil
			},
			want: []string{"although nothing had changed"},
		},
		"NeverReturns": {
			reason: "A reconcile that waits by itself is stopped.",
			life:   "create",
			start: func(*Process, vmAPI) (reconcile.Reconciler, error) {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					for {
						time.Sleep(time.Second)
					}
				}), nil
			},
			want: []string{"A reconcile did not return"},
		},
		"AsksForever": {
			reason: "A reconcile that asks the API server again and again is stopped.",
			life:   "create",
			start: func(p *Process, _ vmAPI) (reconcile.Reconciler, error) {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					for {
						_ = p.Manager().GetClient().Get(ctx, req.NamespacedName, &v1alpha1.Bucket{})
					}
				}), nil
			},
			want: []string{"A reconcile did not return"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, tc.start)
			p.Scenarios = slices.DeleteFunc(Scenarios(), func(l Scenario) bool { return l.Name != tc.life })
			if tc.change != nil {
				tc.change(t, &p)
			}
			got := findings(t, p, Runs(0))
			if len(got) != 1 {
				t.Fatalf("\n%s\nRun(...): want 1 finding, got %d", tc.reason, len(got))
			}
			text := fmt.Sprint(got[0].Violations)
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("\n%s\nRun(...): want %q in %s", tc.reason, want, text)
				}
			}
		})
	}
}

// TestBelow proves that a pattern of -run selects runs by the parts below the test.
func TestBelow(t *testing.T) {
	cases := map[string]struct {
		reason string
		test   string
		run    string
		want   string
	}{
		"None": {"Without -run all runs should be made.", "TestA", "", ""},
		"Test": {"Without a part below the test all runs should be made.", "TestA", "^TestA$", ""},
		"Replay": {
			"The printed command should select one run.", "TestA", "^TestA$/^create$/^late$/^4$", "^create$/^late$/^4$",
		},
		"Subtest":   {"Names of subtests come first.", "TestA/x", "TestA/x/create", "create"},
		"OtherTest": {"A part of another test's pattern selects nothing here.", "TestB", "TestA/create", ""},
		"Group":     {"A group is one part.", "TestA", "Test(A|B)/(create|pause)", "(create|pause)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := below(strings.Split(tc.test, "/"), strings.Split(tc.run, "/"))
			if got != tc.want {
				t.Errorf("\n%s\nbelow(%q, %q): want %q, got %q", tc.reason, tc.test, tc.run, tc.want, got)
			}
		})
	}
}

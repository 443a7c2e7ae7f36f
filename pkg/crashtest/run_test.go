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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A few points are led here. TestJudgeRight leads many.
const fewPoints = 60

func TestRun_RightProvider(t *testing.T) {
	cases := map[string]struct {
		reason string
		start  func(p *Process, a vmAPI) (reconcile.Reconciler, error)
		lives  func(l Life) bool
	}{
		"GraftChosenNames": {
			reason: "A provider that chooses names and reserves them survives every fault.",
			start:  graftNamed,
		},
		"GraftFinder": {
			reason: "A provider with a Finder survives every fault.",
			start:  graftFound,
		},
		"UpstreamChosenNames": {
			reason: "Upstream's reconciler with chosen names is right, as long as each managed resource has its own.",
			start:  upstreamNamed,
			lives:  func(l Life) bool { return l.Name != "same-name" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, tc.start)
			for _, l := range Lives() {
				if tc.lives == nil || tc.lives(l) {
					p.Lives = append(p.Lives, l)
				}
			}
			Run(t, p, Points(fewPoints))
		})
	}
}

// TestRun_FailedStart proves that a process whose start fails because of a fault starts again, as a Deployment has it.
func TestRun_FailedStart(t *testing.T) {
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		if err := p.Manager().GetAPIReader().List(context.Background(), &v1alpha1.BucketList{}); err != nil {
			return nil, err
		}
		return graftNamed(p, a)
	})
	p.Lives = []Life{{
		Name: "restart-update", Before: []Act{{Do: (*User).Create}},
		Acts: []Act{{Do: (*User).Restart}, {Do: (*User).Change}},
	}}
	for _, r := range findings(t, p, Only("restart-update/before/^1$")) {
		t.Errorf("%s: %v", r.point.name(), r.finding.violations)
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
			p.Lives = append(slices.DeleteFunc(Lives(), func(l Life) bool {
				return !strings.HasPrefix(l.Name, "credentials")
			}), Life{
				Name: "restart-without-access", Before: []Act{{Do: (*User).Create}},
				Acts: []Act{{Do: (*User).DenyAccess}, {Do: (*User).Restart}, {Do: (*User).GrantAccess}},
			})
			for _, r := range findings(t, p, Points(fewPoints)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.point.name(), r.finding.violations)
			}
		})
	}
}

// findings leads lives, and returns those that ended badly.
func findings[C Cloud](t *testing.T, p Provider[C], o ...Option) []result {
	t.Helper()
	s, err := newSweep(t, p, o)
	if err != nil {
		t.Fatal(err)
	}
	s.progress = func(string, ...any) {}
	all, _, err := s.run()
	if err != nil && !errors.Is(err, errHung) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r result) bool { return len(r.finding.violations) == 0 })
}

func TestRun_BadInput(t *testing.T) {
	right := func(t *testing.T) Provider[*vmCloud] { return vmProvider(t, graftNamed) }
	cases := map[string]struct {
		reason string
		change func(p *Provider[*vmCloud])
		want   string
	}{
		"NoScheme": {
			"Without a scheme there is no API server.",
			func(p *Provider[*vmCloud]) { p.Scheme = nil },
			"Provider.Scheme is nil: set it",
		},
		"NoObject": {
			"A life is that of an object.",
			func(p *Provider[*vmCloud]) { p.Object = nil },
			"Provider.Object is nil: set it",
		},
		"NilObject": {
			"A nil pointer is no object either.",
			func(p *Provider[*vmCloud]) { p.Object = (*v1alpha1.Bucket)(nil) },
			"Provider.Object is nil: set it",
		},
		"NoName": {
			"Nothing generates a name.",
			func(p *Provider[*vmCloud]) { p.Object = &v1alpha1.Bucket{} },
			"set metadata.name",
		},
		"NoStart": {
			"Nothing can be started.", func(p *Provider[*vmCloud]) { p.Start = nil }, "Provider.Start is nil: set it",
		},
		"NoCloud": {
			"Nothing can be judged.", func(p *Provider[*vmCloud]) { p.Cloud = nil }, "Provider.Cloud is nil: set it",
		},
		"NilCloud": {
			"A fake is needed for each life.",
			func(p *Provider[*vmCloud]) { p.Cloud = func() *vmCloud { return nil } },
			"Provider.Cloud returned nil",
		},
		"SharedCloud": {
			"Lives would see each other's resources.",
			func(p *Provider[*vmCloud]) {
				shared := newVMCloud()
				p.Cloud = func() *vmCloud { return shared }
			},
			"Provider.Cloud returned the same fake twice",
		},
		"NilCloudLater": {
			"A life can't be led without a fake.",
			func(p *Provider[*vmCloud]) {
				var made atomic.Int64
				p.Cloud = func() *vmCloud {
					if made.Add(1) > 2 {
						return nil
					}
					return newVMCloud()
				}
			},
			"Provider.Cloud returned nil",
		},
		"NewCloudPanics": {
			"The panic is reported.",
			func(p *Provider[*vmCloud]) { p.Cloud = func() *vmCloud { panic("ouch") } },
			"Provider.Cloud panicked: ouch",
		},
		"EmptyScheme": {
			"The kind is needed to read the object.",
			func(p *Provider[*vmCloud]) { p.Scheme = runtime.NewScheme() },
			"call the AddToScheme function of its package",
		},
		"NilBeside": {
			"The entry is named.",
			func(p *Provider[*vmCloud]) { p.Beside = []client.Object{nil} },
			"Provider.Beside[0] is nil",
		},
		"NoCRDs": {
			"The folder is named.",
			func(p *Provider[*vmCloud]) { p.CRDs = t.TempDir() },
			"has no CustomResourceDefinition",
		},
		"Accept": {
			"A verdict with a typing error would accept nothing.",
			func(p *Provider[*vmCloud]) { p.Accept = []Verdict{"leaks"} },
			`"leaks", which is not a verdict`,
		},
		"NilReconciler": {
			"A process without a reconciler does nothing.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(*Process, *vmCloud) (reconcile.Reconciler, error) { return nil, nil }
			},
			"Provider.Start returned a nil reconciler and no error",
		},
		"StartFails": {
			"An error without a fault is the author's.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(*Process, *vmCloud) (reconcile.Reconciler, error) { return nil, errors.New("no flag") }
			},
			"Provider.Start failed: no flag",
		},
		"StartPanics": {
			"What the manager doesn't have is named.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					p.Manager().GetWebhookServer()
					return nil, nil
				}
			},
			"Provider.Start panicked",
		},
		"StartPanicsInAStep": {
			"A panic of Start is the author's in a step, too.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					return nil, p.Step(p.ctx, "log in", func() error { panic("ouch") })
				}
			},
			"Provider.Start panicked",
		},
		"TwoControllers": {
			"One controller is that of the managed resource.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					return p.Controller(func(manager.Manager) error { return nil })
				}
			},
			"setup added 0 controllers",
		},
		"CloudPanics": {
			"The step is named.",
			func(p *Provider[*vmCloud]) {
				p.Start = func(p *Process, _ *vmCloud) (reconcile.Reconciler, error) {
					fake := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("ouch") })
					return graftNamed(p, vmAPI{http: &http.Client{Transport: p.Transport(fake)}})
				}
			},
			`the fake of the external system panicked in step "GET /vms/one": ouch`,
		},
		"NoStatus": {
			"A fault without an error would have no effect.",
			func(p *Provider[*vmCloud]) {
				p.Status = func(code int) error {
					if code == http.StatusInternalServerError {
						return errors.New("server error")
					}
					return nil
				}
			},
			"Provider.Status returned nil for status 401",
		},
		"NamelessLife": {
			"The name is part of a subtest's.",
			func(p *Provider[*vmCloud]) { p.Lives = []Life{{}} },
			"the name of a life is",
		},
		"SlashInLife": {
			"A slash would end the name.",
			func(p *Provider[*vmCloud]) { p.Lives = []Life{{Name: "a/b"}} },
			"use letters, digits and hyphens",
		},
		"LivesOfOneName": {
			"A replay leads one life.",
			func(p *Provider[*vmCloud]) { p.Lives = append(Lives(), Lives()[0]) },
			`two lives are named "create"`,
		},
		"NoActs": {
			"A life without acts tells nothing.",
			func(p *Provider[*vmCloud]) { p.Lives = []Life{{Name: "a"}} },
			"has no acts",
		},
		"NoDo": {
			"The act is named.",
			func(p *Provider[*vmCloud]) { p.Lives = []Life{{Name: "a", Acts: []Act{{}}}} },
			`act 1 of life "a" has no Do`,
		},
		"NoChange": {
			"A run that leaves out all lives proves nothing.",
			func(p *Provider[*vmCloud]) { p.Change, p.Lives = nil, Lives()[1:2] },
			"set Provider.Change",
		},
		"RenameWithName": {
			"An annotation renames nothing if the name is elsewhere.",
			func(p *Provider[*vmCloud]) {
				p.Name = func(o client.Object) string { return o.GetName() }
				p.Lives = slices.DeleteFunc(Lives(), func(l Life) bool { return l.Name != "rename" })
			},
			"the external name can't be set with an annotation",
		},
		"ChangePanics": {
			"A function of the author's is no part of the provider.",
			func(p *Provider[*vmCloud]) { p.Change = func(client.Object) { panic("ouch") } },
			"a function of Provider panicked: ouch",
		},
		"LateActFails": {
			"An act that waits for a call in vain is done afterwards, and may fail.",
			func(p *Provider[*vmCloud]) {
				fails := func(*User) error { return errors.New("crashtest: no luck") }
				p.Lives = []Life{{
					Name: "a", Before: []Act{{Do: (*User).Create}},
					Acts: []Act{{Do: (*User).Restart}, {Do: fails, DuringCall: true}},
				}}
			},
			"no luck",
		},
		"RenameFirst": {
			"There is nothing to rename it to.",
			func(p *Provider[*vmCloud]) { p.Lives = []Life{{Name: "a", Acts: []Act{{Do: (*User).Rename}}}} },
			"call AbandonAnother before",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := right(t)
			tc.change(&p)
			s, err := newSweep(t, p, []Option{Points(1)})
			if err == nil {
				s.progress = func(string, ...any) {}
				_, _, err = s.run()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "crashtest: ") {
				t.Errorf("\n%s\nRun(...): want an error with %q, got %v", tc.reason, tc.want, err)
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
	} {
		t.Run(name, func(t *testing.T) {
			s, err := newSweep(t, vmProvider(t, graftFound), nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := parsePoint(name, s.subject.lives)
			if err != nil {
				t.Fatal(err)
			}
			var got [2]string
			for i := range got {
				tl := &timeline{}
				if f := lead(t, s.subject, p, 3, nil, tl); f.err != nil || len(f.violations) > 0 {
					t.Fatalf("lead(...): %+v\n%s", f, tl)
				}
				got[i] = tl.String()
			}
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("The same seed has to lead the same life.\n-first, +second:\n%s", diff)
			}
		})
	}
}

// TestRun_ParallelRequests proves that the order of requests that wait at the same time does not depend on which one was
// faster.
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
								p.ctx, http.MethodPut, "http://cloud"+r[0], strings.NewReader(r[1]),
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
				p.Lives = Lives()[:1]
				findings(t, p, Points(0))
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
		p.Lives = []Life{{
			Name: "two", Creates: 2,
			Before: []Act{{Do: (*User).CreateAnother}}, Acts: []Act{{Do: (*User).Create}, {Do: (*User).Restart}},
		}}
		s, err := newSweep(t, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		pt, err := parsePoint("two/500-before/35", p.Lives)
		if err != nil {
			t.Fatal(err)
		}
		tl := &timeline{}
		lead(t, s.subject, pt, 1, nil, tl)
		if salt == 0 {
			want = tl.String()
		}
		if diff := cmp.Diff(want, tl.String()); diff != "" {
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
	p.Lives = Lives()[:1]
	for _, r := range findings(t, p, Points(0)) {
		t.Errorf("A provider may take some polls until it is ready. %s: %v", r.point.name(), r.finding.violations)
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
	create := []Act{{Do: (*User).Create}}
	cases := map[string]struct {
		reason string
		life   Life
		change func(p *Process, r *plain)
	}{
		"LateCall": {
			reason: "A call of a dead process may arrive last. Only the life without a fault has the right state.",
			life:   Life{Before: create, Acts: []Act{{Do: resize(5)}, {Do: resize(7), DuringCall: true}}},
			change: pollsRarely,
		},
		"LateUpdate": {
			reason: "An update may start at the next poll, without any fault.",
			life:   Life{Before: create, Acts: []Act{{Do: resize(5)}}},
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
			p.Lives = []Life{tc.life}
			for _, r := range findings(t, p, Only("own/crash-inflight")) {
				t.Errorf("%s %s: %v", tc.reason, r.point.name(), r.finding.violations)
			}
		})
	}
}

// TestRun_RarePollsBetweenActs proves that only the last act has to end in the state of the life without a fault.
func TestRun_RarePollsBetweenActs(t *testing.T) {
	cases := map[string]struct {
		reason string
		acts   []Act
		point  string
	}{
		"Update": {
			"A state that the next act changes should be no lost update.",
			[]Act{{Do: resize(5)}, {Do: resize(7)}},
			"own/crash-inflight/3",
		},
		"NotCalled": {
			"An act that waits for a call in vain should follow as soon as the provider is at rest.",
			[]Act{{Do: (*User).Restart}, {Do: (*User).Delete, DuringCall: true}},
			"own/crash-before/1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, pollsRarely)
			p.Lives = []Life{{Name: "own", Before: []Act{{Do: (*User).Create}}, Acts: tc.acts}}
			s, err := newSweep(t, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			pt, err := parsePoint(tc.point, p.Lives)
			if err != nil {
				t.Fatal(err)
			}
			calm, tl := lead(t, s.subject, point{life: p.Lives[0]}, 1, nil, nil), &timeline{}
			lead(t, s.subject, pt, 1, &calm, tl)
			if last := tl.entries[len(tl.entries)-1]; last.at > maxTime {
				t.Errorf("\n%s\nlead(...): want less than %s, got %s\n%s", tc.reason, maxTime, last.at, tl)
			}
		})
	}
}

// TestRun_LostUpdateIsNoHotLoop proves that a provider that polls in vain for a lost update is at rest.
func TestRun_LostUpdateIsNoHotLoop(t *testing.T) {
	p := plainProvider(t, func(_ *Process, r *plain) {
		r.update = func(context.Context, *v1alpha1.Bucket) error { return nil }
	})
	p.Lives = Lives()[1:2]
	var got []string
	for _, r := range findings(t, p, Points(0)) {
		got = append(got, r.finding.verdicts())
	}
	if diff := cmp.Diff([]string{string(LostUpdate)}, got); diff != "" {
		t.Errorf("A lost update should be no hot loop. -want, +got:\n%s", diff)
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
	s, err := newSweep(t, vmProvider(t, graftNamed), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := parsePoint(name, s.subject.lives)
			if err != nil {
				t.Fatal(err)
			}
			tl := &timeline{}
			lead(t, s.subject, p, 1, nil, tl)
			for _, want := range tc.want {
				if !strings.Contains(tl.String(), want) {
					t.Errorf("\n%s\nlead(...): want %q in\n%s", tc.reason, want, tl)
				}
			}
		})
	}
}

// TestRun_Escape proves that a life that can't end is reported with the stack of the
// goroutine that prevents it.
func TestRun_Escape(t *testing.T) {
	var global sync.Mutex
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
						_ = p.id
					}
				}()
				return graftNamed(p, a)
			},
			want: "TestRun_Escape.func2",
		},
		"Lock": {
			reason: "A lock whose holder crashed blocks the next process.",
			start: func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				r, err := graftNamed(p, a)
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					global.Lock()
					defer global.Unlock()
					return r.Reconcile(ctx, req)
				}), err
			},
			want: "sync.(*Mutex).Lock",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, tc.start)
			p.Lives = Lives()[:1]
			got := findings(t, p, Points(20))
			if len(got) == 0 {
				t.Fatalf("\n%s\nRun(...): no finding", tc.reason)
			}
			if f := got[0].finding; !f.has(Escaped) || !strings.Contains(fmt.Sprint(f.violations), tc.want) {
				t.Errorf("\n%s\nRun(...): want %s with %q, got %+v", tc.reason, Escaped, tc.want, f.violations)
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
				"No call to the external system was a step: use Process.Transport, Process.Step or Connector.",
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
			want: []string{"the provider is not at rest"},
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
			p.Lives = slices.DeleteFunc(Lives(), func(l Life) bool { return l.Name != tc.life })
			if tc.change != nil {
				tc.change(t, &p)
			}
			got := findings(t, p, Points(0))
			if len(got) != 1 {
				t.Fatalf("\n%s\nRun(...): want 1 finding, got %d", tc.reason, len(got))
			}
			text := fmt.Sprint(got[0].finding.violations)
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("\n%s\nRun(...): want %q in %s", tc.reason, want, text)
				}
			}
		})
	}
}

// TestSweep_Memory proves that lives that end well leave no steps in memory, unless another fault is
// added to them.
func TestSweep_Memory(t *testing.T) {
	p := vmProvider(t, graftNamed)
	p.Lives = Lives()[:1]
	s, err := newSweep(t, p, []Option{Points(12), Pairs(6)})
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	pairs := 0
	for _, r := range all {
		if len(r.point.at) < 2 {
			continue
		}
		pairs++
		if n := len(r.finding.steps); n > 0 {
			t.Errorf("%s: want no steps, got %d", r.point.name(), n)
		}
	}
	if pairs == 0 {
		t.Error("no life had two faults")
	}
}

func TestAskedFor(t *testing.T) {
	cases := map[string]struct {
		reason string
		point  string
		want   bool
	}{
		"Fault":      {"A life and a fault select the steps of all its points.", "create/crash-before/2", true},
		"OtherFault": {"Another fault is not led.", "create/crash-after/2", false},
	}
	match, err := matching("^create$/before")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := parsePoint(tc.point, Lives())
			if err != nil {
				t.Fatal(err)
			}
			if got := match(p); got != tc.want {
				t.Errorf("\n%s\nmatching(...)(%s): want %t, got %t", tc.reason, tc.point, tc.want, got)
			}
		})
	}
}

// TestAskedFor_Patterns proves that -run selects lives as the testing package selects tests.
func TestAskedFor_Patterns(t *testing.T) {
	cases := map[string]struct {
		reason string
		test   string
		run    string
		want   []string
	}{
		"None": {"Without -run all is led.", "TestA", "", nil},
		"Test": {"A test is led as a whole.", "TestA", "^TestA$", nil},
		"Replay": {
			"The printed command leads one life.", "TestA", "^TestA$/^create$/^late$/^4$",
			[]string{"^create$/^late$/^4$"},
		},
		"Subtest":   {"Names of subtests come first.", "TestA/x", "TestA/x/create", []string{"create"}},
		"OtherTest": {"A part of another test's pattern selects nothing here.", "TestB", "TestA/create|TestB", nil},
		"Alternative": {
			"Each alternative selects lives.", "TestA", "TestA/create|TestA/pause/late",
			[]string{"create", "pause/late"},
		},
		"Group": {"A group is one part.", "TestA", "Test(A|B)/(create|pause)", []string{"(create|pause)"}},
		"Class": {"A slash in a class is no separator.", "TestA", "Test[/A]/create", []string{"create"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, askedFor(tc.test, tc.run)); diff != "" {
				t.Errorf("\n%s\naskedFor(%q, %q): -want, +got:\n%s", tc.reason, tc.test, tc.run, diff)
			}
		})
	}
}

// After two failovers, each old process may have a call in flight when another one makes the
// last change.
func TestRun_CallsInFlightAtTheLastChange(t *testing.T) {
	p := plainProvider(t, func(*Process, *plain) {})
	p.Lives = slices.DeleteFunc(Lives(), func(l Life) bool { return l.Name != "delete" })
	for _, r := range findings(t, p, Points(1000)) {
		t.Errorf("A provider that is right should have no finding.\n%s: %v", r.point.name(), r.finding.violations)
	}
}

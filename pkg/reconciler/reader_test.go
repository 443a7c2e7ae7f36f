package reconciler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A kindReader answers by kind. Objects are there, and are being deleted.
type kindReader struct {
	// from is when kinds begin to answer: with an error if they, or an object, have one.
	from  map[string]time.Time
	errs  map[string]error
	reads map[string]int
}

func (r *kindReader) read(ctx context.Context, kind string) error {
	if r.reads == nil {
		r.reads = map[string]int{}
	}
	r.reads[kind]++
	select {
	case <-ctx.Done():
		if kind == "LateList" {
			return ctx.Err() // So says a client that waits for something else.
		}

		// So says controller-runtime's cache.
		return kerrors.NewTimeoutError("failed waiting for Informer to sync", 0)
	case <-time.After(time.Until(r.from[kind])):
		return r.errs[kind]
	}
}

func (r *kindReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.SetFinalizers([]string{"f"})
	o.SetOwnerReferences([]metav1.OwnerReference{{UID: "owner", Controller: ptr.To(true)}})
	o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if err := r.read(ctx, kind); err != nil {
		return err
	}
	return r.errs[kind+"/"+key.Name]
}

func (r *kindReader) List(ctx context.Context, l client.ObjectList, _ ...client.ListOption) error {
	return r.read(ctx, l.GetObjectKind().GroupVersionKind().Kind)
}

// neverAnswers returns when a kind begins to answer that never does.
func neverAnswers(kind string) map[string]time.Time {
	return map[string]time.Time{kind: time.Unix(1<<40, 0)}
}

func newOwner() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetUID("owner")
	return u
}

func kindOf(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
}

// Kinds that users make up are not remembered for ever.
func TestLateKindsAreForgotten(t *testing.T) {
	l := newLateKinds()
	for i := range 1000 {
		l.set(kindOf(fmt.Sprint(i)), errors.New("late"), time.Unix(int64(i), 0))
	}
	Wants(t, "", "kinds that are remembered, those of the last minute", 60, len(l.kinds))
}

// A kind that a cache never gets neither hides the others nor holds up each report.
func TestReportOfLateKinds(t *testing.T) {
	forbidden := kerrors.NewForbidden(schema.GroupResource{}, "n", errors.New("no"))
	missing := &kmeta.NoKindMatchError{GroupKind: kindOf("Late").GroupKind()}

	// A report has its duration, its message, and the number of reads from the API server
	// so far.
	type report struct {
		Took  time.Duration
		Says  string
		Asked int
	}

	// says is the same of the three that come first.
	says := func(what string) string {
		return fmt.Sprintf("0 of 4 dependents deleted, 0%%. Late/n%[1]s. Late/o%[1]s. Late/p%[1]s. And 1 more.", what)
	}
	noAnswer := says(": unknown: the API server did not answer")
	cases := map[string]struct {
		reason string
		live   *kindReader

		// listed is when the cache has the kind if it is being listed. back is whether
		// it has it in the third report. after is the time before that.
		listed time.Duration
		back   bool
		after  time.Duration
		want   []report
	}{
		"NoLiveReader": {
			reason: "It is waited for once.",
			want: []report{{
				Took:  time.Second,
				Says:  noAnswer,
				Asked: 0,
			}, {
				Took:  50 * time.Millisecond,
				Says:  noAnswer,
				Asked: 0,
			}, {Took: 50 * time.Millisecond, Says: noAnswer, Asked: 0}},
		},
		"Forbidden": {
			reason: "The API server says that it is forbidden, and is asked once a minute.",
			live:   &kindReader{errs: map[string]error{"Late": forbidden}}, after: time.Minute,
			want: []report{{
				Took:  time.Second,
				Says:  says(": unknown: forbidden"),
				Asked: 1,
			}, {
				Took:  50 * time.Millisecond,
				Says:  says(": unknown: forbidden"),
				Asked: 1,
			}, {Took: time.Second, Says: says(": unknown: forbidden"), Asked: 2}},
		},
		"NoSuchKind": {
			reason: "Or that there is no such kind.",
			live:   &kindReader{errs: map[string]error{"Late": missing}},
			back:   true,
			want: []report{
				{Took: time.Second, Says: says(": unknown: no such kind"), Asked: 1},
				{Took: 50 * time.Millisecond, Says: says(": unknown: no such kind"), Asked: 1},
				// It is there now, and no more said to be late.
				{Took: 0, Says: says(" since 1970-01-01T00:00:01Z: held by f"), Asked: 1},
				{Took: time.Second, Says: says(": unknown: no such kind"), Asked: 2},
			},
		},
		"Readable": {
			reason: "That it could be read from the API server itself is no answer: it would have to be asked each time. But the cache gets more time.",
			live:   &kindReader{},
			want: []report{{
				Took:  4 * time.Second,
				Says:  noAnswer,
				Asked: 1,
			}, {
				Took:  50 * time.Millisecond,
				Says:  noAnswer,
				Asked: 1,
			}, {Took: 50 * time.Millisecond, Says: noAnswer, Asked: 1}},
		},
		"BeingListed": {
			reason: "We should wait for a cache that is about to sync, so that the report is written once.",
			live:   &kindReader{}, listed: 3 * time.Second,
			want: []report{{
				Took:  3 * time.Second,
				Says:  "1 of 4 dependents deleted, 25%. Late/o since 1970-01-01T00:00:01Z: held by f. Late/p since 1970-01-01T00:00:01Z: held by f. There/n since 1970-01-01T00:00:01Z: held by f.",
				Asked: 1,
			}},
		},
		"NeitherAnswers": {
			reason: "An API server that doesn't answer either isn't waited for any longer.",
			live:   &kindReader{from: neverAnswers("Late")},
			want: []report{{
				Took:  2 * time.Second,
				Says:  noAnswer,
				Asked: 1,
			}, {
				Took:  50 * time.Millisecond,
				Says:  noAnswer,
				Asked: 1,
			}, {Took: 50 * time.Millisecond, Says: noAnswer, Asked: 1}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					list []Dependent
					live client.Reader
				)
				for _, n := range []string{"n", "o", "p"} {
					list = append(list, Dependent{
						GroupVersionKind: kindOf("Late"),
						NamespacedName:   types.NamespacedName{Name: n},
					})
				}
				list = append(list, Dependent{
					GroupVersionKind: kindOf("There"),
					NamespacedName:   types.NamespacedName{Name: "n"},
				})
				if tc.live != nil {
					live = tc.live
				}
				c, late := &kindReader{}, newLateKinds()
				lister := DependentListerFn(
					func(context.Context, client.Reader, client.Object) ([]Dependent, error) { return list, nil },
				)
				for i, want := range tc.want {
					if i == 2 {
						time.Sleep(tc.after) // In a bubble, which takes no time.
					}
					began := time.Now()
					if c.from = neverAnswers("Late"); tc.back && i == 2 {
						c.from = nil
					} else if tc.listed > 0 {
						c.from, c.errs = map[string]time.Time{
							"Late": began.Add(tc.listed),
						}, map[string]error{"Late/n": kerrors.NewNotFound(schema.GroupResource{}, "n")}
					}
					on := observe(
						context.Background(), newDependentReader(c, live, nil, &late, began), lister, newOwner(),
						look{},
					).on
					got := report{Took: time.Since(began), Says: on.summary()}
					if tc.live != nil {
						got.Asked = tc.live.reads["Late"]
					}
					Wants(t, tc.reason, fmt.Sprintf("report %d", i+1), want, got)
					Wants(
						t, tc.reason, fmt.Sprintf("reads of the other kind after report %d", i+1), i+1,
						c.reads["There"],
					)
				}
			})
		})
	}
}

// A list that takes all the time is used: its dependents are as an earlier look has read them.
func TestReportOfASlowLister(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	late := newLateKinds()
	a := Dependent{GroupVersionKind: kindOf("There"), NamespacedName: types.NamespacedName{Name: "a"}}
	b := Dependent{GroupVersionKind: kindOf("There"), NamespacedName: types.NamespacedName{Name: "b"}}
	lister := DependentListerFn(func(context.Context, client.Reader, client.Object) ([]Dependent, error) {
		cancel()
		return []Dependent{a, b}, nil
	})
	last := look{read: map[Dependent]*blocker{a.key(): nil, b.key(): {Dependent: b, why: "it still exists"}}}
	got := observe(ctx, newDependentReader(&kindReader{
		errs: map[string]error{"There": context.Canceled},
	}, nil, nil, &late, time.Now()), lister, newOwner(), last)
	Wants(t, "", "summary", "1 of 2 dependents deleted, 50%. There/b: it still exists.", got.on.summary())
	Wants(t, "The rest is read next.", "complete, slow", []bool{true, true}, []bool{got.complete, got.slow})
}

// Lists time out as reads of one object do.
func TestReportOfLateLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &kindReader{from: neverAnswers("LateList")}
		live := &kindReader{
			errs: map[string]error{"LateList": kerrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
		}
		late := newLateKinds()
		for i, want := range []time.Duration{time.Second, 50 * time.Millisecond} {
			began := time.Now()
			on := observe(
				context.Background(), newDependentReader(c, live, nil, &late, began),
				OwnedObjects(kindOf("Late"), kindOf("There")), &unstructured.Unstructured{}, look{},
			).on
			got := fmt.Sprint(time.Since(began), " ", on.summary(), " ", c.reads["ThereList"])
			Wants(
				t, "", fmt.Sprintf("report %d", i+1),
				fmt.Sprint(want, " Some dependents may be unknown: forbidden. ", i+1), got,
			)
		}
	})
}

// A caller with a shorter timeout doesn't make a kind late. Objects of Go types have no kind,
// so they don't make each other late.
func TestReportCutShort(t *testing.T) {
	for kind, wait := range map[string]time.Duration{"Late": time.Millisecond, "": 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			late, o := newLateKinds(), &metav1.PartialObjectMetadata{}
			if kind != "" {
				o.SetGroupVersionKind(kindOf(kind))
			}
			r := newDependentReader(&kindReader{from: neverAnswers(kind)}, nil, nil, &late, time.Now())
			for range 2 {
				ctx, cancel := context.WithTimeout(context.Background(), wait)
				began := time.Now()
				if err := r.Get(ctx, client.ObjectKey{}, o); !isLate(err) || time.Since(began) != wait {
					t.Errorf("want a timeout after %s, got %v after %s", wait, err, time.Since(began))
				}
				cancel()
			}
			Wants(t, "", "kinds known to be late", 0, len(late.kinds))
		})
	}
}

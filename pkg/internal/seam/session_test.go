package seam

import (
	stdcmp "cmp"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

var wants = testkit.ExpectEqual

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// bucket returns the object of the sessions in these tests, changed by fn.
func bucket(fn ...func(b *v1alpha1.Bucket)) *v1alpha1.Bucket {
	b := newBucket()
	b.UID, b.ResourceVersion = "uid", "7"
	b.Annotations, b.Finalizers = map[string]string{"k": "v"}, []string{"f"}
	b.Status.AtProvider.ID = "stored"
	for _, f := range fn {
		f(b)
	}
	return b
}

// sessionOf returns a session that has read base from the API server.
func sessionOf(base client.Object) *Session {
	s := &Session{
		turn:      make(chan struct{}, 1),
		key:       client.ObjectKeyFromObject(base),
		kind:      NewKind(testkit.BucketKind(), testkit.Scheme()),
		histories: &histories{store: &store.Store{}},
	}
	s.setBase(clone(base), true)
	s.nothingToStore(base)
	return s
}

func TestSessionTracks(t *testing.T) {
	other := func(kind schema.GroupVersionKind) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		u.SetName("b")
		u.SetNamespace("default")
		u.SetUID("uid")
		u.SetResourceVersion("8")
		return u
	}
	newer := func(b *v1alpha1.Bucket) { b.ResourceVersion = "8" }
	cases := map[string]struct {
		reason string
		s      *Session
		o      client.Object
		tracks bool
		moved  bool
	}{
		"Same": {
			reason: "The object as it was read is tracked.",
			s:      sessionOf(bucket()),
			o:      bucket(),
			tracks: true,
		},
		"Moved": {
			reason: "Another version of the object is tracked, and has moved.",
			s:      sessionOf(bucket()),
			o:      bucket(newer),
			tracks: true,
			moved:  true,
		},
		"OtherUID": {
			reason: "Another object of the same name is not tracked.",
			s:      sessionOf(bucket()),
			o:      bucket(newer, func(b *v1alpha1.Bucket) { b.UID = types.UID("other") }),
		},
		"OtherName": {
			reason: "An object of another name is not tracked.",
			s:      sessionOf(bucket()),
			o:      bucket(newer, func(b *v1alpha1.Bucket) { b.Name = "c" }),
		},
		"OtherNamespace": {
			reason: "An object of another namespace is not tracked.",
			s:      sessionOf(bucket()),
			o:      bucket(newer, func(b *v1alpha1.Bucket) { b.Namespace = "kube-system" }),
		},
		"OtherKind": {
			reason: "An object of another kind is not tracked.",
			s:      sessionOf(other(testkit.BucketKind())),
			o:      other(testkit.DatabaseKind()),
		},
		"OtherType": {
			reason: "Nor in another type.",
			s:      sessionOf(bucket()),
			o:      &v1alpha1.Database{ObjectMeta: bucket(newer).ObjectMeta},
		},
		"OtherForm": {
			reason: "The object in another form is not tracked.",
			s:      sessionOf(bucket()),
			o:      other(testkit.BucketKind()),
		},
		"NotRead": {
			reason: "Nothing is tracked before the object was read.",
			s:      &Session{key: client.ObjectKeyFromObject(bucket())},
			o:      bucket(newer),
		},
		"NoSession": {reason: "Without a session nothing is tracked.", o: bucket(newer)},
		"Gone": {
			reason: "An object that is gone has moved.",
			s:      func() *Session { s := sessionOf(bucket()); s.noteGone(); return s }(),
			o:      bucket(),
			tracks: true,
			moved:  true,
		},
		"GoneBeforeRead": {
			reason: "An object that was never found has moved.",
			s:      &Session{gone: true},
			o:      bucket(),
			moved:  true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "Tracks(...)", tc.tracks, tc.s.Tracks(tc.o))
			wants(t, tc.reason, "Moved(...)", tc.moved, tc.s.Moved(tc.o))
		})
	}
}

// TestKeepStatus shows that the status in memory survives a write with another client, unless
// another writer wrote status.
func TestKeepStatus(t *testing.T) {
	// Status, Version and Label of the object in memory, and the status of base.
	type want struct {
		Status, Version, Label, Base string
		Exact, Requeue               bool
	}
	cases := map[string]struct {
		reason  string
		read    string // The version that the object in memory started from.
		version string // Of the API server's answer.
		status  string
		also    func(o *v1alpha1.Bucket)
		err     error
		left    int // Annotations that are still to be stored.
		want    want
	}{
		"Patched": {
			reason:  "After a patch the object should be the API server's, as upstream's is, with the status in memory.",
			version: "8", status: "stored",
			also: func(o *v1alpha1.Bucket) { o.Finalizers, o.Labels = []string{"f", "g"}, nil },
			want: want{Status: "memory", Version: "8", Base: "stored", Exact: true},
		},
		"Updated": {
			reason:  "After an update the object is the API server's, with the status in memory.",
			version: "8", status: "stored",
			also: func(o *v1alpha1.Bucket) {
				o.Labels, o.Annotations["initialized"] = map[string]string{"l": "server"}, "true"
			},
			want: want{Status: "memory", Version: "8", Label: "server", Base: "stored", Exact: true},
		},
		"FailsLater": {
			reason: "The status in memory should survive if a second write failed.", version: "8", status: "stored",
			also: func(o *v1alpha1.Bucket) { o.Annotations["initialized"] = "true" }, err: context.Canceled, left: 1,
			want: want{Status: "memory", Version: "8", Label: "memory", Base: "stored", Exact: true},
		},
		"StatusOfAnotherWriter": {
			reason:  "The status of another writer wins, and the reconcile runs again.",
			version: "9",
			status:  "theirs",
			want:    want{Status: "theirs", Version: "9", Label: "memory", Base: "theirs", Requeue: true},
		},
		"StartedFromAnotherVersion": {
			reason:  "The status in memory cannot be told from another writer's.",
			read:    "6",
			version: "8",
			status:  "stored",
			want:    want{Status: "stored", Version: "8", Label: "memory", Base: "stored", Requeue: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sessionOf(bucket())
			o := bucket(func(b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID, b.Labels, b.ResourceVersion = "memory", map[string]string{
					"l": "memory",
				}, stdcmp.Or(tc.read, b.ResourceVersion)
			})
			wants(t, tc.reason, "error", tc.err, s.KeepStatus(o, func() error {
				wants(t, tc.reason, "status that fn sees", "stored", o.Status.AtProvider.ID)
				o.ResourceVersion, o.Status.AtProvider.ID = tc.version, tc.status
				if tc.also != nil {
					tc.also(o)
				}
				return tc.err
			}), cmpopts.EquateErrors())
			base, _ := s.base.(*v1alpha1.Bucket)
			got := want{
				Status:  o.Status.AtProvider.ID,
				Version: o.ResourceVersion, Label: o.Labels["l"], Base: base.Status.AtProvider.ID,
				Exact:   s.known,
				Requeue: s.requeue.decide(reconcile.Result{}).Requeue, //nolint:staticcheck // A requeue with backoff.
			}
			wants(t, tc.reason, "KeepStatus(...)", tc.want, got)
			wants(
				t, "What the API server answered is stored already.",
				"annotations to store, version that the session knows",
				[]any{tc.left, o.ResourceVersion},
				[]any{len(s.ChangedAnnotations(o)), s.base.GetResourceVersion()},
			)
		})
	}
	called := false
	must(t, "KeepStatus", (*Session)(nil).KeepStatus(bucket(), func() error { called = true; return nil }))
	wants(t, "Without a session it is just called.", "called", true, called)
}

// A status write that may have been done leaves the status of the API server unknown.
func TestDoubt(t *testing.T) {
	gr := schema.GroupResource{Resource: "buckets"}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Done":    {reason: "The API server answered.", err: nil},
		"TooMany": {reason: "The API server refused it for now.", err: kerrors.NewTooManyRequests("later", 1)},
		"Timeout": {
			reason: "The API server may have done it.",
			err:    kerrors.NewServerTimeout(gr, "patch", 1),
			want:   true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sessionOf(bucket())
			s.noteFailure(tc.err)
			wants(t, tc.reason, "exact, next read of the same version is fresh", []bool{!tc.want, !tc.want}, []bool{
				s.known, s.histories.get(bucket()).fresh("7"),
			})
		})
	}
	a, s := testkit.NewAPI(bucket()), sessionOf(bucket())
	a.Before = func(context.Context, testkit.Request) error { return cases["Timeout"].err }
	wants(t, "A patch of status is such a write.", "refused, exact", []bool{true, false},
		[]bool{
			NewClient(a.Client()).Status().Patch(
				context.WithValue(t.Context(), sessionKey{}, s), bucket(), statusPatch(),
			) != nil,
			s.known,
		})
}

// TestReadAfterFailedOpen shows that a patch which failed to open runs again at the next read.
func TestReadAfterFailedOpen(t *testing.T) {
	boom := errors.New("boom")
	opens, calls := 0, []error{boom, boom, nil}
	patch := Patch{Open: func(context.Context, *Session, client.Object) error {
		opens++
		return calls[opens-1]
	}}
	var got []error
	a := testkit.NewAPI(newBucket())
	r := over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
		for range 4 {
			got = append(got, c.Get(ctx, key(), newBucket()))
		}
		return nil
	}, patch)
	must(t, "Reconcile", run(t, r))
	wants(
		t, "A read that failed is no read.", "errors, calls of Open", []any{[]error{boom, boom, nil, nil}, 3},
		[]any{got, opens}, cmpopts.EquateErrors(),
	)
}

func withSession(
	a *testkit.API, o Options, fn func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error, p ...Patch,
) *Reconciler {
	return over(a.Client(), a, o, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		if err := c.Get(ctx, key(), b); err != nil {
			return err
		}
		return fn(ctx, From(ctx), b)
	}, p...)
}

func TestNoteDirectWrite_Deleted(t *testing.T) {
	s, now := sessionOf(bucket()), metav1.Now()
	s.NoteDirectWrite(bucket(func(b *v1alpha1.Bucket) { b.ResourceVersion, b.DeletionTimestamp = "8", &now }))
	wants(
		t, "A direct write that shows a deletion should be taken over.", "deleted", true, meta.WasDeleted(s.Base()),
	)
}

// A state that is not known to be complete stays so after a write of the whole object.
func TestUpdate_NotExact(t *testing.T) {
	a, exact := testkit.NewAPI(newBucket()), true
	must(t, "Reconcile", run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		read(ctx, t, c, b)
		From(ctx).known = false
		b.SetLabels(map[string]string{"l": "v"})
		err := c.Update(ctx, b)
		exact = From(ctx).known
		return err
	})))
	wants(t, "The API server's status should stay unknown.", "exact", false, exact)
}

func TestSetConditions_None(t *testing.T) {
	s := sessionOf(bucket())
	s.kind = kindOf(&corev1.ConfigMap{})
	o := &corev1.ConfigMap{}
	s.SetConditions(o, xpv2.Deleting())
	wants(t, "An object without conditions should stay unchanged.", "object", &corev1.ConfigMap{}, o)
}

func TestWriteConditions(t *testing.T) {
	busy, notFound := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1),
		kerrors.NewNotFound(schema.GroupResource{}, "b")
	type want struct {
		Waits    []string
		Patches  int
		Lives    int // Reads from the API server itself.
		Err      metav1.StatusReason
		NoStatus bool
	}
	cases := map[string]struct {
		reason string
		moves  bool  // Another writer writes before each patch.
		old    bool  // The object in memory is an older one.
		fails  error // What patches end in.
		wait   error
		live   error
		want   want
	}{
		"MovesAlways": {
			reason: "After five attempts the conflict is returned.",
			moves:  true,
			want: want{
				Waits:   []string{"20ms", "40ms", "80ms", "160ms"},
				Patches: 5,
				Lives:   5,
				Err:     metav1.StatusReasonConflict,
			},
		},
		"OlderObject": {
			reason: "An object that is older than the session's should stay old.",
			old:    true,
			want:   want{Patches: 1},
		},
		"NoTimeLeft": {
			reason: "If waiting fails, that error is returned.",
			moves:  true,
			wait:   kerrors.NewTimeoutError("stop", 0),
			want:   want{Waits: []string{"20ms"}, Patches: 1, Lives: 1, Err: metav1.StatusReasonTimeout},
		},
		"NoStatusSubresource": {
			reason: "If the object is there, it is its status that was not found.",
			fails:  notFound,
			want:   want{Patches: 1, Lives: 1, NoStatus: true},
		},
		"Invalid": {
			reason: "If the object has not moved, the API server refuses the condition itself.",
			fails:  kerrors.NewInvalid(schema.GroupKind{}, "b", nil),
			want:   want{Patches: 1, Lives: 1, Err: metav1.StatusReasonInvalid},
		},
		"OtherError": {
			reason: "Another error is returned at once: the next reconcile tries again.",
			fails:  busy,
			want:   want{Patches: 1, Err: metav1.StatusReasonServerTimeout},
		},
		"NoLiveRead": {
			reason: "If the live read fails, its error is returned.",
			fails:  notFound,
			live:   busy,
			want:   want{Patches: 1, Lives: 1, Err: metav1.StatusReasonServerTimeout},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			var got want
			a.Before = func(ctx context.Context, r testkit.Request) error {
				switch {
				case r.Verb == testkit.LiveGet:
					got.Lives++
					return tc.live
				case r.Verb != testkit.StatusPatch:
					return nil
				}
				if got.Patches++; tc.moves {
					must(t, "another writer", annotate(ctx, a.Server(), "other", strconv.Itoa(got.Patches)))
				}
				return tc.fails
			}
			wait := func(_ context.Context, d time.Duration) error {
				got.Waits = append(got.Waits, d.String())
				return tc.wait
			}
			must(
				t, "Reconcile",
				run(
					t,
					withSession(
						a, Options{Wait: wait},
						func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
							if tc.old {
								b.SetResourceVersion("0")
							}
							err := s.WriteConditions(
								ctx, b,
								func(client.Object) []xpv2.Condition { return []xpv2.Condition{xpv2.Deleting()} },
							)
							wants(t, tc.reason, "older", tc.old, b.GetResourceVersion() == "0")
							got.NoStatus, got.Err = errors.Is(err, ErrNoStatus), kerrors.ReasonForError(err)
							return nil
						},
					),
				),
			)
			wants(t, tc.reason, "WriteConditions(...)", tc.want, got)
		})
	}
}

// A cache that takes the place of a live reader may return a state that is older than the
// last write.
func TestRefresh(t *testing.T) {
	for version, exact := range map[string]bool{"8": false, "9": true} {
		s, b := sessionOf(bucket()), bucket()
		s.histories.noteWrite(bucket(func(b *v1alpha1.Bucket) { b.ResourceVersion = "9" }))
		s.setBase(bucket(func(b *v1alpha1.Bucket) { b.ResourceVersion = version }), false)
		s.Refresh(b)
		wants(t, "", "version, exact", []any{version, exact}, []any{b.GetResourceVersion(), s.known})
	}
}

func TestChangesLeft(t *testing.T) {
	theirs, remove := map[string]string{"k": "theirs"}, Change{Key: "k", Remove: true, Was: "old", Existed: true}
	cases := map[string]struct {
		reason    string
		live      map[string]string
		change    Change
		left      bool
		overruled bool
	}{
		"MissingAndEmpty": {
			reason: "An empty value is not the same as no annotation.",
			change: Change{Key: "k"},
			left:   true,
		},
		"Stored": {
			reason: "An annotation with the value is stored.",
			live:   map[string]string{"k": "v"},
			change: Change{Key: "k", Value: "v"},
		},
		"SetByAnotherWriter": {
			reason:    "Another value is a conflict.",
			live:      theirs,
			change:    Change{Key: "k", Value: "v"},
			overruled: true,
		},
		"Record": {
			reason:    "The record of another process should never be replaced.",
			live:      map[string]string{AnnotationKeyRecord: "theirs"},
			change:    Change{Key: AnnotationKeyRecord, Value: "v"},
			overruled: true,
		},
		"RecordRemoved": {
			reason:    "A record that another writer removed should not be set again.",
			change:    Change{Key: AnnotationKeyRecord, Value: "v", Was: "old", Existed: true},
			overruled: true,
		},
		"Announcement": {
			reason:    "The announcement of another create should never be replaced.",
			live:      map[string]string{meta.AnnotationKeyExternalCreatePending: "theirs"},
			change:    Change{Key: meta.AnnotationKeyExternalCreatePending, Value: "v"},
			overruled: true,
		},
		"AnnouncementUnchanged": {
			reason: "Changes about an announced create should meet a conflict, too, if another create is announced after this read.",
			live:   map[string]string{meta.AnnotationKeyExternalCreatePending: "v"},
			change: Change{Key: meta.AnnotationKeyExternalCreatePending, Value: "v", Was: "v", Existed: true},
			left:   true,
		},
		"SetToNothing": {
			reason:    "An empty value that another writer set is a conflict, too.",
			live:      map[string]string{"k": ""},
			change:    Change{Key: "k", Value: "v"},
			overruled: true,
		},
		"Removed": {reason: "An annotation that is not there needs no removal.", change: remove},
		"Remove": {
			reason: "An annotation that still has its earlier value is left to remove.",
			live:   map[string]string{"k": "old"},
			change: remove,
			left:   true,
		},
		"RemoveEmpty": {
			reason: "Also if that is empty.",
			live:   map[string]string{"k": ""},
			change: Change{Key: "k", Remove: true, Existed: true},
			left:   true,
		},
		"RemoveAnotherValue": {
			reason:    "An annotation that another writer set is not removed.",
			live:      theirs,
			change:    remove,
			overruled: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := newBucket()
			live.SetAnnotations(tc.live)

			// The second is stored in any case.
			meta.AddAnnotations(live, map[string]string{"a": "1"})
			other, name := Change{Key: "b", Value: "2"}, Change{Key: meta.AnnotationKeyExternalName, Value: "n"}
			want := Changes{other, name}
			switch {
			case tc.left:
				want = Changes{tc.change, other, name}
			case tc.overruled && tc.change.yields():
				want = nil // A name goes with what it yields to.
			case tc.overruled:
				want = Changes{name}
			}
			rule := Observed
			if tc.change.yields() {
				rule = Result
			}
			left, err := Changes{tc.change, {Key: "a", Value: "1"}, other, name}.Left(live, rule, nil)
			wants(t, tc.reason, "left, overruled, conflict", []any{want, tc.overruled, tc.overruled}, []any{
				left, IsOverruled(err), kerrors.IsConflict(err),
			})
		})
	}
}

func TestChangesLeft_UnchangedAlone(t *testing.T) {
	live := newBucket()
	meta.AddAnnotations(live, map[string]string{meta.AnnotationKeyExternalCreatePending: "v", "a": "1"})
	left, err := Changes{
		{Key: meta.AnnotationKeyExternalCreatePending, Value: "v", Was: "v", Existed: true}, {Key: "a", Value: "1"},
	}.Left(live, Result, nil)
	wants(t, "Nothing should be written when all is stored.", "left, error", []any{0, nil}, []any{len(left), err})
}

// TestWriterStore shows how often a Writer retries, and that it starts from the live object.
func TestWriterStore(t *testing.T) {
	busy := kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
	type want struct {
		Waits   []string
		Patches int
		Lives   int // Reads from the API server itself.
		Stored  string
		Err     metav1.StatusReason
	}
	cases := map[string]struct {
		reason string
		fails  error                                            // What patches end in.
		before func(ctx context.Context, c client.Client) error // What another writer does first.
		rule   Rule
		tries  int
		wait   error
		want   want
	}{
		"Attempts": {
			reason: "A writer should make as many attempts as it is given, at most five seconds apart.",
			fails:  busy,
			tries:  resultAttempts,
			want: want{
				Waits:   []string{"50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s", "5s", "5s"},
				Patches: 12, Err: metav1.StatusReasonServerTimeout,
			},
		},
		"NoTimeLeft": {
			reason: "If waiting fails, the API server's error is returned.",
			fails:  busy,
			wait:   errors.New("stop"),
			want:   want{Waits: []string{"50ms"}, Patches: 1, Err: metav1.StatusReasonServerTimeout},
		},
		"ConflictWithoutChange": {
			reason: "A conflict should be retried although the API server still has the same version.",
			fails:  kerrors.NewConflict(schema.GroupResource{}, "b", errors.New("cache of the API server")),
			tries:  2,
			want:   want{Waits: []string{"50ms"}, Patches: 2, Lives: 2, Err: metav1.StatusReasonConflict},
		},
		"MovedThere": {
			reason: "If another writer stored the same, there is nothing left to write.",
			before: annotates("k", "v"),
			want:   want{Patches: 1, Lives: 1, Stored: "v"},
		},
		"Overruled": {
			reason: "Another value is a conflict, and stays.",
			before: annotates("k", "theirs"),
			want:   want{Patches: 1, Lives: 1, Stored: "theirs", Err: metav1.StatusReasonConflict},
		},
		"Decided": {
			reason: "A decision should not be stored for an object that has changed since.",
			before: annotates("other", "x"),
			rule:   Decided,
			want:   want{Patches: 1, Err: metav1.StatusReasonConflict},
		},
		"DecidedGone": {
			reason: "A decision should report that the object no longer exists.",
			before: removes,
			rule:   Decided,
			want:   want{Patches: 1, Err: metav1.StatusReasonNotFound},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, a := context.Background(), testkit.NewAPI(newBucket())
			current := stored(t, a)
			if tc.before != nil {
				must(t, "another writer", tc.before(ctx, a.Server()))
			}
			a.Before = func(_ context.Context, r testkit.Request) error {
				if r.Verb == testkit.Patch {
					return tc.fails
				}
				return nil
			}
			var got want
			w := Writer{
				Client:   a.Client(),
				Live:     a.Live(),
				Attempts: tc.tries,
				Wait: func(_ context.Context, d time.Duration) error {
					got.Waits = append(got.Waits, d.String())
					return tc.wait
				},
			}
			server, _, err := w.Store(ctx, current, Changes{{Key: "k", Value: "v"}}, tc.rule, nil)
			live := stored(t, a)
			got.Patches, got.Lives, got.Stored, got.Err = a.Count(testkit.Patch), a.Count(testkit.LiveGet),
				live.GetAnnotations()["k"], kerrors.ReasonForError(err)
			if server != nil {
				wants(
					t, tc.reason, "version of what is returned", live.GetResourceVersion(),
					server.GetResourceVersion(),
				)
			}
			wants(t, tc.reason, "Store(...)", tc.want, got)
		})
	}
}

// A provider that may not patch reads the object before it updates it.
func TestWriterStore_CannotRead(t *testing.T) {
	a := testkit.NewAPI(newBucket())
	current := stored(t, a)
	a.Before = func(_ context.Context, r testkit.Request) error {
		switch r.Verb {
		case testkit.Patch:
			return kerrors.NewForbidden(schema.GroupResource{}, "b", nil)
		case testkit.LiveGet:
			return kerrors.NewTimeoutError("late", 1)
		}
		return nil
	}
	w := Writer{
		Client: a.Client(), Live: a.Live(), Attempts: 1,
		Wait: func(context.Context, time.Duration) error { return nil },
	}
	_, _, err := w.Store(t.Context(), current, Changes{{Key: "k", Value: "v"}}, Observed, nil)
	wants(
		t, "A read that failed should not mean that the object no longer exists.", "error",
		metav1.StatusReasonTimeout, kerrors.ReasonForError(err),
	)
}

// TestStoreAnnotations shows that the next reconcile stores pending annotations before it does
// anything else.
func TestStoreAnnotations(t *testing.T) {
	type want struct {
		err       metav1.StatusReason // Of storing.
		next      metav1.StatusReason // Of the next reconcile.
		seen      string              // By the next reconcile, if it got past its first read.
		stored    string
		overwrote []string
	}
	timeout := metav1.StatusReasonServerTimeout
	cases := map[string]struct {
		reason string
		rule   Rule
		old    bool // The object in memory has an older version, and the API server is well.
		again  bool // Storing fails in the next reconcile, too.
		theirs bool // Another writer sets it before that.
		want   want

		// result says that storing a result fails first, and that a write of the whole object
		// stores it then.
		result bool
	}{
		"FailedAgain": {
			reason: "The next reconcile does nothing unless it can store it.",
			again:  true,
			want:   want{err: timeout, next: timeout},
		},
		"Overruled": {
			reason: "The value of another writer is a conflict once, and then stays.",
			theirs: true,
			want:   want{err: timeout, next: metav1.StatusReasonConflict, stored: "theirs"},
		},
		"Result": {
			reason: "A result should replace the value of another writer, also in the next reconcile.",
			rule:   Result,
			theirs: true,
			want:   want{err: timeout, seen: "v", stored: "v", overwrote: []string{"k: theirs, v"}},
		},
		"ResultUntilStored": {
			reason: "A result should replace other values until it is stored, and no longer.",
			result: true,
			theirs: true,
			want:   want{err: timeout, next: metav1.StatusReasonConflict, stored: "theirs"},
		},
		"OlderObject": {
			reason: "The API server judges by the version of the object in memory.",
			rule:   Decided,
			old:    true,
			want:   want{err: metav1.StatusReasonConflict},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := testkit.NewAPI(newBucket())
			must(t, "Update", annotate(context.Background(), a.Server(), "other", "x"))
			var got want
			fails, first := !tc.old, true
			a.Before = func(_ context.Context, r testkit.Request) error {
				if fails && r.Verb == testkit.Patch {
					return kerrors.NewServerTimeout(schema.GroupResource{}, "patch", 1)
				}
				return nil
			}
			r := withSession(a, Options{}, func(ctx context.Context, s *Session, b *v1alpha1.Bucket) error {
				if tc.result {
					tc.result = false
					_ = s.StoreAnnotations(ctx, b, Changes{{Key: "created", Value: "v"}}, Result, nil)
					meta.AddAnnotations(b, map[string]string{"created": "v"})
					return NewClient(a.Client()).Update(ctx, b)
				}
				if !first {
					got.seen = b.GetAnnotations()["k"]
					return nil
				}
				first = false
				if tc.old {
					b.SetResourceVersion("1")
				}
				got.err = kerrors.ReasonForError(s.StoreAnnotations(
					ctx, b, Changes{{Key: "k", Value: "v"}}, tc.rule, nil,
				))
				return nil
			}, PendingAnnotations(func(_ client.Object, key, theirs, ours string) {
				got.overwrote = append(got.overwrote, key+": "+theirs+", "+ours)
			}))
			if tc.result {
				must(t, "Reconcile before", run(t, r))
			}
			must(t, "Reconcile", run(t, r))
			if tc.theirs {
				must(t, "another writer", annotate(context.Background(), a.Server(), "k", "theirs"))
			}
			fails = tc.again
			got.next, got.stored = kerrors.ReasonForError(run(t, r)), stored(t, a).GetAnnotations()["k"]
			wants(t, tc.reason, "", tc.want, got, cmp.AllowUnexported(want{}))
		})
	}
}

func annotate(ctx context.Context, c client.Client, k, v string) error {
	o := newBucket()
	if err := c.Get(ctx, key(), o); err != nil {
		return err
	}
	o.SetAnnotations(map[string]string{k: v})
	return c.Update(ctx, o)
}

func annotates(k, v string) func(ctx context.Context, c client.Client) error {
	return func(ctx context.Context, c client.Client) error { return annotate(ctx, c, k, v) }
}

func removes(ctx context.Context, c client.Client) error { return c.Delete(ctx, newBucket()) }

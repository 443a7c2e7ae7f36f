package seam

import (
	stdcmp "cmp"
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func wants(t *testing.T, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}

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

// sessionOf returns a session that has read base, all of which the API server has.
func sessionOf(base client.Object) *Session {
	s := &Session{
		key:    client.ObjectKeyFromObject(base),
		kind:   NewKind(testkit.BucketKind(), testkit.Scheme()),
		memory: NewMemory(),
	}
	s.rebase(clone(base), true)
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
		"Same":           {reason: "The object as it was read is tracked.", s: sessionOf(bucket()), o: bucket(), tracks: true},
		"Moved":          {reason: "Another version of the object is tracked, and has moved.", s: sessionOf(bucket()), o: bucket(newer), tracks: true, moved: true},
		"OtherUID":       {reason: "Another object of the same name is not tracked.", s: sessionOf(bucket()), o: bucket(newer, func(b *v1alpha1.Bucket) { b.UID = types.UID("other") })},
		"OtherName":      {reason: "An object of another name is not tracked.", s: sessionOf(bucket()), o: bucket(newer, func(b *v1alpha1.Bucket) { b.Name = "c" })},
		"OtherNamespace": {reason: "An object of another namespace is not tracked.", s: sessionOf(bucket()), o: bucket(newer, func(b *v1alpha1.Bucket) { b.Namespace = "kube-system" })},
		"OtherKind":      {reason: "An object of another kind is not tracked.", s: sessionOf(other(testkit.BucketKind())), o: other(testkit.DatabaseKind())},
		"OtherForm":      {reason: "The object in another form is not tracked.", s: sessionOf(bucket()), o: other(testkit.BucketKind())},
		"NotRead":        {reason: "Nothing is tracked before the object was read.", s: &Session{key: client.ObjectKeyFromObject(bucket())}, o: bucket(newer)},
		"NoSession":      {reason: "Without a session nothing is tracked.", o: bucket(newer)},
		"Gone":           {reason: "An object that is gone has moved.", s: func() *Session { s := sessionOf(bucket()); s.ended(); return s }(), o: bucket(), tracks: true, moved: true},
		"GoneBeforeRead": {reason: "An object that was never found has moved.", s: &Session{gone: true}, o: bucket(), moved: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "Tracks(...)", tc.tracks, tc.s.Tracks(tc.o))
			wants(t, tc.reason, "Moved(...)", tc.moved, tc.s.Moved(tc.o))
		})
	}
}

func TestOnlyAnnotationsDiffer(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(b *v1alpha1.Bucket)
		want   bool
	}{
		"Nothing":        {reason: "An equal object differs in nothing else.", change: func(*v1alpha1.Bucket) {}, want: true},
		"Added":          {reason: "An annotation was added.", change: func(b *v1alpha1.Bucket) { b.Annotations["a"] = "b" }, want: true},
		"Changed":        {reason: "An annotation was changed.", change: func(b *v1alpha1.Bucket) { b.Annotations["k"] = "b" }, want: true},
		"Removed":        {reason: "Storing annotations does not remove one.", change: func(b *v1alpha1.Bucket) { delete(b.Annotations, "k") }},
		"Renamed":        {reason: "Storing annotations does not remove one, whatever was added.", change: func(b *v1alpha1.Bucket) { b.Annotations = map[string]string{"a": "b"} }},
		"Status":         {reason: "Status is written by a request of its own.", change: func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "x" }, want: true},
		"Version":        {reason: "Versions are the API server's.", change: func(b *v1alpha1.Bucket) { b.ResourceVersion = "9" }, want: true},
		"Labels":         {reason: "Labels differ.", change: func(b *v1alpha1.Bucket) { b.Labels = map[string]string{"a": "b"} }},
		"Finalizers":     {reason: "Finalizers differ.", change: func(b *v1alpha1.Bucket) { b.Finalizers = nil }},
		"AnotherObject":  {reason: "Another object is not known.", change: func(b *v1alpha1.Bucket) { b.UID = "other" }},
		"AnnotationsNil": {reason: "All annotations are removed.", change: func(b *v1alpha1.Bucket) { b.Annotations = nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sessionOf(bucket())
			wants(t, tc.reason, "OnlyAnnotationsDiffer(...)", tc.want, s.OnlyAnnotationsDiffer(bucket(tc.change)))
		})
	}
}

// The status in memory survives what another client decodes into the object, unless
// another writer wrote status.
func TestKeepStatus(t *testing.T) {
	// Of the object in memory, and what the API server is known to have.
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
		want    want
	}{
		"Patched": {
			reason: "After a patch of finalizers all that is in memory stays.", version: "8", status: "stored",
			also: func(o *v1alpha1.Bucket) { o.Finalizers, o.Labels = []string{"f", "g"}, nil },
			want: want{Status: "memory", Version: "8", Label: "memory", Base: "stored", Exact: true},
		},
		"Updated": {
			reason: "After an update the object is the API server's, with the status in memory.", version: "8", status: "stored",
			also: func(o *v1alpha1.Bucket) {
				o.Labels, o.Annotations["initialized"] = map[string]string{"l": "server"}, "true"
			},
			want: want{Status: "memory", Version: "8", Label: "server", Base: "stored", Exact: true},
		},
		"StatusOfAnotherWriter":     {reason: "The status of another writer wins, and the reconcile runs again.", version: "9", status: "theirs", want: want{Status: "theirs", Version: "9", Label: "memory", Base: "theirs", Requeue: true}},
		"StartedFromAnotherVersion": {reason: "What is in memory can't be told from what another writer wrote.", read: "6", version: "8", status: "stored", want: want{Status: "stored", Version: "8", Label: "memory", Base: "stored", Requeue: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sessionOf(bucket())
			o := bucket(func(b *v1alpha1.Bucket) {
				b.Status.AtProvider.ID, b.Labels, b.ResourceVersion = "memory", map[string]string{"l": "memory"}, stdcmp.Or(tc.read, b.ResourceVersion)
			})
			must(t, "KeepStatus", s.KeepStatus(o, func() error {
				wants(t, tc.reason, "status that fn sees", "stored", o.Status.AtProvider.ID)
				o.ResourceVersion, o.Status.AtProvider.ID = tc.version, tc.status
				if tc.also != nil {
					tc.also(o)
				}
				return nil
			}))
			base, _ := s.base.(*v1alpha1.Bucket)
			got := want{
				Status: o.Status.AtProvider.ID, Version: o.ResourceVersion, Label: o.Labels["l"], Base: base.Status.AtProvider.ID,
				Exact: s.exact, Requeue: s.requeue.decide(reconcile.Result{}).Requeue, //nolint:staticcheck // A requeue with backoff.
			}
			wants(t, tc.reason, "KeepStatus(...)", tc.want, got)
			wants(t, "What the API server answered is stored already.", "annotations to store, version that the session knows",
				[]any{0, o.ResourceVersion}, []any{len(s.ChangedAnnotations(o)), s.base.GetResourceVersion()})
		})
	}
}

// A status write that may have been done leaves the status of the API server unknown.
func TestDoubt(t *testing.T) {
	gr := schema.GroupResource{Resource: "buckets"}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Done":      {reason: "The API server answered.", err: nil},
		"Conflict":  {reason: "The API server refused it.", err: kerrors.NewConflict(gr, "b", nil)},
		"TooMany":   {reason: "The API server refused it for now.", err: kerrors.NewTooManyRequests("later", 1)},
		"Forbidden": {reason: "The API server refused it for good.", err: kerrors.NewForbidden(gr, "b", nil)},
		"Timeout":   {reason: "The API server may have done it.", err: kerrors.NewServerTimeout(gr, "patch", 1), want: true},
		"NoAnswer":  {reason: "The API server may have done it.", err: context.DeadlineExceeded, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := sessionOf(bucket())
			s.doubt(bucket(), tc.err)
			wants(t, tc.reason, "exact, next read of the same version is fresh", []bool{!tc.want, !tc.want}, []bool{s.exact, s.memory.get(bucket()).fresh("7")})
		})
	}
}

// What a patch has to do before the inner reconciler sees the object is done, whenever
// that reads it.
func TestReadAfterFailedOpen(t *testing.T) {
	boom := errors.New("boom")
	opens, calls := 0, []error{boom, boom, nil}
	patch := Patch{Open: func(context.Context, *Session, client.Object) error {
		opens++
		return calls[opens-1]
	}}
	var got []error
	r := NewReconciler(testkit.NewAPI(newBucket()).Client(), NewKind(testkit.BucketKind(), testkit.Scheme()), func(c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			for range 4 {
				got = append(got, c.Get(ctx, key(), newBucket()))
			}
			return reconcile.Result{}, nil
		})
	}, Options{}, patch)
	must(t, "Reconcile", run(t, r))
	wants(t, "A read that failed is no read.", "errors, calls of Open", []any{[]error{boom, boom, nil, nil}, 3}, []any{got, opens}, cmpopts.EquateErrors())
}

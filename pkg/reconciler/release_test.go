package reconciler_test

import (
	"context"
	"encoding/json"
	stderrors "errors"
	"flag"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	ours    = "finalizer.managedresource.crossplane.io"
	foreign = "example.org/foreign"

	readPatch      = `patch {"metadata":{"uid":"uid-1"}}`
	pausePatch     = `patch {"metadata":{"annotations":{"crossplane.io/paused":"true"},"uid":"uid-1"}}`
	deleteOrphan   = `delete Orphan`
	removeAll      = `update finalizers to []`
	deletionPatch  = `{"op":"test","path":"/spec/deletionPolicy","value":"Delete"},{"op":"replace","path":"/spec/deletionPolicy","value":"Orphan"}`
	finalizerPatch = `patch [{"op":"test","path":"/metadata/uid","value":"uid-1"},{"op":"test","path":"/metadata/finalizers","value":[%s]},{"op":"replace","path":"/metadata/finalizers","value":[%s]}]`
)

func removePatch(from, to []string) string {
	q := func(l []string) string { return `"` + strings.Join(l, `","`) + `"` }
	return fmt.Sprintf(finalizerPatch, q(from), q(to))
}

func replacePatch(from, to, more string) string {
	return fmt.Sprintf(
		`patch [{"op":"test","path":"/metadata/uid","value":"uid-1"},%s{"op":"test","path":"/spec/managementPolicies","value":[%s]},{"op":"replace","path":"/spec/managementPolicies","value":[%s]}]`,
		more, from, to,
	)
}

// newThing returns an object of no kind in particular, without a UID.
func newThing(mods ...func(o *unstructured.Unstructured)) *unstructured.Unstructured {
	return modify(
		modify(newObject(claims, "default", "a"), withAnnotation("example.org/theirs", "kept"), withFinalizers(ours)),
		mods...,
	)
}

func withPolicies(ps ...any) func(o *unstructured.Unstructured) {
	return withField(fieldPath("spec", "managementPolicies"), ps)
}

// withRunningOperation adds the record of an operation that runs.
func withRunningOperation(o *unstructured.Unstructured) {
	had := o.GetUID()
	if had == "" {
		o.SetUID("uid-1") // The one that it will get.
	}
	r := creation.NewRecord(o, creation.Create, "process-1", "token-1", time.Now(), time.Hour)
	o.SetUID(had)
	withAnnotation(creation.AnnotationKeyRecord, r.Text())(o)
}

// changeOperation changes the record of an object.
func changeOperation(fn func(r *creation.Record)) func(o *unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		r := &creation.Record{}
		if err := json.Unmarshal([]byte(o.GetAnnotations()[creation.AnnotationKeyRecord]), r); err != nil {
			panic(err)
		}
		fn(r)
		withAnnotation(creation.AnnotationKeyRecord, r.Text())(o)
	}
}

// withResumableOperation makes the operation one that was interrupted by the end of its process, and has a handle.
func withResumableOperation(o *unstructured.Unstructured) {
	changeOperation(func(r *creation.Record) {
		now := metav1.Now()
		r.Phase, r.Abandoned, r.Handle, r.Ended = creation.RecordUnknown, true, "op-1", &now
	})(o)
}

func withDeletionPolicy(p string) func(o *unstructured.Unstructured) {
	return withField(fieldPath("spec", "deletionPolicy"), p)
}

// patiently collects garbage, and gives up at a limit that no release comes near.
func (r *registry) patiently(ctx context.Context, _ time.Duration) error {
	if len(r.requests) > 100 {
		return errors.New("too many requests")
	}
	r.collectGarbage()
	return ctx.Err()
}

func (r *registry) release(
	ctx context.Context, o client.Object, opts ...reconciler.ReleaseOption,
) (reconciler.Released, error) {
	opts = append([]reconciler.ReleaseOption{reconciler.ReleaseWithWait(r.patiently)}, opts...)
	return reconciler.Release(ctx, r, o, r.released, opts...)
}

func (r *registry) check(t *testing.T, reason string) {
	t.Helper()
	expectEqual(t, reason, "what it may not do", []string(nil), r.broken)
}

func TestRelease(t *testing.T) {
	paused := withAnnotation(meta.AnnotationKeyReconciliationPaused, "true")
	background := []reconciler.ReleaseOption{reconciler.WithPropagation(metav1.DeletePropagationBackground)}
	orphans := removePatch([]string{ours, gcOrphan}, []string{gcOrphan})
	ofThree := removePatch([]string{ours, foreign, gcOrphan}, []string{foreign, gcOrphan})
	mayDeleteNoMore := replacePatch(`"*"`, `"Observe","Create","Update","LateInitialize"`, "")
	gone := reconciler.Released{Gone: true}
	heldBy := func(fs ...string) reconciler.Released { return reconciler.Released{Holding: fs} }
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		opts   []reconciler.ReleaseOption

		// before has the writes of another client before the nth request.
		before   func(r *registry, n int)
		want     reconciler.Released
		requests []string
	}{
		"Legacy": {
			reason: "Both policies of a legacy managed resource should rule out external deletion, whichever its provider heeds.",
			object: newThing(withDeletionPolicy("Delete"), withPolicies("*")), opts: background, want: gone,
			requests: []string{
				readPatch, replacePatch(`"*"`, `"Observe","Create","Update","LateInitialize"`, deletionPatch+","),
				pausePatch, "delete Background", readPatch, removeAll,
			},
		},
		"DeletedAlready": {
			reason: "The release of an object that is being deleted should rule out external deletion too, and go on from there.",
			object: newThing(withDeletionPolicy("Delete"), withFinalizers(ours, foreign), withDeletionTimestamp),
			want:   heldBy(foreign, gcOrphan),
			requests: []string{
				readPatch, `patch [{"op":"test","path":"/metadata/uid","value":"uid-1"},` + deletionPatch + `]`,
				pausePatch, deleteOrphan, readPatch, ofThree,
			},
		},
		"ReleasedAlready": {
			reason: "Nothing should be written for an object that was released before.",
			object: newThing(
				withDeletionPolicy("Orphan"), withPolicies("Observe"), withFinalizers(foreign), paused,
				withDeletionTimestamp,
			),
			want: heldBy(foreign), requests: []string{readPatch},
		},
		"BeingOrphaned": {
			reason: "The garbage collector should not be asked twice.",
			object: newThing(withFinalizers(ours, gcOrphan), paused, withDeletionTimestamp), want: gone,
			requests: []string{readPatch, orphans, readPatch},
		},
		"DeletedInTheBackground": {
			reason: "The garbage collector should orphan the owned objects although another client deleted the owner in the background.",
			object: newThing(withFinalizers(ours), paused, withDeletionTimestamp), want: gone,
			requests: []string{readPatch, deleteOrphan, readPatch, orphans, readPatch},
		},
		"Foreground": {
			reason: "We should not wait for the garbage collector to delete the owned objects: that may take for ever.",
			object: newThing(),
			opts:   []reconciler.ReleaseOption{reconciler.WithPropagation(metav1.DeletePropagationForeground)},
			want:   heldBy(gcForeground),
			requests: []string{
				readPatch, pausePatch, "delete Foreground", readPatch,
				removePatch([]string{ours, gcForeground}, []string{gcForeground}),
			},
		},
		"GracePeriod": {
			reason: "An object that is deleted with a grace period should not be said to be gone.",
			object: newThing(
				paused, withDeletionTimestamp,
				withField(fieldPath("metadata", "deletionGracePeriodSeconds"), int64(30)),
			),
			opts: background, requests: []string{readPatch, removeAll},
		},
		"PoliciesAreApplied": {
			reason: "A policy that has changed since it was read is read again, each time.",
			object: newThing(withPolicies("*")), want: gone,
			before: func(r *registry, n int) {
				if ps, ok := map[int][]any{1: {"Observe", "Delete"}, 3: {"*"}}[n]; ok {
					r.update(withPolicies(ps...))
				}
			},
			requests: []string{
				readPatch, mayDeleteNoMore, readPatch, replacePatch(`"Observe","Delete"`, `"Observe"`, ""),
				readPatch, mayDeleteNoMore, pausePatch, deleteOrphan, readPatch, orphans, readPatch,
			},
		},
		"ForeignFinalizerIsRemoved": {
			reason: "The garbage collector should not be asked again after it has orphaned the owned objects.",
			object: newThing(withFinalizers(ours, foreign)), want: gone,
			before: func(r *registry, n int) {
				if n == 4 {
					r.update(withFinalizers(ours, gcOrphan))
				}
			},
			requests: []string{readPatch, pausePatch, deleteOrphan, readPatch, ofThree, readPatch, removeAll},
		},
		"Annotated": {
			reason: "Writing something else all the time should not keep it from being deleted.",
			object: newThing(), want: gone,
			before: func(r *registry, n int) { r.update(withAnnotation("example.org/beat", fmt.Sprint(n))) },
			requests: slices.Concat([]string{readPatch, pausePatch, deleteOrphan},
				slices.Repeat([]string{readPatch, deleteOrphan}, 5), []string{readPatch, orphans, readPatch}),
		},
		"ReplacedAtLast": {
			reason: "One that is to be deleted at any version in the end, and is then replaced, is not the one to delete.",
			object: newThing(), want: gone,
			before: func(r *registry, n int) {
				if r.update(withAnnotation("example.org/beat", fmt.Sprint(n))); n == 12 {
					r.replace(newThing())
				}
			},
			requests: slices.Concat([]string{readPatch, pausePatch, deleteOrphan},
				slices.Repeat([]string{readPatch, deleteOrphan}, 5), []string{readPatch}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(tc.object, ours)
			if tc.before != nil {
				r.before = func(n int) error { tc.before(r, n); return nil }
			}
			got, err := r.release(t.Context(), r.object(), tc.opts...)
			is := r.object()
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil || got.Gone && is != nil &&
				is.GetUID() == r.target {
				t.Errorf("\n%s\nr.Release(...): %v, -want, +got:\n%s", tc.reason, err, diff)
			}
			expectEqual(t, tc.reason, "requests", tc.requests, r.requests)
			r.check(t, tc.reason)
		})
	}
}

// Only conflicts allow a deletion at any version: after other failures no other client may have written.
func TestRelease_DeletionFails(t *testing.T) {
	reason := "A webhook that fails should not let another client end the pause right before the deletion."
	r := newRegistry(newThing(withDeletionPolicy("Delete")), ours)
	deletions := 0
	r.before = func(n int) error {
		if r.requests[n] != deleteOrphan {
			return nil
		}
		switch deletions++; {
		case deletions <= 5:
			return kerrors.NewInternalError(errors.New("webhook timed out"))
		case deletions == 6:
			r.update(func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
		}
		return nil
	}
	got, err := r.release(t.Context(), r.object())
	if diff := cmp.Diff(reconciler.Released{Gone: true}, got); diff != "" || err != nil {
		t.Errorf("\n%s\nr.release(...): %v, -want, +got:\n%s", reason, err, diff)
	}
	r.check(t, reason)
}

// withUID returns an object as it was read from the API server.
func withUID(mods ...func(o *unstructured.Unstructured)) *unstructured.Unstructured {
	return modify(newThing(mods...), func(o *unstructured.Unstructured) { o.SetUID("uid-1") })
}

// Bad arguments, and an operation that may run, are refused without a request.
func TestRelease_Refused(t *testing.T) {
	running := func(change func(o *unstructured.Unstructured)) *unstructured.Unstructured {
		return withUID(withRunningOperation, change)
	}
	cases := map[string]struct {
		reason   string
		object   client.Object
		released []string // Ours by default.
		opts     []reconciler.ReleaseOption
		want     string
	}{
		"NoUID": {
			reason: "An object without UID may be any.", object: newThing(), want: "read it from the API server first",
		},
		"NoObject": {reason: "There is nothing to release.", want: "pass the manager's client"},
		"NoOption": {
			reason: "It can't be applied.", object: withUID(), opts: []reconciler.ReleaseOption{nil},
			want: "was given nil (argument 6)",
		},
		"Propagation": {
			reason: "The API server would refuse it, of an object that is paused by then.", object: withUID(),
			opts: []reconciler.ReleaseOption{reconciler.WithPropagation("")}, want: `WithPropagation was given ""`,
		},
		"NoKind": {
			reason: "An object of an unknown type can't be released.",
			object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "uid-1"}},
			want:   "cannot tell the kind",
		},
		"GarbageCollectors": {
			reason: "Taking this finalizer away makes orphans garbage.", object: withUID(),
			released: []string{ours, gcOrphan}, want: "use WithPropagation",
		},
		"Resumable": {
			reason: "An operation that the next process resumes may run.",
			object: running(withResumableOperation), want: "the provider resumes it by its handle",
		},
		"AnnouncedWithoutRecord": {
			reason: "A create of upstream's that is announced may still be carried out.",
			object: withUID(
				withAnnotation(meta.AnnotationKeyExternalCreatePending, time.Now().UTC().Format(time.RFC3339)),
			),
			want: "may run until",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.released == nil {
				tc.released = []string{ours}
			}
			r := newRegistry(newThing(), tc.released...)
			_, err := r.release(t.Context(), tc.object, tc.opts...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nRelease(...): want error with %q, got %v", tc.reason, tc.want, err)
			}
			expectEqual(t, tc.reason, "requests", 0, len(r.requests))
		})
	}
	_, err := reconciler.Release(t.Context(), nil, withUID(), nil)
	expectEqual(t, "", "refused without a client", true, err != nil)
}

// The operation may be one that only the API server knows.
func TestRelease_OperationUncached(t *testing.T) {
	r := newRegistry(newThing(withRunningOperation), ours)
	o := r.object()
	meta.RemoveAnnotations(o, creation.AnnotationKeyRecord)
	_, err := r.release(t.Context(), o)
	const reason = "Nothing should be changed while an operation runs that the caller's object does not show."
	expectEqual(t, reason, "says so", true, err != nil && strings.Contains(err.Error(), "may run until"))
	expectEqual(t, reason, "requests", []string{readPatch}, r.requests)
}

// The error names the request that failed; the remaining finalizers are returned.
func TestRelease_Fails(t *testing.T) {
	ms := time.Millisecond
	grows := []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, time.Second, time.Second}
	forbidden := kerrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))
	invalid := kerrors.NewInvalid(schema.GroupKind{}, "a", nil)
	boom := kerrors.NewInternalError(errors.New("boom"))
	canceled := context.Canceled
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured

		// answer to the requests whose description starts with the prefix, or also to all
		// after it in an outage. undo is whether another client reverts each write.
		prefix       string
		answer       error
		outage, undo bool

		// The context ends after the last of the delays, if it is the error.
		delays []time.Duration
		want   error
		text   string
		left   []string // Finalizers.

		// same is whether the object stays as it was.
		same bool
	}{
		"NoSuchKind": {
			reason: "An unknown kind should be reported at once.", object: withUID(),
			prefix: readPatch, answer: &kmeta.NoKindMatchError{},
			text: "cannot release App default/a: cannot read it: ", same: true,
		},
		"NotServed": {
			reason: "A kind that is not served in this version does not mean that the object is gone.",
			object: withUID(), prefix: readPatch, answer: errUnserved,
			text: "the server could not find the requested resource", same: true,
		},
		"Invalid": {
			reason: "An invalid request should not be mistaken for an object that no longer exists.",
			object: withUID(), prefix: pausePatch,
			answer: &kerrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}},
			text:   "cannot pause it", delays: grows[:1], left: []string{ours}, same: true,
		},
		"CannotPause": {
			reason: "An object that can't be paused must not be deleted.", object: withUID(),
			prefix: pausePatch, answer: forbidden, want: forbidden, text: "cannot pause it", left: []string{ours},
			same: true,
		},
		"CannotKeepExternal": {
			reason: "A kind whose deletionPolicy has no Orphan should stay as it is: neither paused nor deleted.",
			object: withUID(withDeletionPolicy("Delete")), prefix: "patch [",
			answer: invalid, want: invalid, text: "cannot rule out", delays: grows[:1], left: []string{ours},
			same: true,
		},
		"Protected": {
			reason: "A webhook that refuses because of a Usage answers with a conflict that is none, and should be reported.",
			object: withUID(), prefix: "delete", text: "in-use by 1 usage(s)", left: []string{ours},
			answer: &kerrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusConflict,
				Reason:  "This resource is in-use by 1 usage(s)",
				Message: "admission webhook denied the request: This resource is in-use by 1 usage(s)",
			}},
		},
		"CannotRemove": {
			reason: "That finalizers can't be removed should be reported.",
			object: withUID(withFinalizers(ours, foreign)),
			prefix: "patch [", answer: forbidden, want: forbidden, text: "cannot remove finalizers",
			left: []string{ours, foreign, gcOrphan},
		},
		"ForGarbageCollector": {
			reason: "The garbage collector should be given more time each time.", object: withUID(), delays: grows,
			want: canceled, text: `the garbage collector has not removed its finalizer "orphan" yet`,
			left: []string{gcOrphan},
		},
		"Outage": {
			reason: "The finalizers of the last read should be returned if the object can't be read again.",
			object: withUID(withFinalizers(ours, foreign)), prefix: "patch [", answer: boom, outage: true,
			delays: grows[:3], want: canceled, text: "boom", left: []string{ours, foreign, gcOrphan},
		},
		"ForPolicies": {
			reason: "An object whose policy another client applies each time should be left alone for longer each time.",
			object: withUID(), undo: true, delays: grows, want: canceled,
			text: "another client allowed the external resource to be deleted", left: []string{ours},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(tc.object, ours)
			was, down := r.object(), false
			r.before = func(n int) error {
				switch {
				case down, tc.prefix != "" && strings.HasPrefix(r.requests[n], tc.prefix):
					down = tc.outage
					return tc.answer
				case tc.undo && r.requests[n] == pausePatch:
					r.update(withDeletionPolicy("Delete"))
				case tc.undo:
					r.update(func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
				}
				return nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var delays []time.Duration
			wait := func(ctx context.Context, d time.Duration) error {
				if delays = append(delays, d); len(delays) == len(tc.delays) && errors.Is(tc.want, canceled) {
					cancel()
				}
				return ctx.Err()
			}
			got, err := r.release(ctx, tc.object, reconciler.ReleaseWithWait(wait))
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("\n%s\nRelease(...): want error %v with %q, got %v", tc.reason, tc.want, tc.text, err)
			}
			expectEqual(t, tc.reason, "Release(...)", reconciler.Released{Holding: tc.left}, got)
			expectEqual(t, tc.reason, "delays", tc.delays, delays)
			if tc.same {
				expectEqual(t, tc.reason, "the object", was, r.object())
			}
			if !tc.undo {
				r.check(t, tc.reason)
			}
		})
	}
}

// A deed is a write of another client before a request, or the answer to the request.
type interference struct {
	name         string
	do           func(r *registry)
	answer, lost error
}

func interferences(o *unstructured.Unstructured) []interference {
	add := func(f string) func(o *unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { meta.AddFinalizer(o, f) }
	}
	drop := func(fs ...string) func(o *unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.SetFinalizers(without(o.GetFinalizers(), fs...)) }
	}
	change := func(fns ...func(o *unstructured.Unstructured)) func(r *registry) {
		return func(r *registry) {
			for _, fn := range fns {
				r.update(fn)
			}
		}
	}
	unpause := func(o *unstructured.Unstructured) { meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused) }
	return []interference{
		{name: "adds the finalizer", do: change(add(ours))},
		{name: "removes the finalizer", do: change(drop(ours))},
		{name: "removes and adds the finalizer", do: change(drop(ours), add(ours))},
		{name: "adds another finalizer", do: change(add("example.org/new"))},
		{name: "removes the foreign finalizer", do: change(drop(foreign))},
		{name: "annotates", do: change(withAnnotation("example.org/new", "yes"))},
		{name: "removes all annotations", do: change(func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })},
		{name: "changes spec", do: change(func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "new", "spec", "forProvider", "size")
		})},
		{name: "ends the pause", do: change(unpause)},
		{name: "applies its policies", do: change(withDeletionPolicy("Delete"), withPolicies("*"))},
		{
			name: "ends the pause and applies its policies",
			do:   change(unpause, withDeletionPolicy("Delete"), withPolicies("Observe", "Create", "Delete")),
		},
		{name: "allows less", do: change(withPolicies("Observe"))},
		{name: "deletes", do: func(r *registry) { r.remove(metav1.DeletePropagationBackground) }},
		{name: "deletes in the foreground", do: func(r *registry) { r.remove(metav1.DeletePropagationForeground) }},
		{name: "collects garbage", do: (*registry).collectGarbage},
		{name: "tears it out", do: (*registry).tear},
		{name: "replaces it", do: func(r *registry) { r.replace(o) }},
		{name: "replaces it by one that is being deleted", do: func(r *registry) {
			r.replace(o)
			r.remove(metav1.DeletePropagationOrphan)
		}},
		{name: "conflicts", answer: kerrors.NewConflict(schema.GroupResource{}, "a", nil)},
		{name: "makes it invalid", answer: kerrors.NewInvalid(schema.GroupKind{}, "a", nil)},
		{name: "breaks the API server", answer: kerrors.NewInternalError(errors.New("boom"))},
		{name: "takes all its time", answer: kerrors.NewTooManyRequests("later", 1)},
		{name: "takes the answer", lost: errors.New("connection reset by peer")},
		{name: "ends the context", answer: context.Canceled},
		{name: "ends the context when it is done", lost: context.Canceled},
	}
}

// stride from one pair of deeds to the next that is tried.
var stride = flag.Int("stride", 37, "of the pairs of deeds, which to try: 1 for all, which takes a minute or two")

// Another client acts before any one or two requests: the release ends, and tells the truth.
func TestReleaseSchedules(t *testing.T) {
	managed := []func(o *unstructured.Unstructured){withDeletionPolicy("Delete"), withPolicies("*")}
	background := []reconciler.ReleaseOption{reconciler.WithPropagation(metav1.DeletePropagationBackground)}
	starts := map[string]struct {
		object *unstructured.Unstructured
		opts   []reconciler.ReleaseOption
		// pairs of deeds, not just one.
		pairs bool
	}{
		"Held":          {object: newThing(managed...)},
		"HeldByAnother": {object: newThing(append(managed, withFinalizers(ours, foreign))...), pairs: true},
		"Collected":     {object: newThing(managed...), opts: background},
		"NotHeld":       {object: newThing(append(managed, withFinalizers(foreign))...)},
		"WithoutPolicy": {object: newThing()},
		"BeingDeleted":  {object: newThing(append(managed, withFinalizers(ours, foreign), withDeletionTimestamp)...)},
		"WithoutChanges": {
			object: newThing(
				withFinalizers(ours, foreign), withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
			),
		},
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			all := interferences(start.object)

			// run returns how many requests were made.
			run := func(schedule map[int][]interference) int {
				r := newRegistry(start.object, ours)
				o := r.object()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := func(err error) error {
					if errors.Is(err, context.Canceled) {
						cancel()
					}
					return err
				}
				var lost error
				invalid, deeds := 0, 0
				r.before = func(n int) (answer error) {
					lost = nil
					deeds += len(schedule[n])
					for _, d := range schedule[n] {
						if d.do != nil {
							d.do(r)
						}
						answer, lost = stderrors.Join(answer, d.answer), stderrors.Join(lost, d.lost)
					}
					if kerrors.IsInvalid(answer) {
						invalid++
					}
					return ended(answer)
				}
				r.after = func(int) error { return ended(lost) }
				got, err := r.release(ctx, o, start.opts...)
				if ctx.Err() != nil {
					// It goes on when it is called again.
					got, err = r.release(t.Context(), o, start.opts...)
				}
				want := reconciler.Released{Gone: true}
				released := true
				if is := r.object(); is != nil && is.GetUID() == r.target {
					want = reconciler.Released{Holding: is.GetFinalizers()}
					released = meta.WasDeleted(is) && !slices.Contains(want.Holding, ours)
				}

				// Being refused twice at the same version is for good.
				if kerrors.IsInvalid(err) && invalid > 0 && deeds == 2 && len(r.broken) == 0 {
					return len(r.requests)
				}

				if err == nil && released && len(r.broken) == 0 && reflect.DeepEqual(want, got) {
					return len(r.requests)
				}
				reason := fmt.Sprintf("requests:\n%s\nbefore:", strings.Join(r.requests, "\n"))
				for n, ds := range schedule {
					for _, d := range ds {
						reason += fmt.Sprintf("\n%d: another client %s", n, d.name)
					}
				}
				r.check(t, reason)
				t.Fatalf(
					"%s\nRelease(...): %v, is released: %t: -want, +got:\n%s", reason, err, released,
					cmp.Diff(want, got),
				)
				return 0
			}
			pair := 0
			for _, a := range all {
				for i, n := 0, 1; i < n; i++ {
					n = run(map[int][]interference{i: {a}})
					for _, b := range all {
						for j := i; start.pairs && j <= n; j++ {
							if pair++; pair%*stride == 0 {
								s := map[int][]interference{i: {a}}
								s[j] = append(s[j], b)
								run(s)
							}
						}
					}
				}
			}
		})
	}
}

// A registry is a cluster with one object, and the client that releases it, which may not
// read. broken has the writes that no client may make.
type registry struct {
	*cluster

	// before and after a request they are called with the number of those before it.
	// Their result is the answer.
	before, after func(n int) error

	// key of the object, target is the UID of the one that may be written to, and
	// released are the finalizers that may be removed from it.
	key      client.ObjectKey
	target   types.UID
	released []string

	was      *unstructured.Unstructured // Before the request that is served.
	requests []string
	broken   []string
}

func newRegistry(o *unstructured.Unstructured, released ...string) *registry {
	o = o.DeepCopy()
	o.SetUID("uid-1")
	r := &registry{cluster: newCluster(o), key: client.ObjectKeyFromObject(o), target: o.GetUID(), released: released}
	r.api.Before = func(ctx context.Context, q testkit.Request) error {
		if q.Verb == testkit.Get || q.Verb == testkit.List {
			return errors.New("a release doesn't read")
		}
		what := q.Verb + " " + q.Body
		if q.Verb == testkit.Update {
			what = fmt.Sprintf("update finalizers to %q", q.Object.GetFinalizers())
		}
		r.requests = append(r.requests, what)
		if r.before != nil {
			if err := r.before(len(r.requests) - 1); err != nil {
				return err
			}
		}
		r.was = r.object()
		return ctx.Err()
	}
	r.api.After = func(_ context.Context, q testkit.Request) error {
		r.inspect(q.Verb)
		if r.after == nil {
			return nil
		}
		return r.after(len(r.requests) - 1)
	}
	return r
}

// object as it is, or nil if there is none.
func (r *registry) object() *unstructured.Unstructured {
	u := newObject(claims, r.key.Namespace, r.key.Name)
	if err := r.server.Get(context.Background(), r.key, u); err != nil {
		return nil
	}
	return u
}

// update the object, if there is one and it stays valid, as another client does.
func (r *registry) update(fn func(o *unstructured.Unstructured)) {
	if o := r.object(); o != nil {
		fn(o)
		if err := r.server.Update(context.Background(), o); err != nil && !kerrors.IsInvalid(err) {
			panic(err)
		}
	}
}

func (r *registry) remove(p metav1.DeletionPropagation) {
	_ = r.server.Delete(
		context.Background(), newObject(claims, r.key.Namespace, r.key.Name), client.PropagationPolicy(p),
	)
}

func (r *registry) tear() {
	r.remove(metav1.DeletePropagationBackground)
	r.update(func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
}

func (r *registry) replace(o *unstructured.Unstructured) {
	r.tear()
	if err := r.server.Create(context.Background(), o.DeepCopy()); err != nil {
		panic(err)
	}
}

func (r *registry) collectGarbage() {
	r.update(func(o *unstructured.Unstructured) {
		o.SetFinalizers(without(o.GetFinalizers(), gcOrphan))
	})
}

func (r *registry) inspect(verb string) {
	cur, next := r.was, r.object()
	complain := func(what string) {
		r.broken = append(r.broken, fmt.Sprintf("%s: %s", r.requests[len(r.requests)-1], what))
	}
	gone := next == nil
	if gone {
		if verb == testkit.Patch {
			complain("removes the last finalizer: the API server deletes whatever has the name then")
		}
		next = cur.DeepCopy()
		next.SetFinalizers(nil)
	}
	if reflect.DeepEqual(cur, next) {
		return
	}
	if cur.GetUID() != r.target {
		complain("changes an object that has the name, but is another")
	}
	if !meta.WasDeleted(cur) && (meta.WasDeleted(next) || gone) && (!meta.IsPaused(next) || deletesExternal(next)) {
		complain("deletes while the external resource may be deleted")
	}
	if cur, next := policies(cur), policies(next); !slices.Contains(cur, "*") && len(without(next, cur...)) > 0 {
		complain(fmt.Sprintf("allows what no client allowed: policies %v are now %v", cur, next))
	}
	gc := []string{gcOrphan, gcForeground}
	if !slices.Equal(without(
		cur.GetFinalizers(), gc...,
	), without(next.GetFinalizers(), gc...)) && !meta.WasDeleted(cur) {
		complain("removes finalizers before the deletion")
	}

	// All other fields have to stay, except those that the API server sets.
	for _, o := range []*unstructured.Unstructured{cur, next} {
		o.SetFinalizers(without(o.GetFinalizers(), slices.Concat(r.released, gc)...))
		meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused)
		for _, f := range []string{
			"deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion", "managedFields",
		} {
			unstructured.RemoveNestedField(o.Object, "metadata", f)
		}
		if len(o.GetAnnotations()) == 0 {
			o.SetAnnotations(nil)
		}
		for _, f := range []string{"deletionPolicy", "managementPolicies"} {
			unstructured.RemoveNestedField(o.Object, "spec", f)
		}
	}
	if !reflect.DeepEqual(cur, next) {
		complain("changes what isn't its own: -was, +is:\n" + cmp.Diff(cur, next))
	}
}

func deletesExternal(o *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(o.Object, "spec", "deletionPolicy")
	return policy == "Delete" || slices.Contains(policies(o), "*") || slices.Contains(policies(o), "Delete")
}

func policies(o *unstructured.Unstructured) []string {
	out, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "managementPolicies")
	return out
}

// without returns the rest of the list, which is nil if nothing is left: so are
// finalizers.
func without(list []string, drop ...string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(drop, s) {
			out = append(out, s)
		}
	}
	return out
}

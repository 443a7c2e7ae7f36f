//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	raceRounds = 1000

	// baselineRounds are enough for what is lost in every fifth round.
	baselineRounds = 300

	// raceLanes is how many rounds are run at the same time.
	raceLanes = 4

	raceFinalizer = "finalizer.managedresource.crossplane.io"
)

// An order is one in which an object is deleted and its finalizer removed.
type order func(ctx context.Context, c client.Client, o client.Object, p metav1.DeletionPropagation) (holding []string, err error)

// deleteFirst is Graft's.
func deleteFirst(ctx context.Context, c client.Client, o client.Object, p metav1.DeletionPropagation) ([]string, error) {
	out, err := reconciler.Release(ctx, c, o, []string{raceFinalizer}, reconciler.ReleaseWithPropagation(p))
	if err == nil && !out.Gone && len(out.Holding) == 0 {
		err = errors.New("it is neither gone nor held by anything")
	}

	return out.Holding, err
}

// deleteLast pauses, removes finalizers, and deletes, as movers did.
func deleteLast(ctx context.Context, c client.Client, o client.Object, p metav1.DeletionPropagation) ([]string, error) {
	for _, body := range []string{
		`{"metadata":{"annotations":{"crossplane.io/paused":"true"}}}`,
		`{"metadata":{"finalizers":null}}`,
	} {
		if err := c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
	}

	return nil, client.IgnoreNotFound(c.Delete(ctx, o, client.PropagationPolicy(p)))
}

// A losses counts what went wrong, in how many rounds.
type losses struct {
	// Stuck objects were deleted, and have the finalizer.
	Stuck int
	// Finalizers and Annotations of others that are gone.
	Finalizers, Annotations int
	// Successors are objects that had the name and were written to.
	Successors int
	// Unreported are others' finalizers that the order did not say anything of.
	Unreported int
}

// Objects are released while another writer adds the finalizer back as fast as
// possible. One object in five has a second finalizer, and is annotated all the time.
// Two are replaced by another object of the same name, before one of the requests or
// at the same time.
func TestFinalizerRace(t *testing.T) {
	run := func(t *testing.T, rounds int, do order) *race {
		t.Helper()

		newServer(t) // It cleans up.

		r := &race{do: do, client: unlimited(t), theirs: unlimited(t)}
		began := time.Now()

		next := make(chan int)
		errs := make([]error, raceLanes)

		var wg sync.WaitGroup
		for lane := range raceLanes {
			wg.Go(func() {
				for n := range next {
					if err := r.round(t.Context(), n); err != nil {
						errs[lane] = errors.Join(errs[lane], fmt.Errorf("round %d: %w", n, err))
					}
				}
			})
		}

		for n := range rounds {
			next <- n
		}

		close(next)
		wg.Wait()

		must(t, "race", errors.Join(errs...))

		slices.Sort(r.took)
		t.Logf("%d rounds in %s: one takes %s (median), %s (99%%), at most %s; the finalizer was added %d times, and refused %d times; %d annotations were added; %d objects were replaced; lost: %+v",
			rounds, time.Since(began).Round(time.Millisecond), r.took[len(r.took)/2], r.took[len(r.took)*99/100], r.took[len(r.took)-1], r.added, r.refused, r.annotated, r.replaced, r.lost)

		if r.replaced == 0 || r.annotated == 0 {
			t.Error("want objects replaced, and annotated")
		}

		return r
	}

	t.Run("DeleteFirst", func(t *testing.T) {
		r := run(t, raceRounds, deleteFirst)

		if diff := cmp.Diff(losses{}, r.lost); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}

		if r.added > 0 || r.refused == 0 {
			t.Errorf("want the finalizer refused whenever it was to be added, got it added %d times and refused %d times", r.added, r.refused)
		}
	})

	// This is why Release has the order that it has.
	t.Run("DeleteLast", func(t *testing.T) {
		if l := run(t, baselineRounds, deleteLast).lost; l.Stuck == 0 || l.Finalizers == 0 || l.Successors == 0 {
			t.Errorf("want losses, got %+v", l)
		}
	})
}

// A race is between an order and all other writers.
type race struct {
	do order

	// client is the order's, and theirs is the one of all other writers.
	client, theirs client.WithWatch

	mu                                  sync.Mutex
	lost                                losses
	took                                []time.Duration
	added, refused, annotated, replaced int
}

func unlimited(t *testing.T) client.WithWatch {
	t.Helper()

	config := plane.Config()
	config.QPS = -1

	c, err := client.NewWithWatch(config, client.Options{Scheme: newScheme(t)})
	must(t, "client.New()", err)

	return c
}

// contender returns the object of a round. Kinds alternate.
func contender(n int, finalizers ...string) sample.Instance {
	name := fmt.Sprintf("race-%d", n)

	o := sample.Instance(sample.NewBucket(namespace, name))
	if n%2 == 0 {
		o = sample.NewDatabase(name)
	}

	o.SetFinalizers(finalizers)
	o.SetAnnotations(map[string]string{"example.org/annotation": "kept"})

	return o
}

func (r *race) count(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	fn()
}

func (r *race) round(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	share := n % 5
	held := share == 0
	finalizers := []string{raceFinalizer}

	if held {
		finalizers = []string{otherFinalizer, raceFinalizer}
	}

	o := contender(n, finalizers...)
	if err := r.theirs.Create(ctx, o); err != nil {
		return err
	}

	// The order gets its own copy, and so do the other writers.
	another := func() sample.Instance {
		c, _ := o.DeepCopyObject().(sample.Instance)
		return c
	}

	var (
		successor sample.Instance
		annotated map[string]string
		others    sync.WaitGroup
		errs      [3]error
	)

	replace := func() { successor, errs[0] = r.replace(ctx, n, another()) }
	c := client.Client(r.client)

	// The garbage collector is no party to a replacement: it patches its finalizer
	// away, which may hit the successor. See TestLastFinalizer.
	propagation := metav1.DeletePropagationOrphan
	if share == 1 || share == 2 {
		propagation = metav1.DeletePropagationBackground
	}

	stop := make(chan struct{})

	others.Go(func() { errs[1] = r.addFinalizer(ctx, stop, another()) })

	switch {
	case held:
		others.Go(func() { annotated, errs[2] = r.annotate(ctx, stop, another()) })
	case share == 1:
		c = before(r.client, n/5%6, replace)
	case share == 2:
		others.Go(replace)
	}

	began := time.Now()
	holding, err := r.do(ctx, c, another(), propagation)
	took := time.Since(began)

	close(stop)
	others.Wait()

	if err := errors.Join(err, errors.Join(errs[:]...)); err != nil {
		return err
	}

	got := another()

	err = r.theirs.Get(ctx, client.ObjectKeyFromObject(o), got)
	if client.IgnoreNotFound(err) != nil {
		return err
	}

	there := err == nil && got.GetUID() == o.GetUID()

	r.count(func() {
		r.took = append(r.took, took)
		r.annotated += len(annotated)

		if there && slices.Contains(got.GetFinalizers(), raceFinalizer) {
			r.lost.Stuck++
		}

		if held && (!there || !slices.Contains(got.GetFinalizers(), otherFinalizer)) {
			r.lost.Finalizers++
		}

		if held && !slices.Contains(holding, otherFinalizer) {
			r.lost.Unreported++
		}

		if held && there && !annotatedWith(got, annotated) {
			r.lost.Annotations++
		}

		if successor != nil {
			r.replaced++

			if got.GetUID() != successor.GetUID() || got.GetResourceVersion() != successor.GetResourceVersion() {
				r.lost.Successors++
			}
		}
	})

	if !there || slices.Contains(got.GetFinalizers(), raceFinalizer) || !slices.Contains(got.GetFinalizers(), otherFinalizer) {
		return nil
	}

	return r.letGo(ctx, got)
}

func annotatedWith(o client.Object, want map[string]string) bool {
	for k, v := range want {
		if o.GetAnnotations()[k] != v {
			return false
		}
	}

	return o.GetAnnotations()["example.org/annotation"] == "kept"
}

// letGo removes the other finalizer. Nothing else may hold the object then.
func (r *race) letGo(ctx context.Context, o client.Object) error {
	err := r.theirs.Patch(ctx, o, client.RawPatch(types.JSONPatchType, fmt.Appendf(nil,
		`[{"op":"test","path":"/metadata/finalizers/0","value":%q},{"op":"remove","path":"/metadata/finalizers/0"}]`, otherFinalizer)))
	if err != nil {
		return err
	}

	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := r.theirs.Get(ctx, client.ObjectKeyFromObject(o), o)
		return kerrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// addFinalizer adds the finalizer whenever the object lacks it, until it is told
// to stop or the object is gone.
func (r *race) addFinalizer(ctx context.Context, stop <-chan struct{}, o client.Object) error {
	uid := o.GetUID()
	added, refused := 0, 0

	defer func() {
		r.count(func() {
			r.added += added
			r.refused += refused
		})
	}()

	for {
		select {
		case <-stop:
			return nil
		default:
		}

		if err := r.theirs.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.GetUID() != uid {
			return client.IgnoreNotFound(err)
		}

		if meta.FinalizerExists(o, raceFinalizer) {
			continue
		}

		meta.AddFinalizer(o, raceFinalizer)

		switch err := r.theirs.Update(ctx, o); {
		case err == nil:
			added++
		case kerrors.IsInvalid(err):
			refused++
		case kerrors.IsConflict(err), kerrors.IsNotFound(err):
		default:
			return err
		}
	}
}

// annotate the object until told to stop, and return with what.
func (r *race) annotate(ctx context.Context, stop <-chan struct{}, o client.Object) (map[string]string, error) {
	out := map[string]string{}

	for i := 0; ; i++ {
		select {
		case <-stop:
			return out, nil
		default:
		}

		k, v := fmt.Sprintf("example.org/annotation-%d", i), fmt.Sprint(i)

		err := r.theirs.Patch(ctx, o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, o.GetUID(), k, v)))

		switch {
		case err == nil:
			out[k] = v
		case kerrors.IsNotFound(err), kerrors.IsInvalid(err):
			return out, nil
		case kerrors.IsConflict(err):
		default:
			return out, err
		}
	}
}

// replace the object by another of the same name, whatever holds it.
func (r *race) replace(ctx context.Context, n int, o client.Object) (sample.Instance, error) {
	uid := o.GetUID()

	if err := r.theirs.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot delete the object to replace it: %w", err)
	}

	err := r.theirs.Patch(ctx, o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, uid)))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot remove finalizers of the object to replace it: %w", err)
	}

	out := contender(n, otherFinalizer, raceFinalizer)

	return out, r.theirs.Create(ctx, out)
}

// before returns a client that calls do before one of its requests.
func before(c client.WithWatch, request int, do func()) client.Client {
	n := 0
	count := func() {
		if n++; n == request+1 {
			do()
		}
	}

	return interceptor.NewClient(c, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			count()
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count()
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count()
			return c.Delete(ctx, o, opts...)
		},
	})
}

// Managed resources of a provider that is running are released: all are gone, and
// all external resources are there.
func TestReleaseKeepsExternalResources(t *testing.T) {
	for _, f := range []flavour{upstream, graft} {
		t.Run(f.name, func(t *testing.T) {
			s := newServer(t)
			world := cloud.New(cloud.Options{})
			all := fleet("released", 25)
			s.create(t, all...)

			start(t, f, setup{connectors: syncConnectors(world), poll: 50 * time.Millisecond})
			s.until(t, "all show Available", all, isAvailable)

			s.all(t, "Release()", all, func(mg sample.Instance) error {
				out, err := reconciler.Release(t.Context(), s, mg, []string{raceFinalizer})
				if err == nil && !out.Gone {
					err = fmt.Errorf("%s is held by %v", mg.GetName(), out.Holding)
				}

				return err
			})

			if left := s.list(t.Context(), t); len(left) != 0 {
				t.Errorf("want no managed resource left, got %d", len(left))
			}

			for _, mg := range all {
				if st := world.Stats(string(mg.GetUID())); st.Existing != 1 || st.Created != 1 {
					t.Errorf("%s: want the external resource that was created, got %+v", mg.GetName(), st)
				}
			}
		})
	}
}

// Two remove the last finalizer of an object that is being deleted, at the same
// time, and the name is given away as soon as one of them is done. What the other
// one does to the successor is why Release removes last finalizers by an update.
func TestLastFinalizer(t *testing.T) {
	const rounds = 250

	remove := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))

	cases := map[string]func(ctx context.Context, c client.Client, o client.Object) error{
		"Patch": func(ctx context.Context, c client.Client, o client.Object) error {
			return c.Patch(ctx, o, client.RawPatch(types.JSONPatchType, fmt.Appendf(nil,
				`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"replace","path":"/metadata/finalizers","value":[]}]`, o.GetUID())))
		},
		"Update": func(ctx context.Context, c client.Client, o client.Object) error {
			o.SetFinalizers(nil)
			return c.Update(ctx, o)
		},
	}

	for name, do := range cases {
		t.Run(name, func(t *testing.T) {
			newServer(t) // It cleans up.

			c, lost := unlimited(t), 0

			for range rounds {
				o := sample.NewBucket(namespace, "last")
				o.SetFinalizers([]string{raceFinalizer})
				must(t, "Create()", c.Create(t.Context(), o))
				must(t, "Delete()", c.Delete(t.Context(), o))
				must(t, "Get()", c.Get(t.Context(), client.ObjectKeyFromObject(o), o))

				var (
					wg  sync.WaitGroup
					err error
				)

				wg.Go(func() { err = do(t.Context(), c, o.DeepCopy()) })

				must(t, "Patch()", client.IgnoreNotFound(c.Patch(t.Context(), o.DeepCopy(), remove)))

				successor := sample.NewBucket(namespace, "last")
				must(t, "Create()", c.Create(t.Context(), successor))

				wg.Wait()

				if err != nil && !kerrors.IsNotFound(err) && !kerrors.IsConflict(err) && !kerrors.IsInvalid(err) {
					t.Fatal(err)
				}

				err = c.Delete(t.Context(), successor)
				must(t, "Delete()", client.IgnoreNotFound(err))

				if err != nil {
					lost++
				}
			}

			t.Logf("%d of %d successors were deleted", lost, rounds)

			if name == "Update" && lost > 0 {
				t.Errorf("want no successor touched, got %d", lost)
			}
		})
	}
}

// Release relies on how an API server answers, for custom resources and others.
// This is how it does.
func TestReleaseRequests(t *testing.T) {
	const oneMore = "example.org/one-more"

	patch := func(pt types.PatchType, format string, a ...any) client.Patch {
		return client.RawPatch(pt, fmt.Appendf(nil, format, a...))
	}

	// refusal is an error as far as Release looks at it.
	type refusal struct {
		Code   int32
		Reason metav1.StatusReason
		Field  string
	}

	cases := map[string]struct {
		reason string
		// do returns what the API server answered to the request in question.
		do   func(ctx context.Context, c client.Client, o client.Object) error
		want refusal
		// finalizers that the object has then, and whether its version is what
		// it was.
		finalizers []string
		same       bool
	}{
		"Nothing": {
			reason: "A patch of a value that another writer has set already should be answered with the object, and write nothing.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				version := o.GetResourceVersion()
				p := patch(types.MergePatchType, `{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, o.GetUID(), meta.AnnotationKeyReconciliationPaused)

				if err := c.Patch(ctx, o, p, client.FieldOwner("another")); err != nil || o.GetResourceVersion() == version {
					return err
				}

				return fmt.Errorf("want resource version %s, got %s", version, o.GetResourceVersion())
			},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"NotServed": {
			reason: "It should be possible to tell an object that is gone from one whose kind is not served in this version.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				another, _ := o.DeepCopyObject().(client.Object)
				another.SetName("gone")

				gone := c.Patch(ctx, another, patch(types.MergePatchType, `{}`))

				config := plane.Config()
				config.GroupVersion = &schema.GroupVersion{Group: sample.Group, Version: "v99"}
				config.APIPath = "/apis"
				config.NegotiatedSerializer = serializer.NewCodecFactory(c.Scheme())

				rc, err := rest.RESTClientFor(config)
				if err != nil {
					return err
				}

				unserved := rc.Patch(types.MergePatchType).Namespace(namespace).Resource("buckets").Name("gone").Body([]byte(`{}`)).Do(ctx).Error()

				for err, want := range map[error]bool{gone: false, unserved: true} {
					if !kerrors.IsNotFound(err) || kerrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) != want {
						return fmt.Errorf("want not found, unexpectedly so: %t, got: %w", want, errors.New(err.Error()))
					}
				}

				return nil
			},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"NothingOfAnother": {
			reason: "That of an object that has another UID should be refused because of the UID.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				return c.Patch(ctx, o, patch(types.MergePatchType, `{"metadata":{"uid":"another"}}`))
			},
			want:       refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Field: "metadata.uid"},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"FailedTest": {
			reason: "A patch with a test that fails should be refused as a whole.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				return c.Patch(ctx, o, patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/finalizers","value":[]},{"op":"test","path":"/metadata/uid","value":"another"}]`))
			},
			want:       refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"DeleteAnother": {
			reason: "Deletion of an object that has another UID should be a conflict.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				uid := types.UID("another")
				return c.Delete(ctx, o, client.Preconditions{UID: &uid})
			},
			want:       refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"DeleteAnotherVersion": {
			reason: "So should that of another version.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				uid, version := o.GetUID(), "1"
				return c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version})
			},
			want:       refusal{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
			finalizers: []string{otherFinalizer, oneMore},
			same:       true,
		},
		"AddToDeleted": {
			reason: "No finalizer can be added to an object that is being deleted.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				if err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
					return err
				}

				return c.Patch(ctx, o, patch(types.MergePatchType, `{"metadata":{"finalizers":[%q,%q,"example.org/late"]}}`, otherFinalizer, oneMore))
			},
			want:       refusal{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Field: "metadata.finalizers"},
			finalizers: []string{otherFinalizer, oneMore},
		},
		"ChangeOfMind": {
			reason: "A second deletion should keep the garbage collector from what the object owns.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				return errors.Join(
					c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground)),
					c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
			},
			// The garbage collector has nothing to do, and removes its own at once.
			finalizers: []string{otherFinalizer, oneMore},
		},
		"RemoveLast": {
			reason: "The patch that removes the last finalizers should be answered with the object as it was last.",
			do: func(ctx context.Context, c client.Client, o client.Object) error {
				if err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
					return err
				}

				if err := c.Patch(ctx, o, patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/finalizers","value":[]}]`)); err != nil || meta.WasDeleted(o) && len(o.GetFinalizers()) == 0 {
					return err
				}

				return fmt.Errorf("want the object without finalizers, got %v", o)
			},
		},
	}

	kinds := map[string]client.Object{
		"Bucket":    sample.NewBucket(namespace, "requests"),
		"ConfigMap": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "requests"}},
	}

	for name, tc := range cases {
		for kind, template := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				c := newServer(t)

				o, _ := template.DeepCopyObject().(client.Object)
				o.SetFinalizers([]string{otherFinalizer, oneMore})
				meta.AddAnnotations(o, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
				must(t, "Create()", c.Create(t.Context(), o))

				t.Cleanup(func() {
					ctx := context.WithoutCancel(t.Context())
					must(t, "Delete()", client.IgnoreNotFound(c.Delete(ctx, o)))
					must(t, "Patch()", client.IgnoreNotFound(c.Patch(ctx, o, patch(types.MergePatchType, `{"metadata":{"finalizers":null}}`))))
				})

				version := o.GetResourceVersion()
				err := tc.do(t.Context(), c, o)

				got := refusal{}
				if s := kerrors.APIStatus(nil); errors.As(err, &s) {
					got = refusal{Code: s.Status().Code, Reason: s.Status().Reason}
					if d := s.Status().Details; d != nil && len(d.Causes) > 0 {
						got.Field = d.Causes[0].Field
					}
				} else {
					must(t, tc.reason, err)
				}

				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("\n%s\n%v: -want, +got:\n%s", tc.reason, err, diff)
				}

				// The garbage collector may take its time.
				eventually(t, tc.reason, func() (bool, string) {
					is, _ := template.DeepCopyObject().(client.Object)
					must(t, "Get()", client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(o), is)))

					return slices.Equal(is.GetFinalizers(), tc.finalizers) && (!tc.same || is.GetResourceVersion() == version), fmt.Sprint(is.GetFinalizers())
				})
			})
		}
	}
}

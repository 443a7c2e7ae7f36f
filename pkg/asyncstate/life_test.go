package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

var kinds = []clientKind{nothing, finder, resumer, token, deterministic, namedMid}

// FuzzLife lets anything happen to a managed resource, in any order.
func FuzzLife(f *testing.F) {
	for seed := range uint64(4 * len(kinds)) {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { liveAtRandom(t, seed) })
	})
}

func liveAtRandom(t *testing.T, seed uint64) {
	t.Helper()

	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // It is to be repeatable, not secret.
	k := kinds[seed%uint64(len(kinds))]

	w := newWorld(t, k, bucket("b"))
	w.plain = seed%4 == 3
	w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour), asyncstate.WithMaxOperations(1 + r.IntN(3))}

	if w.cloud.cancellable = r.IntN(3) == 0; w.cloud.cancellable {
		w.options = append(w.options, asyncstate.WithCancellableCreates())
	}

	w.cloud.takes = time.Duration(1+r.IntN(30)) * time.Minute
	uid := string(w.get("b").GetUID())

	var log []string

	note := func(format string, args ...any) {
		log = append(log, time.Now().Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
	}

	defer func() {
		if t.Failed() {
			t.Logf("seed %d, %s, plain %t:\n%s\n%s", seed, k, w.plain, strings.Join(log, "\n"), describe(w.get("b")))
		}
	}()

	p := w.start()

	// first fails the first n requests, of those that it is asked about.
	first := func(n int, err error) func(string, client.Object) error {
		return func(verb string, _ client.Object) error {
			if kerrors.IsConflict(err) && verb == testkit.LiveGet {
				return nil
			}

			if n--; n >= 0 {
				return err
			}

			return nil
		}
	}
	edit := func(fn func(b *v1alpha1.Bucket)) {
		if !w.gone() {
			w.edit("b", fn)
		}
	}

	actions := []struct {
		name string
		do   func(n int)
	}{
		{"minutes pass", func(n int) { pass(time.Duration(n) * time.Minute) }},
		{"an hour passes", func(int) { pass(time.Hour) }},
		{"a second passes", func(n int) { pass(time.Second + time.Duration(n)*time.Millisecond) }},
		{"crash", func(int) { p.kill(); p = w.start() }},
		{"the process ends, and another begins", func(int) { p.cancel(); p = w.start() }},
		{"requests fail", func(n int) { p.faults(first(n%6, errors.New("etcd is slow")), nil) }},
		{"answers are lost", func(n int) { p.faults(nil, first(n%6, errors.New("connection reset"))) }},
		{"writes meet another writer's", func(n int) {
			p.faults(first(n%4, kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, "b", errors.New("modified"))), nil)
		}},
		{"the spec changes", func(n int) { edit(func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = fmt.Sprint("region-", n%5) }) }},
		{"a label changes", func(n int) { edit(func(b *v1alpha1.Bucket) { b.SetLabels(map[string]string{"n": fmt.Sprint(n)}) }) }},
		{"paused", func(n int) {
			edit(func(b *v1alpha1.Bucket) {
				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: fmt.Sprint(n%3 == 0)})
			})
		}},
		// The cloud's refusals are final, and said before anything is done.
		{"the cloud refuses", func(n int) {
			refuse := first(n%3, errQuota)
			w.cloud.set(func(c *fakeCloud) { c.refuse = func(asyncstate.Type) error { return refuse("", nil) } })
		}},
		{"answers of the cloud are lost", func(n int) {
			lose := first(n%2, asyncstate.ErrOutcomeUnknown)
			w.cloud.set(func(c *fakeCloud) { c.lose = func() error { return lose("", nil) } })
		}},
		{"the cache stops", func(int) {
			if b := w.get("b"); b.GetName() != "" {
				_ = w.api.Freeze(context.Background(), b)
			}
		}},
		{"the cache continues", func(int) { w.api.Thaw() }},
		{"the user deletes it, or not", func(n int) {
			if n%8 == 0 {
				w.delete("b")
			}
		}},
	}

	for range 10 + r.IntN(40) {
		a, n := actions[r.IntN(len(actions))], r.IntN(20)
		note("%s: %d", a.name, n)
		a.do(n)
	}

	note("all is well again")
	w.cloud.set(func(c *fakeCloud) { c.refuse, c.lose = nil, nil })
	w.api.Thaw()
	p.faults(nil, nil)
	edit(func(b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyReconciliationPaused) })
	pass(5 * time.Hour)

	// As the message says.
	settle := func() {
		b := w.get("b")

		// Upstream refuses to continue from a create that it has announced and that
		// didn't begin, whatever the client could find out.
		refuses := w.plain && meta.ExternalCreateIncomplete(b)
		if reason(b, asyncstate.TypeOperation) != asyncstate.ReasonResultUnknown && !refuses {
			return
		}

		if k != nothing && k != resumer && k != namedMid && !refuses {
			t.Errorf("A client that can determine the outcome ends with a question: %s", describe(b))
		}

		note("a person settles it: the cloud has %v", w.cloud.ownedBy(uid))
		w.edit("b", func(b *v1alpha1.Bucket) {
			meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending)

			if names := w.cloud.ownedBy(uid); len(names) > 0 {
				meta.SetExternalName(b, names[0])
			}
		})
		pass(5 * time.Hour)
	}
	settle()

	if b := w.get("b"); b.GetName() != "" && !meta.WasDeleted(b) {
		if has := w.cloud.ownedBy(uid); len(has) != 1 || k != deterministic && meta.GetExternalName(b) != has[0] || w.cloud.region(has[0]) != b.Spec.ForProvider.Region {
			t.Errorf("The cloud has %v, and the name is %q", has, meta.GetExternalName(b))
		}

		if record(b) != "" || meta.ExternalCreateIncomplete(b) {
			t.Error("Something is left of the operations")
		}

		before, writes := p.reconciles.Load(), w.api.Writes()
		pass(time.Hour)

		// Upstream writes status whenever it reconciles.
		if n, m := p.reconciles.Load()-before, w.api.Writes()-writes; n > 70 || m > 0 && !w.plain {
			t.Errorf("%d reconciles and %d writes an hour in a steady state", n, m)
		}
	}

	note("the user deletes it")
	w.delete("b")
	pass(5 * time.Hour)
	settle()

	if names := w.cloud.ownedBy(uid); !w.gone() || len(names) > 0 || w.cloud.made[uid] > 1 {
		t.Errorf("After it was deleted the cloud has %v, and made %d", names, w.cloud.made[uid])
	}

	if n, m := p.reconciles.Load(), asyncstate.Remembered(p.tracker); n > 3000 || m != 0 {
		t.Errorf("%d reconciles, and %d things are remembered", n, m)
	}
}

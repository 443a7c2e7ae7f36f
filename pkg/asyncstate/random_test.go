package asyncstate_test

import (
	"context"
	"errors"
	"flag"
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
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

var kinds = []clientKind{nothing, finder, resumer, token, deterministic, namedMid}

// plainEvery is how many lives there are for one that is led under upstream's
// reconciler.
const plainEvery = 5

var (
	livesFlag = flag.Uint64("lives", plainEvery*uint64(len(kinds)), "how many random lives to lead, if no others are made up")
	firstFlag = flag.Uint64("first", 0, "the seed of the first of them")
)

// FuzzLife lets anything happen to a managed resource, in any order.
func FuzzLife(f *testing.F) {
	for i := range *livesFlag {
		f.Add(*firstFlag + i)
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
	w.plain = seed/uint64(len(kinds))%plainEvery == plainEvery-1
	w.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(time.Hour), asyncstate.WithMaxOperations(1 + r.IntN(3))}
	if r.IntN(3) == 0 {
		w.cloud.cancellable = true
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

	// The cloud's refusals are final, and said before anything is done. The
	// cloud's lock guards their count.
	refusing := 0
	w.cloud.refuse = func(asyncstate.Type) error {
		if refusing--; refusing >= 0 {
			return errors.New("quota")
		}

		return nil
	}

	p := w.start()
	defer w.end()

	for range 10 + r.IntN(40) {
		switch r.IntN(16) {
		case 0, 1, 2:
			d := time.Duration(r.IntN(20)) * time.Minute
			note("time passes: %s", d)
			pass(d)
		case 3, 4:
			d := time.Duration(r.IntN(10_000)) * time.Millisecond
			note("time passes: %s", d)
			pass(d)
		case 5:
			note("crash")
			p.kill()
			p = w.start()
		case 6:
			note("the process ends, and another begins")
			p.cancel()
			p = w.start()
		case 7:
			n := 1 + r.IntN(5)
			note("%d requests fail", n)

			p.faults(func(string, client.Object) error {
				if n--; n >= 0 {
					return errors.New("etcd is slow")
				}

				return nil
			}, nil)
		case 8:
			n := 1 + r.IntN(5)
			note("%d answers are lost", n)
			p.faults(nil, func(string, client.Object) error {
				if n--; n >= 0 {
					return errors.New("connection reset")
				}

				return nil
			})
		case 9:
			n := 1 + r.IntN(3)
			note("%d writes meet another writer's", n)
			p.faults(func(verb string, o client.Object) error {
				if n--; n >= 0 && verb != testkit.LiveGet {
					return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, o.GetName(), errors.New("modified"))
				}

				return nil
			}, nil)
		case 10:
			if w.gone() {
				break
			}

			region := fmt.Sprintf("region-%d", r.IntN(5))
			note("the user asks for %s", region)
			w.edit("b", func(b *testkit.Bucket) { b.Spec.ForProvider.Region = region })
		case 11:
			note("another writer sets a label")

			if !w.gone() {
				w.edit("b", func(b *testkit.Bucket) { b.SetLabels(map[string]string{"n": fmt.Sprint(r.Int())}) })
			}
		case 12:
			if w.gone() {
				break
			}

			paused := r.IntN(3) == 0
			note("paused: %t", paused)
			w.edit("b", func(b *testkit.Bucket) {
				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: fmt.Sprint(paused)})
			})
		case 13:
			n := r.IntN(3)
			note("the cloud refuses %d requests", n)
			w.cloud.set(func(*fakeCloud) { refusing = n })
		case 14:
			n := r.IntN(2)
			note("%d answers of the cloud are lost", n)
			w.cloud.set(func(c *fakeCloud) {
				c.lose = func() error {
					if n--; n >= 0 {
						return asyncstate.ErrOutcomeUnknown
					}

					return nil
				}
			})
		case 15:
			if r.IntN(2) == 0 && !w.gone() {
				note("the cache stops")

				if err := w.api.Freeze(context.Background(), w.get("b")); err != nil {
					t.Fatal(err)
				}
			} else {
				note("the cache is updated again")
				w.api.Thaw()
			}

			if r.IntN(4) == 0 {
				note("the user deletes it")
				w.delete("b")
			}
		}
	}

	note("all is well again")

	w.cloud.set(func(c *fakeCloud) { refusing, c.lose = 0, nil })
	w.api.Thaw()
	p.faults(nil, nil)

	heal := func() {
		if w.gone() {
			return
		}

		w.edit("b", func(b *testkit.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyReconciliationPaused) })
	}
	heal()
	pass(5 * time.Hour)

	// As the message says.
	settle := func() {
		b := w.get("b")

		// Upstream refuses to go on from a create that it has announced and that
		// didn't begin, whatever the client could find out.
		refuses := w.plain && meta.ExternalCreateIncomplete(b)
		if reason(b, asyncstate.TypeOperation) != asyncstate.ReasonResultUnknown && !refuses {
			return
		}

		if k != nothing && k != resumer && k != namedMid && !refuses {
			t.Errorf("A client that can determine the outcome ends with a question: %s", describe(b))
		}

		note("a person settles it: the cloud has %v", w.cloud.ownedBy(uid))

		w.edit("b", func(b *testkit.Bucket) {
			meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending)

			if names := w.cloud.ownedBy(uid); len(names) > 0 {
				meta.SetExternalName(b, names[0])
			}
		})
		pass(5 * time.Hour)
	}
	settle()

	if b := w.get("b"); b.GetName() != "" && !meta.WasDeleted(b) {
		if diff := w.cloud.ownedBy(uid); len(diff) != 1 || k != deterministic && meta.GetExternalName(b) != diff[0] {
			t.Errorf("The cloud has %v, and the name is %q", diff, meta.GetExternalName(b))
		} else if got := w.cloud.region(diff[0]); got != b.Spec.ForProvider.Region {
			t.Errorf("The region is %q, and not %q", got, b.Spec.ForProvider.Region)
		}

		if record(b) != "" || meta.ExternalCreateIncomplete(b) {
			t.Error("Something is left of the operations")
		}

		before, writes := p.reconciles.Load(), w.api.Writes()
		pass(time.Hour)

		if n := p.reconciles.Load() - before; n > 70 {
			t.Errorf("%d reconciles an hour in a steady state", n)
		}

		// Upstream writes status whenever it reconciles.
		if n := w.api.Writes() - writes; n > 0 && !w.plain {
			t.Errorf("%d writes an hour in a steady state", n)
		}
	}

	if n := w.cloud.made[uid]; n > 1 {
		t.Errorf("%d external resources were made", n)
	}

	note("the user deletes it")
	w.delete("b")
	pass(5 * time.Hour)
	settle()

	if !w.gone() {
		t.Error("It is there after it was deleted")
	}

	if names := w.cloud.ownedBy(uid); len(names) > 0 {
		t.Errorf("The cloud still has %v", names)
	}

	if n := p.reconciles.Load(); n > 3000 {
		t.Errorf("%d reconciles", n)
	}

	if m := asyncstate.Remembered(p.tracker); m != 0 {
		t.Errorf("The tracker remembers %d things", m)
	}
}

package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// Watches that come at different times are told the same. What was there
// before is marked as such.
func TestLateWatchesAreToldAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, first := watching(t, k, true)
		r.api.Put(k.Object("two"), k)
		pass(time.Second)
		r.start("late", idle())
		late := &recorder{}
		r.watch("late", watchOf(k, late))
		pass(time.Second)
		for _, n := range []string{"one", "two"} {
			if got := late.count("create", n); got != 1 {
				t.Errorf("a late watch was told %d times of %s", got, n)
			}
		}
		for _, e := range late.all() {
			if !e.initial {
				t.Errorf("what was there before isn't marked as such: %+v", e)
			}
		}
		for _, e := range first.all() {
			if e.initial != (e.name == "one") {
				t.Errorf("only one was there before the first watch: %+v", e)
			}
		}
	})
}

// An informer that the cache hands out lives on through its kind's lives.
func TestHandlersOfInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, _ := watching(t, k, true)
		inf, err := r.infs.GetInformer(t.Context(), k.New())
		if err != nil {
			t.Fatal(err)
		}
		rec := &recorder{}
		reg, err := inf.AddEventHandler(rec.funcs())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the handler has synced", reg.HasSynced)
		if n := rec.count("create", "one"); n != 1 {
			t.Errorf("HasSynced is true, and the handler was told %d times of what is there", n)
		}

		// The deletion isn't seen.
		lift := r.api.Inject(watchtest.Of(k), watchtest.Hang())
		r.api.Undefine(k)
		pass(time.Hour)
		lift()
		r.api.Define(k)
		r.api.Put(k.Object("two"), k)
		pass(time.Second)
		r.api.Remove(k, k.Key("two"))
		pass(time.Second)
		if d, c, seen := rec.count("delete", "one"), rec.count("create", "two"), rec.count("delete", "two"); d != 1 || c != 1 || seen != 1 {
			t.Errorf("the handler was told %d times that an object went, %d times that one came, and %d times that it went; want 1 each", d, c, seen)
		}
		if err := inf.RemoveEventHandler(nil); err == nil {
			t.Error("RemoveEventHandler(...) of another informer's: no error")
		}
		if err := inf.RemoveEventHandler(reg); err != nil || inf.IsStopped() {
			t.Errorf("RemoveEventHandler(...): %v, stopped: %t", err, inf.IsStopped())
		}
		rec.forget()
		r.api.Put(k.Object("three"), k)
		pass(time.Second)
		if n := len(rec.all()); n != 0 {
			t.Errorf("a handler that was removed got %d events", n)
		}
	})
}

// A slow handler holds up neither others, nor reads, nor itself.
func TestSlowHandlersHoldUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := watchtest.NewKind("Widget")
		r, quickRec := watching(t, k, false)
		r.start("slow", idle())
		rec := &recorder{before: func() { time.Sleep(time.Minute) }}
		if took, err := timed(func() error { return r.StartWatches(t.Context(), "slow", watchOf(k, rec)) }); err != nil || took > quick {
			t.Errorf("StartWatches(...) with a slow handler: %v after %s", err, took)
		}
		for i := range 100 {
			r.api.Put(k.Object(fmt.Sprintf("w%d", i)), k)
		}
		pass(time.Second)
		if n := len(quickRec.all()); n != 101 {
			t.Errorf("a quick handler got %d of 101 events after a second", n)
		}
		pass(2 * time.Hour)
		if n := len(rec.all()); n != 101 {
			t.Errorf("a slow handler got %d of 101 events", n)
		}
	})
}

// Every predicate must let an event pass, whatever happened.
func TestPredicates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, k := withOne(t)
		rec := &recorder{}
		w := watchOf(k, rec)
		for _, fn := range []func(o client.Object) bool{
			func(client.Object) bool { return true },
			func(o client.Object) bool { return o.GetName() == "two" },
		} {
			w.Predicates = append(w.Predicates, predicate.NewPredicateFuncs(fn))
		}
		r.watch("c", w)
		for _, name := range []string{"one", "two"} {
			for range 2 {
				r.api.Put(k.Object(name), k)
				pass(time.Second)
			}
			r.api.Remove(k, k.Key(name))
			pass(time.Second)
		}
		got := make([]string, 0)
		for _, e := range rec.all() {
			got = append(got, e.op+" "+e.name)
		}
		if diff := cmp.Diff([]string{"create two", "update two", "delete two"}, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	})
}

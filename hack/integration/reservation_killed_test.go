//go:build integration

package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A process of the provider is cut off while its create for the holder of a name is
// on its way to the cloud. It isn't stopped in any order: it runs on, with a cache
// that gets old, and without an answer to anything. Another process takes its
// place, while two others of both kinds wait for the name. They wait until the
// holder no longer exists and the first process no longer acts.
func TestReservationHolderKilled(t *testing.T) {
	const first, second = "first", "second"

	s := newServer(t)
	s.createLeaseNamespace(t)

	r := newReferee(cloud.New(cloud.Options{}))

	// Creates take until they are released, even if their process has stopped.
	underWay, released := make(chan act, 2), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(released) })
	r.hold = func(_ context.Context, a act) {
		if a.op != cloud.OpCreate {
			return
		}

		select {
		case <-released:
		case underWay <- a:
			<-released
		}
	}

	// mustCreate waits until a process creates something for the holder.
	mustCreate := func(process string, holder sample.Instance) {
		t.Helper()

		select {
		case a := <-underWay:
			if a.process != process || a.by != holder.GetUID() {
				t.Fatalf("want a create for the holder by the %s process, got %v", process, a)
			}
		case <-time.After(patience):
			t.Fatal("no process creates anything")
		}
	}

	holder := sample.NewBucket(namespace, "holder")
	meta.SetExternalName(holder, sharedName)
	s.create(t, holder)

	l := newLine(t)
	start(t, r.reserved(first), setup{connectors: connectors{wait: func() {}}, wrap: l.wrap})
	// Before the process is stopped in the end, which waits for its calls.
	t.Cleanup(letGo)
	mustCreate(first, holder)

	rivals := contenders(1)
	s.create(t, rivals...)
	s.until(t, "the others wait for the holder", rivals, func(mg sample.Instance) bool {
		return condition(mg, managed.TypeExternalNameReserved) == "False/"+string(managed.ReasonReservedByOther)
	})

	l.cut()

	// The second process continues for the holder: it is the same holder.
	tr := &traffic{}
	start(t, r.reserved(second), setup{connectors: connectors{wait: func() {}}, traffic: tr})
	mustCreate(second, holder)

	eventually(t, "the others ask again and again", func() (bool, string) {
		n := tr.counted()[call{Method: http.MethodGet, Resource: "leases"}]
		return n > 10*len(rivals), fmt.Sprintf("%d requests", n)
	})

	if acts := r.acted(func(a act) bool { return a.by != holder.GetUID() }); len(acts) > 0 {
		t.Errorf("want nothing done for others, got %v", acts)
	}

	letGo()
	s.until(t, "the holder is available", []sample.Instance{holder}, isAvailable)
	eventually(t, "the first process tries again and again", func() (bool, string) {
		n := l.refused()
		return n > 10, fmt.Sprintf("%d requests", n)
	})

	// One after the other has it, the holder first.
	left := s.list(t.Context(), t)

	for turn := 0; len(left) > 0; turn++ {
		owner := r.owner(t)
		if left[owner] == nil || turn == 0 && owner != holder.GetUID() {
			t.Fatalf("turn %d: %q has it, which isn't among %d that are left, or not the holder", turn, owner, len(left))
		}

		s.remove(t, left[owner])
		delete(left, owner)

		eventually(t, "the next one has it", func() (bool, string) {
			now := r.owner(t)
			return now != owner && (now != "" || len(left) == 0), fmt.Sprintf("%q has it", now)
		})

		if now := left[r.owner(t)]; now != nil {
			s.until(t, "the next one is available", []sample.Instance{now}, isAvailable)
		}
	}

	s.untilGone(t)

	if fouls := r.seen(); len(fouls) > 0 {
		t.Errorf("want no fouls, got %v", fouls)
	}

	if acts := r.acted(func(a act) bool { return a.process == first }); len(acts) != 1 {
		t.Errorf("want one act of the process that was cut off, got %v", acts)
	}

	if all := r.world.Inventory(); len(all) > 0 {
		t.Errorf("want no external resource left, got %v", all)
	}
}

//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// slowCloud returns a cloud whose answers take long enough for much to happen in between.
func slowCloud(seed uint64) *cloud.Cloud {
	return cloud.New(cloud.Options{
		Seed:            seed,
		Defaults:        map[string]string{"region": "north"},
		RequestLatency:  50 * time.Millisecond,
		ResponseLatency: 50 * time.Millisecond,
		ReadyAfter:      400 * time.Millisecond,
		GoneAfter:       300 * time.Millisecond,
	})
}

// A process of the provider is killed with SIGKILL 50 times at random moments, while
// 20 managed resources are created, changed, deleted and created again. However it
// ends, there is one external resource for each of them, and none once they are
// gone.
func TestKilledProvider(t *testing.T) {
	const (
		objects  = 20 // half of them Databases and half Buckets
		changing = 42 // kills while users change what they want
		deleting = 8  // kills while everything is being deleted
	)
	seed := seedOf(t)
	s := newServer(t)
	world := slowCloud(seed)
	h := newHunt(t, world)
	u := &users{server: s, rand: rand.New(rand.NewPCG(seed, 0)), slots: fleet("killed", objects/2)}
	for i := range u.slots {
		u.fill(t, i)
	}
	for i := range changing {
		u.change(t, 10)
		m := throwMoment(u.rand, reached(cloud.OpCreate), reached(cloud.OpCreate), carriedOut(cloud.OpCreate), carriedOut(cloud.OpCreate),
			reached(cloud.OpUpdate), carriedOut(cloud.OpUpdate), reached(cloud.OpDelete), carriedOut(cloud.OpDelete),
			reached(cloud.OpList), carriedOut(cloud.OpGet), apiBefore, apiBefore, apiAfter, apiAfter, anywhere)
		t.Logf("kill %d: number %d %s, or after %s", i+1, m.nth, m.place, m.wait)
		h.hunts(t, m)
	}
	t.Logf("killed while everything changed: %s", h.died())
	last := h.start(t, nil)
	u.settle(t, world)
	got := u.find(t, world)
	if diff := cmp.Diff(found{Objects: objects, Resources: objects, Named: objects}, got); diff != "" {
		t.Errorf("after %d kills, -want, +got:\n%s", changing, diff)
	}
	h.kill(anywhere, last)
	s.remove(t, u.slots...)
	for i := range deleting {
		m := throwMoment(u.rand, reached(cloud.OpDelete), carriedOut(cloud.OpDelete), carriedOut(cloud.OpGet), apiBefore, apiAfter, anywhere)
		t.Logf("kill %d: number %d %s, or after %s", changing+i+1, m.nth, m.place, m.wait)
		h.hunts(t, m)
	}
	t.Logf("killed while everything was deleted: %s", h.died())
	h.start(t, nil)
	s.untilGone(t)
	if diff := cmp.Diff(found{}, u.find(t, world)); diff != "" {
		t.Errorf("after the deletion, -want, +got:\n%s", diff)
	}
	t.Logf("%d managed resources were created in all", len(u.created))
}

// found counts what exists at the end.
type found struct {
	// Objects are the managed resources, Named those whose external name is that of
	// an external resource of theirs, Recorded those that still have a record of an
	// operation.
	Objects, Named, Recorded int

	// Resources are the external resources, Leaked those whose managed resource is
	// gone.
	Resources, Leaked int

	// Duplicated are the managed resources for which more than one was ever created.
	Duplicated int
}

// users want managed resources, each in a slot of its own, and change their minds.
type users struct {
	server server
	rand   *rand.Rand
	slots  []sample.Instance
	labels map[string]string // of what they create

	// created are the UIDs of all managed resources that were ever created.
	created []types.UID
}

// seedOf a test, to be set in the environment. The same seed gives the same moments
// and changes, though not the same course of things.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if s := os.Getenv("GRAFT_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, "GRAFT_TEST_SEED", err)
	}
	t.Logf("GRAFT_TEST_SEED=%d", seed)
	return seed
}

// fill a slot, unless there is a managed resource in it.
func (u *users) fill(t *testing.T, i int) {
	t.Helper()
	mg := fleet("killed", len(u.slots)/2)[i]
	mg.SetLabels(u.labels)
	err := u.server.Create(t.Context(), mg)
	if kerrors.IsAlreadyExists(err) {
		return
	}
	must(t, "Create()", err)
	u.slots[i] = mg
	u.created = append(u.created, mg.GetUID())
}

// change some of what is wanted.
func (u *users) change(t *testing.T, n int) {
	t.Helper()
	for range n {
		i := u.rand.IntN(len(u.slots))
		switch {
		case u.rand.IntN(2) == 0:
			patch := fmt.Appendf(nil, `{"spec":{"forProvider":{"size":%d}}}`, 2+u.rand.IntN(100))
			must(t, "Patch()", client.IgnoreNotFound(u.server.Patch(t.Context(), u.slots[i], client.RawPatch(types.MergePatchType, patch))))
		default:
			must(t, "Delete()", client.IgnoreNotFound(u.server.Delete(t.Context(), u.slots[i])))
		}

		// A managed resource that was deleted earlier may no longer exist.
		u.fill(t, u.rand.IntN(len(u.slots)))
	}
}

// settle waits until there is a managed resource in every slot, and all of them are
// what they should be.
func (u *users) settle(t *testing.T, world *cloud.Cloud) {
	t.Helper()
	eventually(t, "all slots are filled again", func() (bool, string) {
		deleting := ""
		for i, mg := range u.slots {
			u.fill(t, i)
			err := u.server.Get(t.Context(), client.ObjectKeyFromObject(mg), mg)
			must(t, "Get()", client.IgnoreNotFound(err))
			if err != nil || meta.WasDeleted(mg) {
				deleting = fmt.Sprintf("%s is gone, or being deleted", mg.GetName())
			}
		}
		return deleting == "", deleting
	})
	u.server.until(t, "all show Available, of the size asked for, and nothing is left of their operations", u.slots, func(mg sample.Instance) bool {
		return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size) && mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
	})
}

// find out what there is.
func (u *users) find(t *testing.T, world *cloud.Cloud) found {
	t.Helper()
	all := u.server.list(t.Context(), t)
	out := found{Objects: len(all)}
	for _, r := range world.Inventory() {
		mg, ok := all[types.UID(r.Owner)]
		switch out.Resources++; {
		case !ok:
			out.Leaked++
		case externalName(mg) == r.ID:
			out.Named++
		}
	}
	for _, mg := range all {
		if _, ok := mg.GetAnnotations()[asyncstate.AnnotationKeyOperation]; ok {
			out.Recorded++
		}
	}
	for _, uid := range u.created {
		if world.Stats(string(uid)).Created > 1 {
			out.Duplicated++
		}
	}
	return out
}

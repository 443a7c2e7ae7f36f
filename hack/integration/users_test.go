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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

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

// users want managed resources, each in a slot of its own, and change their minds.
type users struct {
	server server
	rand   *rand.Rand
	slots  []sample.Instance
	labels map[string]string // of what they create

	created []types.UID // of all managed resources that ever were
}

func newUsers(t *testing.T, s server, seed uint64, objects int, labels map[string]string) *users {
	t.Helper()
	u := &users{server: s, rand: rand.New(rand.NewPCG(seed, 0)), slots: fleet("slot", objects/2), labels: labels}
	for i := range u.slots {
		u.fill(t, i)
	}
	return u
}

// seedOf a test, to be set in the environment. The same seed gives the same moments
// and changes, though not the same course of things.
func seedOf(t *testing.T, seed uint64) uint64 {
	t.Helper()
	if s := os.Getenv("GRAFT_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, "GRAFT_TEST_SEED", err)
	}
	t.Logf("GRAFT_TEST_SEED=%d", seed)
	return seed
}

func (u *users) fill(t *testing.T, i int) {
	t.Helper()
	mg := fleet("slot", len(u.slots)/2)[i]
	mg.SetLabels(u.labels)
	err := u.server.Create(t.Context(), mg)
	if kerrors.IsAlreadyExists(err) {
		return
	}
	must(t, "Create()", err)
	u.slots[i] = mg
	u.created = append(u.created, mg.GetUID())
}

func (u *users) change(t *testing.T, n int) {
	t.Helper()
	for range n {
		i := u.rand.IntN(len(u.slots))
		if u.rand.IntN(2) == 0 {
			patch := mergePatch(fmt.Sprintf(`{"spec":{"forProvider":{"size":%d}}}`, 2+u.rand.IntN(100)))
			must(t, "Patch()", client.IgnoreNotFound(u.server.Patch(t.Context(), u.slots[i], patch)))
		} else {
			must(t, "Delete()", client.IgnoreNotFound(u.server.Delete(t.Context(), u.slots[i])))
		}

		// A managed resource that was deleted earlier may no longer exist.
		u.fill(t, u.rand.IntN(len(u.slots)))
	}
}

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
	u.server.until(
		t, "all show Available, of the size asked for, and nothing is left of their operations", u.slots,
		func(mg sample.Instance) bool {
			return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size) &&
				mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
		},
	)
}

func (u *users) check(t *testing.T, world *cloud.Cloud, n int) {
	t.Helper()
	u.server.owned(t, world, n)
	for _, uid := range u.created {
		if st := world.Stats(string(uid)); st.Created > 1 {
			t.Errorf("%s: want one external resource ever, got %+v", uid, st)
		}
	}
}

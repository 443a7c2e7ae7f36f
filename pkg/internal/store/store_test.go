package store

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func objectWith(uid string) client.Object {
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: types.UID(uid)},
	}
}

func TestKey_Get(t *testing.T) {
	cases := map[string]struct {
		reason string
		then   func(s *Store, count, other *Key[int])
		uid    string
		want   int
		len    int
	}{
		"Kept": {
			reason: "A value should be kept between reconciles.",
			then:   func(*Store, *Key[int], *Key[int]) {},
			uid:    "a",
			want:   2,
			len:    1,
		},
		"OtherKey": {
			reason: "The values of an object should not affect each other.",
			then:   func(s *Store, _, other *Key[int]) { other.Delete(s, objectWith("a")) },
			uid:    "a",
			want:   2,
			len:    1,
		},
		"Deleted": {
			reason: "A value that was deleted should be zero.",
			then:   func(s *Store, count, _ *Key[int]) { count.Delete(s, objectWith("a")) },
			uid:    "a",
			len:    1,
		},
		"AllDeleted": {
			reason: "An object without values should cost no memory.",
			then: func(s *Store, count, other *Key[int]) {
				count.Delete(s, objectWith("a"))
				other.Delete(s, objectWith("a"))
			},
			uid: "a",
		},
		"Gone": {
			reason: "An object that no longer exists should cost no memory.",
			then:   func(s *Store, _, _ *Key[int]) { s.Forget(client.ObjectKeyFromObject(objectWith("a"))) }, uid: "a",
		},
		"Recreated": {
			reason: "An object that was created again under the same name should start with nothing.",
			then:   func(*Store, *Key[int], *Key[int]) {},
			uid:    "b",
			len:    1,
		},
		"RecreatedAndUpdated": {
			reason: "The object that has the name now should replace the one before.",
			then:   func(s *Store, _, other *Key[int]) { other.Update(s, objectWith("b"), func(n *int) { *n = 7 }) },
			uid:    "a", len: 1,
		},
		"Used": {
			reason: "An object that reconciles look at should be kept.",
			then: func(s *Store, count, _ *Key[int]) {
				for range 100 {
					time.Sleep(idleTime - time.Minute)
					count.Get(s, objectWith("a"))
				}
			}, uid: "a", want: 2, len: 1,
		},
		"Rested": {
			reason: "An object should be kept for a day after it was last used.",
			then:   func(*Store, *Key[int], *Key[int]) { time.Sleep(idleTime - time.Second) },
			uid:    "a",
			want:   2,
			len:    1,
		},
		"Idle": {
			reason: "An object that no reconcile looks at should be dropped, although others are used.",
			then: func(s *Store, count, _ *Key[int]) {
				o := objectWith("c")
				o.SetName("other")
				for range 3 {
					time.Sleep(idleTime)
					count.Update(s, o, func(*int) {})
				}
			}, uid: "a", len: 1,
		},
		"IdleForLong": {
			reason: "The first use after a long time should find nothing.",
			then:   func(*Store, *Key[int], *Key[int]) { time.Sleep(2 * idleTime) },
			uid:    "a",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, count, other := &Store{}, &Key[int]{}, &Key[int]{}
				count.Update(s, objectWith("a"), func(n *int) { *n++ })
				other.Update(s, objectWith("a"), func(n *int) { *n = 5 })
				if got := count.Update(s, objectWith("a"), func(n *int) { *n++ }); got != 2 {
					t.Errorf("Update(...): got %d, want 2", got)
				}
				tc.then(s, count, other)
				if diff := cmp.Diff(tc.want, count.Get(s, objectWith(tc.uid))); diff != "" {
					t.Errorf("\n%s\nGet(...): -want, +got:\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.len, s.Len()); diff != "" {
					t.Errorf("\n%s\nLen(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestStore_FormerObject proves that an object takes nothing from the one that has its name now.
func TestStore_FormerObject(t *testing.T) {
	created := func(uid string, at time.Time) client.Object {
		o := objectWith(uid)
		o.SetCreationTimestamp(metav1.NewTime(at))
		return o
	}
	now := time.Now()
	former, current := created("a", now), created("b", now.Add(time.Minute))
	s, count := &Store{}, &Key[int]{}
	set := func(n *int) { *n = 7 }

	count.Update(s, former, set)
	count.Update(s, current, set)
	if got := count.Update(s, former, set); got != 7 {
		t.Errorf("Update(...) of the former object should return the value, got %d", got)
	}
	count.Delete(s, former)
	s.ForgetObject(former)
	if got := count.Get(s, current); got != 7 {
		t.Errorf("The object that has the name now should keep its value, got %d", got)
	}
	s.Claim(current)
	if got := count.Get(s, current); got != 7 {
		t.Errorf("A reconcile should keep the values of its object, got %d", got)
	}
	s.Claim(former)
	if count.Update(s, former, set); count.Get(s, former) != 7 {
		t.Error("The object that a reconcile has read should have values, although it seems to be the former one")
	}
	s.Claim(current)
	count.Update(s, current, set)
	s.ForgetObject(current)
	if got := count.Get(s, current); got != 0 || s.Len() != 0 {
		t.Errorf("An object that is forgotten should have no value and cost no memory, got %d of %d", got, s.Len())
	}
}

func TestStore_UID(t *testing.T) {
	s, count := &Store{}, &Key[int]{}
	name := client.ObjectKeyFromObject(objectWith("a"))
	if uid, ok := s.UID(name); ok {
		t.Errorf("UID(...): got %q of an empty store", uid)
	}
	for _, want := range []types.UID{"a", "b"} {
		count.Update(s, objectWith(string(want)), func(n *int) { *n++ })
		if uid, ok := s.UID(name); !ok || uid != want {
			t.Errorf("UID(...): want the UID %q of the last object that was stored, got %q", want, uid)
		}
	}
	s.Forget(name)
	if uid, ok := s.UID(name); ok {
		t.Errorf("UID(...): got %q of an object that was forgotten", uid)
	}
}

func TestStore_Concurrent(t *testing.T) {
	s, count := &Store{}, &Key[int]{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			o := objectWith("a")
			o.SetName(strconv.Itoa(i % 4))
			for range 100 {
				count.Update(s, o, func(n *int) { *n++ })
			}
		})
	}
	wg.Wait()
	o := objectWith("a")
	o.SetName("3")
	if got := count.Get(s, o); got != 200 {
		t.Errorf("Concurrent updates should all count: got %d, want 200", got)
	}
}

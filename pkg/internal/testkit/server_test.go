package testkit_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// A write with a resource version never overwrites a concurrent write. Otherwise the
// tests of conflicts would prove nothing.
func TestResourceVersionGuards(t *testing.T) {
	const writers, each = 4, 20

	writes := map[string]func(ctx context.Context, c client.Client, b *testkit.Bucket, n string) error{
		"Update": func(ctx context.Context, c client.Client, b *testkit.Bucket, n string) error {
			b.Spec.ForProvider.Region = n
			return c.Update(ctx, b)
		},
		"Patch": func(ctx context.Context, c client.Client, b *testkit.Bucket, n string) error {
			return c.Patch(ctx, b, guarded(b, `"spec":{"forProvider":{"region":"`+n+`"}}`))
		},
		"StatusUpdate": func(ctx context.Context, c client.Client, b *testkit.Bucket, n string) error {
			b.Status.AtProvider.ID = n
			return c.Status().Update(ctx, b)
		},
		"StatusPatch": func(ctx context.Context, c client.Client, b *testkit.Bucket, n string) error {
			return c.Status().Patch(ctx, b, guarded(b, `"status":{"atProvider":{"id":"`+n+`"}}`))
		},
	}

	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			c := testkit.NewAPI(&testkit.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}).Client()
			key := client.ObjectKey{Namespace: "default", Name: "b"}

			// Of either field, what is written is one more than what was read.
			count := func(b *testkit.Bucket) int {
				n, _ := strconv.Atoi(b.Spec.ForProvider.Region + b.Status.AtProvider.ID)
				return n
			}

			var all sync.WaitGroup

			for range writers {
				all.Go(func() {
					for done := 0; done < each; {
						b := &testkit.Bucket{}

						err := c.Get(t.Context(), key, b)
						if err == nil {
							err = write(t.Context(), c, b, strconv.Itoa(count(b)+1))
						}

						switch {
						case err == nil:
							done++
						case !kerrors.IsConflict(err):
							t.Errorf("want a conflict or nothing, got %v", err)
							return
						}
					}
				})
			}

			all.Wait()

			b := &testkit.Bucket{}
			if err := c.Get(t.Context(), key, b); err != nil {
				t.Fatal(err)
			}

			if got := count(b); got != writers*each {
				t.Errorf("%d writes were accepted, of which %d are left", writers*each, got)
			}
		})
	}
}

// guarded returns a merge patch that names the version of b.
func guarded(b *testkit.Bucket, body string) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},%s}`, b.GetResourceVersion(), body))
}

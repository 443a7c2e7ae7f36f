package watch_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/watch/internal/watchtest"
)

// Watches of metadata are watches: they deliver, stop, and leave nothing.
func TestMetadataWatches(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			k := watchtest.NewKind("Widget")
			api := watchtest.NewAPI(k)
			o := k.Object("one")
			o.Object["spec"] = map[string]any{"big": "x"}
			api.Put(o, k)

			r := graft(t, api)
			r.mgr.Elect()

			for range 20 {
				r.start("c", idle())

				got := make(chan client.Object, 10)
				w := watchOf(k, handlerFuncs(func(o client.Object) { got <- o }))
				w.kind = partial(k)

				r.watch("c", w)

				if o := <-got; o.GetUID() == "" || o.GetObjectKind().GroupVersionKind() != k.GVK {
					t.Errorf("got %T %s with UID %q", o, o.GetObjectKind().GroupVersionKind(), o.GetUID())
				}

				r.stop("c")

				pass(time.Hour)
			}
		})
	}
}

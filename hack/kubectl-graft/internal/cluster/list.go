package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

const (
	// pageSize is how many objects a request for a list returns.
	pageSize = 500

	// workers is how many kinds are listed, or objects read, at a time.
	workers = 16

	// maxRestarts is how often the list of a kind starts again because it expired
	// between two pages.
	maxRestarts = 3
)

// tables asks for the columns that kubectl prints, and the metadata of each object:
// Crossplane's kinds have a column SYNCED. A whole status is read only of the
// objects that need it.
const tables = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"

// UnknownStatus is the value of Synced if a kind of Crossplane's has no such column.
const UnknownStatus = "Unknown"

// An Item is an object of a list: its metadata, and the column SYNCED.
type Item struct {
	Kind Kind
	Metadata

	Synced string
}

// Metadata of an object.
type Metadata struct {
	Name              string                  `json:"name"`
	Namespace         string                  `json:"namespace"`
	UID               types.UID               `json:"uid"`
	CreationTimestamp metav1.Time             `json:"creationTimestamp"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp"`
	Labels            map[string]string       `json:"labels"`
	Annotations       map[string]string       `json:"annotations"`
	Finalizers        []string                `json:"finalizers"`
	OwnerReferences   []metav1.OwnerReference `json:"ownerReferences"`

	// Conflict is read from the managed fields, which are the largest part and not kept.
	Conflict diagnosis.Conflict `json:"managedFields"`
}

// Unread is a kind that could not be listed.
type Unread struct {
	Kind Kind
	Err  error
}

// Progress is called with the number of kinds and objects that have been listed.
type Progress func(kinds, objects int)

// List returns the objects of the kinds, ordered by kind, namespace and name, and the kinds
// that could not be listed. An empty namespace means all.
func (c *Cluster) List(ctx context.Context, kinds []Kind, namespace string, progress Progress) ([]Item, []Unread) {
	var (
		mu     sync.Mutex
		items  []Item
		unread []Unread
		done   int
	)

	Each(kinds, func(_ int, k Kind) {
		of, err := c.listKind(ctx, k, namespace)
		mu.Lock()
		defer mu.Unlock()
		done++
		items = append(items, of...)
		if err != nil {
			unread = append(unread, Unread{Kind: k, Err: err})
		}
		if progress != nil {
			progress(done, len(items))
		}
	})

	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(strings.Compare(a.Kind.String(), b.Kind.String()), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(unread, func(a, b Unread) int { return strings.Compare(a.Kind.String(), b.Kind.String()) })
	return items, unread
}

// listKind returns the objects of one kind.
func (c *Cluster) listKind(ctx context.Context, k Kind, namespace string) ([]Item, error) {
	var out []Item
	for next, restarts := "", 0; ; {
		p, err := c.page(ctx, k, namespace, next)
		switch {
		case kerrors.IsNotFound(err):
			return nil, nil // The kind was removed since it was discovered.
		case kerrors.IsResourceExpired(err) && next != "" && restarts < maxRestarts:
			out, next = nil, ""
			restarts++
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, p.items(k)...)
		if next = p.Metadata.Continue; next == "" {
			return out, nil
		}
	}
}

func (c *Cluster) page(ctx context.Context, k Kind, namespace, next string) (page, error) {
	prefix := "/apis/" + k.Group
	if k.Group == "" {
		prefix = "/api"
	}
	parts := []string{prefix, k.Version}
	if k.Namespaced && namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	r := c.requests.Get().AbsPath(append(parts, k.Resource)...).SetHeader("Accept", tables).
		Param("limit", strconv.Itoa(pageSize)).Param("includeObject", "Metadata")
	if next != "" {
		r = r.Param("continue", next)
	}
	text, err := r.Do(ctx).Raw()
	if err != nil {
		return page{}, err
	}
	p := page{}
	err = json.Unmarshal(text, &p)
	return p, err
}

// A page of a table, or of a list if the server of the kind has no tables.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`

	Columns []struct {
		Name string `json:"name"`
	} `json:"columnDefinitions"`
	Rows []struct {
		Cells  []any  `json:"cells"`
		Object object `json:"object"`
	} `json:"rows"`

	Items []object `json:"items"`
}

type object struct {
	Metadata Metadata `json:"metadata"`
}

func (p page) items(k Kind) []Item {
	out := make([]Item, 0, len(p.Rows)+len(p.Items))
	unknown := ""
	if k.In(Managed, Composite, Claim) {
		unknown = UnknownStatus
	}
	for _, r := range p.Rows {
		i := Item{Kind: k, Metadata: r.Object.Metadata, Synced: unknown}
		for n, col := range p.Columns {
			if n >= len(r.Cells) {
				break
			}
			s, _ := r.Cells[n].(string)
			if strings.EqualFold(col.Name, "synced") {
				i.Synced = s
			}
		}
		out = append(out, i)
	}
	for _, o := range p.Items {
		out = append(out, Item{Kind: k, Metadata: o.Metadata, Synced: unknown})
	}
	return out
}

// bulk is how many objects of a kind are read one by one at most. For more, all objects of
// the kind are listed.
const bulk = 50

// Read returns the listed objects, whole. Those that no longer exist are left out.
func (c *Cluster) Read(ctx context.Context, items []Item) (map[types.UID]*unstructured.Unstructured, []Unread) {
	of := map[string][]Item{}
	var kinds []Kind
	for _, i := range items {
		k := i.Kind.String()
		if of[k] == nil {
			kinds = append(kinds, i.Kind)
		}
		of[k] = append(of[k], i)
	}

	var (
		mu     sync.Mutex
		out    = map[types.UID]*unstructured.Unstructured{}
		unread []Unread
		single []Item
		many   []Kind
	)
	keep := func(k Kind, o *unstructured.Unstructured, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			out[o.GetUID()] = o
		case !kerrors.IsNotFound(err) && !slices.ContainsFunc(unread, isOf(k)):
			unread = append(unread, Unread{Kind: k, Err: err})
		}
	}
	for _, k := range kinds {
		if len(of[k.String()]) > bulk {
			many = append(many, k)
		} else {
			single = append(single, of[k.String()]...)
		}
	}
	Each(many, func(_ int, k Kind) {
		list, err := c.Objects(ctx, k, namespaceOf(of[k.String()]))
		if err != nil {
			keep(k, nil, err)
		}
		for i := range list {
			keep(k, &list[i], nil)
		}
	})
	Each(single, func(_ int, i Item) {
		o, err := c.Get(ctx, i.Kind, i.Namespace, i.Name)
		keep(i.Kind, o, err)
	})
	return out, unread
}

func isOf(k Kind) func(Unread) bool {
	return func(u Unread) bool { return u.Kind.String() == k.String() }
}

// namespaceOf returns the namespace that all items are in, or none.
func namespaceOf(items []Item) string {
	for _, i := range items {
		if i.Namespace != items[0].Namespace {
			return ""
		}
	}
	return items[0].Namespace
}

// Each calls fn for each of list and its index, a few at a time, and waits for all.
func Each[T any](list []T, fn func(at int, v T)) {
	var wg sync.WaitGroup
	free := make(chan struct{}, workers)
	for at, v := range list {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			fn(at, v)
		})
	}
	wg.Wait()
}

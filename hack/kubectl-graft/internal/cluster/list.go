package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

const (
	pageSize    = 500 // Objects in a page of a list.
	workers     = 16  // Kinds that are listed, or objects that are read, at a time.
	maxRestarts = 3   // Times that a list begins again because it expired between two pages.
	bulk        = 50  // Objects of a kind that are read one by one. For more, all of the kind are listed.
)

// tables asks for the columns that kubectl prints, and the metadata of each object: Crossplane's kinds have a column
// SYNCED. A whole status is read only of the objects that need it.
const tables = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"

// UnknownStatus is the value of Synced if a kind of Crossplane's has no such column.
const UnknownStatus = "Unknown"

// An Item is an object of a list: its metadata, and the column SYNCED.
type Item struct {
	Kind   Kind   `json:"-"`
	Synced string `json:"-"`

	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               types.UID         `json:"uid"`
	DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
	Finalizers        []string          `json:"finalizers"`

	// Conflict is read from the managed fields, which are the largest part and not kept.
	Conflict diagnosis.Conflict `json:"managedFields"`
}

// Reference returns what identifies the object.
func (i Item) Reference() corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: i.Kind.GroupVersion().String(), Kind: i.Kind.Kind, Namespace: i.Namespace, Name: i.Name, UID: i.UID,
	}
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
		of, err := pages(func(next string) ([]Item, string, error) { return c.page(ctx, k, namespace, next) })
		mu.Lock()
		defer mu.Unlock()
		done++
		if err != nil && !kerrors.IsNotFound(err) { // A kind that is not found was removed since it was discovered.
			unread = append(unread, Unread{Kind: k, Err: err})
		}
		items = append(items, of...)
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

// pages returns the items of all pages of a list. It begins again if the list expires between two pages.
func pages[T any](page func(next string) ([]T, string, error)) ([]T, error) {
	var out []T
	for next, restarts := "", 0; ; {
		items, after, err := page(next)
		switch {
		case kerrors.IsResourceExpired(err) && next != "" && restarts < maxRestarts:
			out, next, restarts = nil, "", restarts+1
			continue
		case err != nil:
			return nil, err
		}
		out = append(out, items...)
		if next = after; next == "" {
			return out, nil
		}
	}
}

// page returns the items of one page of a kind, and where the next begins.
func (c *Cluster) page(ctx context.Context, k Kind, namespace, next string) ([]Item, string, error) {
	path := []string{"/apis", k.Group, k.Version}
	if k.Group == "" {
		path = []string{"/api", k.Version}
	}
	if k.Resource.Namespaced && namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	r := c.requests.Get().AbsPath(append(path, k.Resource.Name)...).SetHeader("Accept", tables).
		Param("limit", strconv.Itoa(pageSize)).Param("includeObject", "Metadata")
	if next != "" {
		r = r.Param("continue", next)
	}
	text, err := r.Do(ctx).Raw()
	if err != nil {
		return nil, "", err
	}
	p := page{}
	err = json.Unmarshal(text, &p)
	return p.items(k), p.Metadata.Continue, err
}

// A page of a table, or of a list if the server of the kind has no tables.
type page struct {
	Metadata metav1.ListMeta                `json:"metadata"`
	Columns  []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows     []struct {
		Cells  []any `json:"cells"`
		Object row   `json:"object"`
	} `json:"rows"`
	Items []row `json:"items"`
}

type row struct {
	Metadata Item `json:"metadata"`
}

func (p page) items(k Kind) []Item {
	var out []Item
	unknown := ""
	if k.In(Managed, Composite, Claim) {
		unknown = UnknownStatus
	}
	add := func(i Item, synced string) {
		i.Kind, i.Synced = k, synced
		out = append(out, i)
	}
	at := slices.IndexFunc(p.Columns, func(c metav1.TableColumnDefinition) bool {
		return strings.EqualFold(c.Name, "synced")
	})
	for _, r := range p.Rows {
		synced := unknown
		if at >= 0 && at < len(r.Cells) {
			synced, _ = r.Cells[at].(string)
		}
		add(r.Object.Metadata, synced)
	}
	for _, o := range p.Items {
		add(o.Metadata, unknown)
	}
	return out
}

// Read returns the listed objects, whole. Those that no longer exist are left out.
func (c *Cluster) Read(ctx context.Context, items []Item) (map[types.UID]*unstructured.Unstructured, []Unread) {
	of := map[string][]Item{}
	for _, i := range items {
		of[i.Kind.String()] = append(of[i.Kind.String()], i)
	}

	// A read is of one object, or of all of a kind.
	var reads [][]Item
	for _, kind := range slices.Sorted(maps.Keys(of)) {
		size := 1
		if len(of[kind]) > bulk {
			size = len(of[kind])
		}
		reads = slices.AppendSeq(reads, slices.Chunk(of[kind], size))
	}
	found, errs := make([][]unstructured.Unstructured, len(reads)), make([]error, len(reads))
	Each(reads, func(at int, of []Item) {
		if len(of) > 1 {
			found[at], errs[at] = c.Objects(ctx, of[0].Kind, namespaceOf(of))
			return
		}
		o, err := c.Get(ctx, of[0].Kind, of[0].Namespace, of[0].Name)
		if errs[at] = err; err == nil {
			found[at] = []unstructured.Unstructured{*o}
		}
	})

	out, unread := map[types.UID]*unstructured.Unstructured{}, []Unread(nil)
	for at, objects := range found {
		for n := range objects {
			out[objects[n].GetUID()] = &objects[n]
		}
		k := reads[at][0].Kind
		isOf := func(u Unread) bool { return u.Kind.String() == k.String() }
		if err := errs[at]; err != nil && !kerrors.IsNotFound(err) && !slices.ContainsFunc(unread, isOf) {
			unread = append(unread, Unread{Kind: k, Err: err})
		}
	}
	return out, unread
}

// namespaceOf returns the namespace that all items are in, or none.
func namespaceOf(items []Item) string {
	if slices.ContainsFunc(items, func(i Item) bool { return i.Namespace != items[0].Namespace }) {
		return ""
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

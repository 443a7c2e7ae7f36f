package main

import (
	"context"
	"encoding/json"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

func newReservations(p *plugin) *cobra.Command {
	r := &reservations{listing: listing{output: output{plugin: p}}}
	c := p.command(&cobra.Command{
		Use:   "reservations",
		Short: "List reserved external names and their holders, or who waits for one",
		Long: `List the external names that are reserved, and the managed resources that hold them. A
provider with Graft's option reservation.With keeps them as Leases, in its
namespace. A reservation is Free if its holder no longer exists: the next managed
resource that needs the name takes it over.`,
		Example: `  # All of them.
  kubectl graft reservations -A

  # Managed resources that wait for a name. The exit status is 1 if there are any.
  kubectl graft reservations -A --conflicts`,
	}, 0, 0, r.run)
	r.addFlags(c, wide)
	c.Flags().BoolVar(&r.conflicts, "conflicts", false,
		"List the managed resources that wait for a name which another has.")
	return c
}

type reservations struct {
	listing

	conflicts bool
}

// A reservation of an external name.
type reservation struct {
	Namespace string                  `json:"namespace"`
	Lease     string                  `json:"lease"`
	Reserves  string                  `json:"reserves"`
	Holder    *corev1.ObjectReference `json:"holder,omitempty"`
	State     string                  `json:"state"` // Held, Free if the holder no longer exists, or Unknown.
}

func (r *reservations) run(ctx context.Context, _ []string) error {
	if r.conflicts {
		return r.waiting(ctx)
	}
	k, ok := r.cluster.Of(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"})
	if !ok {
		return errors.New("the API server has no Leases")
	}
	items, unread := r.list(ctx, []cluster.Kind{k})
	out := []reservation{}
	for _, i := range items {
		reserves, ok := i.Annotations[diagnosis.AnnotationReserves]
		if !ok {
			continue
		}
		v := reservation{Namespace: i.Namespace, Lease: i.Name, Reserves: reserves, State: "Unknown"}
		h := &corev1.ObjectReference{}
		if json.Unmarshal([]byte(i.Annotations[diagnosis.AnnotationHolder]), h) == nil && h.Name != "" {
			v.Holder = h
		}
		out = append(out, v)
	}
	unread = append(unread, r.settle(ctx, out)...)

	table := result{
		kind: "ReservationList", body: map[string]any{"items": out}, unread: unread,
		none:   "No external name is reserved.",
		header: []string{"NAMESPACE", "STATE", "HOLDER", "RESERVES", "LEASE"}, narrow: 4,
	}
	for _, v := range out {
		holder := ""
		if v.Holder != nil {
			holder = nameOf(*v.Holder)
		}
		table.rows = append(table.rows, []string{v.Namespace, v.State, holder, v.Reserves, v.Lease})
	}
	return r.show(ctx, table)
}

// settle finds out which holders still exist.
func (r *reservations) settle(ctx context.Context, list []reservation) []cluster.Unread {
	known := map[schema.GroupKind]bool{}
	for _, v := range list {
		if v.Holder != nil {
			gk := v.Holder.GroupVersionKind().GroupKind()
			_, known[gk] = r.cluster.Of(gk)
		}
	}
	items, unread := r.cluster.List(ctx, r.cluster.Among(known), "", nil)
	exists := map[place]types.UID{}
	for _, i := range items {
		exists[placeOf(i.Reference())] = i.UID
	}
	for _, u := range unread {
		known[u.Kind.GroupKind()] = false
	}
	for i, v := range list {
		if v.Holder == nil {
			continue
		}
		uid, ok := exists[placeOf(*v.Holder)]
		switch {
		case ok && uid == v.Holder.UID:
			list[i].State = "Held"
		case known[v.Holder.GroupVersionKind().GroupKind()]:
			list[i].State = "Free"
		}
	}
	return unread
}

// waiting lists the managed resources that wait for a name.
func (r *reservations) waiting(ctx context.Context) error {
	if err := r.cluster.RequireCrossplane(); err != nil {
		return err
	}
	found := []node{}
	table := result{
		kind: "ConflictList", none: "No managed resource waits for an external name.",
		header: []string{"NAMESPACE", "NAME", "EXTERNAL-NAME", "MESSAGE"}, narrow: 4,
	}
	table.unread = r.each(ctx, r.cluster.InCategories(cluster.Managed), func(i cluster.Item) bool {
		return i.Synced == "False" || i.Synced == cluster.UnknownStatus // One that waits can't be reconciled.
	}, func(o object) {
		if holder, waits := diagnosis.WaitsForName(o.Unstructured); waits {
			n := r.diagnose(o)
			found = append(found, n)
			table.rows = append(table.rows, []string{n.Object.Namespace, n.name, n.ExternalName, holder})
		}
	})
	table.unread = append(table.unread, r.undescribed(cluster.Managed)...)
	table.body = map[string]any{"items": found}
	if err := r.show(ctx, table); len(found) == 0 || err != nil && !errors.Is(err, errGap) {
		return err
	}
	return errFound
}

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

func newReservations(p *plugin) *cobra.Command {
	r := &reservations{listing: listing{plugin: p}}
	c := &cobra.Command{
		Use:   "reservations",
		Short: "List reserved external names and their holders, or who waits for one",
		Long: `List the external names that are reserved, and the managed resources that hold them. A
provider with Graft's option WithExternalNameReservation keeps them as Leases, in its
namespace. A reservation is Free if its holder no longer exists: the next managed
resource that needs the name takes it over.`,
		Example: `  # All of them.
  kubectl graft reservations -A

  # Managed resources that wait for a name. The exit status is 1 if there are any.
  kubectl graft reservations -A --conflicts`,
		Args: between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return r.run(c.Context()) },
	}
	r.addFlags(c, true)
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
	Namespace string    `json:"namespace"`
	Lease     string    `json:"lease"`
	Reserves  string    `json:"reserves"`
	Holder    *identity `json:"holder,omitempty"`

	// State is Held, Free if the holder no longer exists, or Unknown if it can't be read.
	State string `json:"state"`
}

func (r *reservations) run(ctx context.Context) error {
	c, err := r.open()
	if err != nil {
		return err
	}
	if r.conflicts {
		return r.waiting(ctx, c)
	}
	k, ok := c.Of(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"})
	if !ok {
		return errors.New("the API server has no Leases")
	}
	items, unread := r.list(ctx, c, []cluster.Kind{k})
	out := []reservation{}
	for _, i := range items {
		reserves, ok := i.Annotations[diagnosis.AnnotationReserves]
		if !ok {
			continue
		}
		v := reservation{Namespace: i.Namespace, Lease: i.Name, Reserves: reserves, State: "Unknown"}
		h := &identity{}
		if json.Unmarshal([]byte(i.Annotations[diagnosis.AnnotationHolder]), h) == nil && h.Name != "" {
			v.Holder = h
		}
		out = append(out, v)
	}
	unread = append(unread, r.settle(ctx, c, out)...)
	gap := r.warn(unread)

	if err := r.write(out); err != nil {
		return err
	}
	if gap {
		return errGap
	}
	return nil
}

// settle finds out which holders still exist.
func (r *reservations) settle(ctx context.Context, c *cluster.Cluster, list []reservation) []cluster.Unread {
	wanted := map[schema.GroupKind]bool{}
	for _, v := range list {
		if v.Holder != nil {
			gk := schema.FromAPIVersionAndKind(v.Holder.APIVersion, v.Holder.Kind).GroupKind()
			_, wanted[gk] = c.Of(gk)
		}
	}
	items, unread := c.List(ctx, c.Among(wanted), "", nil)
	exists := map[string]bool{}
	for _, i := range items {
		exists[keyOf(i.Kind.GroupKind(), i.Namespace, i.Name)+string(i.UID)] = true
	}
	for _, u := range unread {
		wanted[u.Kind.GroupKind()] = false
	}
	for i, v := range list {
		if v.Holder == nil {
			continue
		}
		gk := schema.FromAPIVersionAndKind(v.Holder.APIVersion, v.Holder.Kind).GroupKind()
		switch {
		case exists[keyOf(gk, v.Holder.Namespace, v.Holder.Name)+string(v.Holder.UID)]:
			list[i].State = "Held"
		case wanted[gk]:
			list[i].State = "Free"
		}
	}
	return unread
}

func (r *reservations) write(list []reservation) error {
	isText, all := r.out.text()
	if !isText {
		return r.out.print(r.streams.Out, "ReservationList", map[string]any{"items": list})
	}
	if len(list) == 0 {
		fmt.Fprintln(r.streams.ErrOut, "No external name is reserved.")
		return nil
	}
	header := []string{"NAMESPACE", "STATE", "HOLDER", "RESERVES"}
	if all {
		header = append(header, "LEASE")
	}
	var rows [][]string
	for _, v := range list {
		holder := ""
		if v.Holder != nil {
			holder = nameOf(v.Holder.Kind, v.Holder.Namespace, v.Holder.Name)
		}
		row := []string{v.Namespace, v.State, holder, v.Reserves}
		if all {
			row = append(row, v.Lease)
		}
		rows = append(rows, row)
	}
	return text.WriteTable(r.streams.Out, header, rows)
}

// waiting lists the managed resources that wait for a name.
func (r *reservations) waiting(ctx context.Context, c *cluster.Cluster) error {
	if err := c.RequireCrossplane(); err != nil {
		return err
	}
	items, unread := r.list(ctx, c, c.InCategories(cluster.Managed))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failing []cluster.Item
	for _, i := range items {
		// One that waits can't be reconciled.
		if i.Synced == "False" || i.Synced == cluster.UnknownStatus {
			failing = append(failing, i)
		}
	}
	objects, more := c.Read(ctx, failing)
	found := []node{}
	var rows [][]string
	for _, i := range failing {
		u, ok := objects[i.UID]
		if !ok || !diagnosis.WaitsForName(u) {
			continue
		}
		o := object{Unstructured: u, kind: i.Kind}
		n := node{Diagnosis: diagnosis.Of(u, r.targetOf(o), r.now()), Object: identityOf(o)}
		found = append(found, n)
		rows = append(rows,
			[]string{i.Namespace, i.Kind.String() + "/" + i.Name, n.ExternalName, diagnosis.ReservationMessage(u)})
	}
	gap := r.warn(append(unread, more...))

	isText, _ := r.out.text()
	var err error
	switch {
	case !isText:
		err = r.out.print(r.streams.Out, "ConflictList", map[string]any{"items": found})
	case len(rows) == 0 && gap:
	case len(rows) == 0:
		fmt.Fprintln(r.streams.ErrOut, "No managed resource waits for an external name.")
	default:
		err = text.WriteTable(r.streams.Out, []string{"NAMESPACE", "NAME", "EXTERNAL-NAME", "MESSAGE"}, rows)
	}
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		return errFound
	case gap:
		return errGap
	}
	return nil
}

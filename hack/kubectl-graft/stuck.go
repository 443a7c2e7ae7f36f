package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// stuckInterval is how often stuck --watch reads the objects.
const stuckInterval = 5 * time.Second

// errGap ends a command that has found nothing, but could not read all.
var errGap = errors.New("not all could be read")

func newStuck(p *plugin) *cobra.Command {
	s := &stuck{listing: listing{plugin: p}}
	c := &cobra.Command{
		Use:   "stuck [KIND,CATEGORY...]",
		Short: "List what is being deleted, or stopped until a person acts, longest first",
		Long: `List what is being deleted, or stopped until a person acts, longest first.

Without arguments: managed resources, composites, claims, Crossplane's own kinds,
namespaces and CRDs. Cluster-scoped objects are listed with each namespace.`,
		Example: `  # In all namespaces.
  kubectl graft stuck -A

  # Managed resources whose deletion takes more than an hour, for a script.
  kubectl graft stuck managed -A --older-than 1h -o json

  # Until nothing is stuck, after a repair.
  kubectl graft stuck -A --watch`,
		Args: between(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return s.run(c.Context(), args) },
	}
	s.addFlags(c, true)
	c.Flags().BoolVar(&s.failing, "failing", false, "List also what is retried and fails: Synced is False.")
	c.Flags().BoolVarP(&s.watch, "watch", "w", false, "Print the list again when it changes, until nothing is stuck.")
	c.Flags().DurationVar(&s.olderThan, "older-than", 0, "List only objects that are stuck for longer than this.")
	return c
}

type stuck struct {
	listing

	failing, watch bool
	olderThan      time.Duration
}

// stuckList is what -o json prints.
type stuckList struct {
	Items []node `json:"items"`

	// Unread are kinds that could not be read.
	Unread []string `json:"unread,omitempty"`
}

func (s *stuck) run(ctx context.Context, args []string) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	kinds, err := s.kinds(c, args)
	if err != nil {
		return err
	}
	var (
		shown *stuckList
		found error
	)
	for {
		out, unread := s.find(ctx, c, kinds)
		if err := ctx.Err(); err != nil {
			return cmp.Or(found, err)
		}
		gap := s.warn(unread)
		if shown == nil || !reflect.DeepEqual(out, *shown) {
			if isText, _ := s.out.text(); isText && shown != nil && len(out.Items) > 0 {
				fmt.Fprintln(s.streams.Out)
			}
			if err := s.write(out, gap); err != nil {
				return err
			}
			shown = &out
		}

		found = nil
		switch {
		case len(out.Items) > 0:
			found = errFound
		case gap:
			found = errGap
		}
		if found == nil || !s.watch || s.wait(ctx, stuckInterval) != nil {
			return found
		}
	}
}

// find returns the objects that are stuck, and the kinds that could not be read.
func (s *stuck) find(ctx context.Context, c *cluster.Cluster, kinds []cluster.Kind) (stuckList, []cluster.Unread) {
	items, unread := s.list(ctx, c, kinds)
	items = slices.DeleteFunc(items, func(i cluster.Item) bool {
		fine := i.Synced != "False" && i.Synced != cluster.UnknownStatus && !bool(i.Conflict)
		return fine && i.DeletionTimestamp == nil && !diagnosis.MayBeStopped(i.Annotations)
	})
	objects, more := c.Read(ctx, items)
	unread = append(unread, more...)

	out := stuckList{Items: []node{}, Unread: unreadNames(unread)}
	for _, i := range items {
		u, ok := objects[i.UID]
		if !ok {
			continue
		}
		o := object{Unstructured: u, kind: i.Kind}
		n := node{Diagnosis: diagnosis.Of(u, s.targetOf(o), s.now()), Object: identityOf(o)}
		n.name = i.Kind.String() + "/" + i.Name
		if s.lists(n.Diagnosis) {
			out.Items = append(out.Items, n)
		}
	}
	slices.SortStableFunc(out.Items, func(a, b node) int { return cmp.Compare(s.since(a), s.since(b)) })
	return out, unread
}

func (s *stuck) kinds(c *cluster.Cluster, args []string) ([]cluster.Kind, error) {
	if len(args) > 0 {
		return c.Selected(args[0])
	}
	if err := c.RequireCrossplane(); err != nil {
		return nil, err
	}
	kinds := c.InCategories(cluster.Managed, cluster.Composite, cluster.Claim, cluster.Crossplane)
	for _, gk := range []schema.GroupKind{kindNamespace, kindCRD} {
		if k, ok := c.Of(gk); ok {
			kinds = append(kinds, k)
		}
	}
	return kinds, nil
}

func (s *stuck) lists(d diagnosis.Diagnosis) bool {
	if d.Since != nil && s.now().Sub(d.Since.Time) < s.olderThan {
		return false
	}
	return d.State == diagnosis.Deleting || d.State == diagnosis.Stopped || s.failing && d.State == diagnosis.Failing
}

// since returns the start of a state, to order by. A node without a time comes last.
func (s *stuck) since(n node) int64 {
	if n.Since == nil {
		return s.now().Unix()
	}
	return n.Since.Unix()
}

func (s *stuck) write(out stuckList, gap bool) error {
	isText, all := s.out.text()
	if !isText {
		return s.out.print(s.streams.Out, "StuckList", out)
	}
	if len(out.Items) == 0 {
		if !gap {
			fmt.Fprintln(s.streams.ErrOut, "Nothing is stuck.")
		}
		return nil
	}
	header := []string{"NAMESPACE", "NAME", "STATE", "AGE", "REASON"}
	if all {
		header = append(header, "FINALIZERS", "MESSAGE")
	}
	var rows [][]string
	for _, n := range out.Items {
		age, reason := "", n.Reason
		if n.Since != nil {
			age = text.Age(n.Since.Time, s.now())
		}
		if n.Guess {
			reason += " (guess)"
		}
		r := []string{n.Object.Namespace, n.name, string(n.State), age, reason}
		if all {
			var held []string
			for _, f := range n.Finalizers {
				held = append(held, f.Name)
			}
			r = append(r, strings.Join(held, ","), n.Message)
		}
		rows = append(rows, r)
	}
	return text.WriteTable(s.streams.Out, header, rows)
}

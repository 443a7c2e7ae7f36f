package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// stuckInterval is how often stuck --watch reads the objects.
const stuckInterval = 5 * time.Second

func newStuck(p *plugin) *cobra.Command {
	s := &stuck{listing: listing{output: output{plugin: p}}}
	c := p.command(&cobra.Command{
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
	}, 0, 1, s.run)
	s.addFlags(c, wide)
	c.Flags().BoolVar(&s.failing, "failing", false, "List also what is retried and fails: Synced is False.")
	c.Flags().BoolVarP(&s.again, "watch", "w", false, "Print the list again when it changes, until nothing is stuck.")
	c.Flags().DurationVar(&s.olderThan, "older-than", 0, "List only objects that are stuck for longer than this.")
	return c
}

type stuck struct {
	listing

	failing, again bool
	olderThan      time.Duration
}

// stuckList is what -o json prints.
type stuckList struct {
	Items  []node   `json:"items"`
	Unread []string `json:"unread,omitempty"` // Kinds that could not be read.
}

func (s *stuck) run(ctx context.Context, args []string) error {
	kinds, err := s.kinds(args)
	if err != nil {
		return err
	}
	var unread []cluster.Unread
	look := func() (any, error) {
		var out stuckList
		out, unread = s.find(ctx, kinds)
		unread = append(unread, s.undescribed(args...)...)
		out.Unread = unreadNames(unread)
		switch {
		case len(out.Items) > 0:
			return out, errFound
		case s.gap(unread):
			return out, errGap
		}
		return out, nil
	}
	first := true
	return s.watch(ctx, s.again, stuckInterval, look, func(seen any) error {
		out, _ := seen.(stuckList)
		if s.isText() && !first && len(out.Items) > 0 {
			fmt.Fprintln(s.streams.Out)
		}
		first = false
		if err := s.show(ctx, s.table(out, unread)); !errors.Is(err, errGap) {
			return err
		}
		return nil
	})
}

// find returns the objects that are stuck, and the kinds that could not be read.
func (s *stuck) find(ctx context.Context, kinds []cluster.Kind) (stuckList, []cluster.Unread) {
	out := stuckList{Items: []node{}}
	unread := s.each(ctx, kinds, func(i cluster.Item) bool {
		return i.DeletionTimestamp != nil || i.Synced == "False" || i.Synced == cluster.UnknownStatus ||
			bool(i.Conflict) || diagnosis.MayBeStopped(i.Annotations)
	}, func(o object) {
		if n := s.diagnose(o); s.lists(n.Diagnosis) {
			out.Items = append(out.Items, n)
		}
	})

	// A state without a time comes last.
	since := func(n node) int64 { return cmp.Or(n.Since, &metav1.Time{Time: s.now()}).Unix() }
	slices.SortStableFunc(out.Items, func(a, b node) int { return cmp.Compare(since(a), since(b)) })
	return out, unread
}

func (s *stuck) kinds(args []string) ([]cluster.Kind, error) {
	if len(args) > 0 {
		return s.cluster.Selected(args[0])
	}
	if err := s.cluster.RequireCrossplane(); err != nil {
		return nil, err
	}
	kinds := s.cluster.InCategories(cluster.Managed, cluster.Composite, cluster.Claim, cluster.Crossplane)
	return append(kinds, s.cluster.Among(map[schema.GroupKind]bool{kindNamespace: true, kindCRD: true})...), nil
}

func (s *stuck) lists(d diagnosis.Diagnosis) bool {
	if d.Since != nil && s.now().Sub(d.Since.Time) < s.olderThan {
		return false
	}
	return d.State == diagnosis.Deleting || d.State == diagnosis.Stopped || s.failing && d.State == diagnosis.Failing
}

func (s *stuck) table(out stuckList, unread []cluster.Unread) result {
	r := result{
		kind: "StuckList", body: out, unread: unread, none: "Nothing is stuck.",
		header: []string{"NAMESPACE", "NAME", "STATE", "AGE", "REASON", "FINALIZERS", "MESSAGE"}, narrow: 5,
	}
	for _, n := range out.Items {
		age, reason := "", n.Reason
		if n.Since != nil {
			age = text.Age(n.Since.Time, s.now())
		}
		if n.Guess {
			reason += " (guess)"
		}
		held := strings.Join(n.Finalizers.Names(), ",")
		r.rows = append(r.rows, []string{n.Object.Namespace, n.name, string(n.State), age, reason, held, n.Message})
	}
	return r
}

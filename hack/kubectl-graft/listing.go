package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
)

// progressAfter is how long a list may take before progress is shown.
const progressAfter = time.Second

// A listing is a command that reads many objects.
type listing struct {
	*plugin

	all bool
	out output
}

func (l *listing) addFlags(c *cobra.Command, hasWide bool) {
	c.Flags().BoolVarP(&l.all, "all-namespaces", "A", false, "Look at all namespaces.")
	l.out.addFlags(c, hasWide)
}

// namespace to list, or none for all.
func (l *listing) namespace(c *cluster.Cluster) string {
	if l.all {
		return ""
	}
	return c.Namespace
}

// list the objects of the kinds, with progress on a terminal.
func (l *listing) list(
	ctx context.Context, c *cluster.Cluster, kinds []cluster.Kind,
) ([]cluster.Item, []cluster.Unread) {
	if !l.terminal(l.streams.ErrOut) {
		return c.List(ctx, kinds, l.namespace(c), nil)
	}
	began, shown := l.now(), false
	items, unread := c.List(ctx, kinds, l.namespace(c), func(done, objects int) {
		if l.now().Sub(began) > progressAfter {
			shown = true
			fmt.Fprintf(l.streams.ErrOut, "\r\x1b[K%d of %d kinds, %d objects", done, len(kinds), objects)
		}
	})
	if shown {
		fmt.Fprint(l.streams.ErrOut, "\r\x1b[K")
	}
	return items, unread
}

// warn says which kinds could not be read, and reports whether that leaves a gap in what
// was asked for: without -A, a user may be allowed one namespace only.
func (l *listing) warn(unread []cluster.Unread) (gap bool) {
	var names []string
	for _, u := range unread {
		why := "forbidden"
		if !kerrors.IsForbidden(u.Err) {
			why, gap = sentence(u.Err), true
		}
		gap = gap || l.all || u.Kind.Namespaced
		names = append(names, fmt.Sprintf("%s (%s)", u.Kind, why))
	}
	if len(names) > 0 {
		fmt.Fprintf(l.streams.ErrOut, "Not read: %s.\n", strings.Join(slices.Compact(names), ", "))
	}
	return gap
}

func unreadNames(unread []cluster.Unread) []string {
	var out []string
	for _, u := range unread {
		out = append(out, u.Kind.String())
	}
	return out
}

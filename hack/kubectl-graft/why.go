package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// watchInterval is how often why --watch looks. An object is in the way of another without
// a change of that one, so that all have to be read.
const watchInterval = 2 * time.Second

func newWhy(p *plugin) *cobra.Command {
	w := &why{plugin: p}
	c := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Say why an object is not ready, or still exists, and what to do",
		Long: `Say why an object is not ready, or still exists, and what to do.

A claim, a composite, a ProviderConfig, a namespace or a definition is shown as a tree,
down to what is in its way. Objects that you may not read are named, not shown.`,
		Example: `  # Why does this bucket still exist?
  kubectl graft why bucket/photos -n team-a

  # The reason alone, for a script.
  kubectl graft why xapp/shop -o jsonpath='{.reason}'

  # Until it is ready, or no longer exists.
  kubectl graft why bucket/photos --watch`,
		Args:              between(1, 2),
		ValidArgsFunction: p.completeObjects,
		RunE:              func(c *cobra.Command, args []string) error { return w.run(c.Context(), args) },
	}
	w.out.addFlags(c, false)
	c.Flags().BoolVarP(&w.watch, "watch", "w", false,
		"Print it again when it changes, until the object is ready or no longer exists.")
	return c
}

type why struct {
	*plugin

	out   output
	watch bool
}

func (w *why) run(ctx context.Context, args []string) error {
	c, err := w.open()
	if err != nil {
		return err
	}
	o, err := w.read(ctx, c, args)
	if err != nil {
		return err
	}
	var shown *node
	for {
		i := &inspection{plugin: w.plugin, cluster: c, usages: newUsages(c)}
		n := i.examine(ctx, o, nil)
		if shown == nil || !reflect.DeepEqual(n, *shown) {
			if err := w.print(i, n); err != nil {
				return err
			}
			shown = &n
		}
		switch {
		case n.State == diagnosis.Ready:
			return nil
		case !w.watch:
			return errFound
		}
		if err := w.wait(ctx, watchInterval); err != nil {
			return errFound
		}
		u, err := c.Get(ctx, o.kind, o.GetNamespace(), o.GetName())
		switch {
		case ctx.Err() != nil:
			return errFound
		case kerrors.IsNotFound(err), err == nil && u.GetUID() != o.GetUID():
			fmt.Fprintln(w.streams.ErrOut, o.String()+" no longer exists.")
			return nil
		case err != nil:
			return err
		}
		o.Unstructured = u
	}
}

func (w *why) print(i *inspection, n node) error {
	i.warn(w.streams.ErrOut)
	if isText, _ := w.out.text(); !isText {
		return w.out.print(w.streams.Out, "Diagnosis", n)
	}
	text.WriteTree(w.streams.Out, w.render(n))
	return nil
}

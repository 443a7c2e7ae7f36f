package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

func newWhy(p *plugin) *cobra.Command {
	out := &output{}
	c := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Say why an object is not ready, or still exists, and what to do",
		Long: `Say why an object is not ready, or still exists, and what to do.

A claim, a composite, a ProviderConfig, a namespace or a definition is shown as a tree,
down to what is in its way. Objects that you may not read are named, not shown.`,
		Example: `  # Why does this bucket still exist?
  kubectl graft why bucket/photos -n team-a

  # The reason alone, for a script.
  kubectl graft why xapp/shop -o jsonpath='{.reason}'`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeObjects,
		RunE:              func(c *cobra.Command, args []string) error { return p.why(c.Context(), args, out) },
	}
	out.addFlags(c, false)
	return c
}

func (p *plugin) why(ctx context.Context, args []string, out *output) error {
	c, err := p.open()
	if err != nil {
		return err
	}
	o, err := p.read(ctx, c, args)
	if err != nil {
		return err
	}
	i := &inspection{plugin: p, cluster: c, usages: newUsages(c)}
	n := i.examine(ctx, o, nil)

	if isText, _ := out.text(); isText {
		text.WriteTree(p.streams.Out, p.render(n))
		i.warn(p.streams.ErrOut)
	} else if err := out.print(p.streams.Out, "Diagnosis", n); err != nil {
		return err
	}
	if n.State != diagnosis.Ready {
		return errFound
	}
	return nil
}

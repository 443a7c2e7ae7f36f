package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
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
	w := &why{output: output{plugin: p}}
	c := p.command(&cobra.Command{
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
		ValidArgsFunction: p.completion(false),
	}, 1, 2, w.run)
	w.addFlags(c)
	c.Flags().BoolVarP(&w.again, "watch", "w", false,
		"Print it again when it changes, until the object is ready or no longer exists.")
	return c
}

type why struct {
	output

	again bool
}

func (w *why) run(ctx context.Context, args []string) error {
	o, err := w.read(ctx, args)
	if err != nil {
		return err
	}
	var i *inspection
	look := func() (any, error) {
		if i != nil {
			u, err := w.cluster.Get(ctx, o.kind, o.GetNamespace(), o.GetName())
			switch {
			case kerrors.IsNotFound(err), err == nil && u.GetUID() != o.GetUID():
				fmt.Fprintln(w.streams.ErrOut, o.String()+" no longer exists.")
				return nil, nil
			case err != nil:
				return nil, err
			}
			o.Unstructured = u
		}
		i = &inspection{plugin: w.plugin}
		n := i.root(ctx, o)
		if n.State == diagnosis.Ready {
			return n, nil
		}
		return n, errFound
	}
	return w.watch(ctx, w.again, watchInterval, look, func(seen any) error {
		i.warn()
		n, _ := seen.(node)
		if !w.isText() {
			return w.print("Diagnosis", n)
		}
		w.write(n, "", "")
		return nil
	})
}

// write a node, and below it those in its way. The first line and the rest have a prefix.
func (w *why) write(n node, first, rest string) {
	title := w.colour(text.Strong, text.Clean(n.Object.Kind+"/"+n.Object.Name))
	if n.Object.Namespace != "" {
		title += " in " + text.Clean(n.Object.Namespace)
	}
	fmt.Fprintln(w.streams.Out, first+title+"  "+w.state(n.Diagnosis))
	stem := rest + "  "
	if len(n.InTheWay) > 0 {
		stem = rest + "│ "
	}
	line := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintln(w.streams.Out, strings.TrimRight(stem+text.Clean(fmt.Sprintf(format, args...)), " "))
		}
	}

	message := n.Message
	quotes := n.Reason == diagnosis.ReasonWaitingForDependents || n.Reason == diagnosis.ReasonBlockedByProtection
	if quotes && len(n.InTheWay) > 0 {
		// The objects that the rest is about are shown below.
		message, _, _ = strings.Cut(message, ". ")
		message = strings.TrimSuffix(message, ".") + "."
	}
	line(message != "" && message != ".", "%s", message)
	line(n.Error != "", "Synced: %s", n.Error)
	line(n.State != diagnosis.Ready && n.ExternalName != "", "external name: %s", n.ExternalName)
	if op := n.Operation; op != nil {
		line(true, "operation: %s, attempt %d, %s, deadline %s, token %q", op.Type, op.Attempt,
			text.Since(op.Started.Time, w.now()), text.Stamp(op.Deadline.Time), op.Token)
	}
	line(n.Progress != "" && n.Progress != n.Message, "progress: %s", n.Progress)
	for _, f := range n.Finalizers {
		by := ""
		if f.Manager != "" {
			by = ", written by " + f.Manager
		}
		line(true, "finalizer: %s (of %s%s)", f.Name, f.Owner, by)
	}
	for _, x := range n.Notes {
		line(!x.Guess, "note: %s", x.Text)
		line(x.Guess, "guess: %s", x.Text)
	}
	for _, a := range n.Advice {
		line(true, "to do: %s", a.Text)
		for _, c := range a.Commands {
			line(true, "  $ %s", c)
		}
	}
	line(n.Others > 0, "%d more below it: not in the way.", n.Others)
	line(n.More > 0, "%d more in its way: not shown.", n.More)

	for i, c := range n.InTheWay {
		if i == len(n.InTheWay)-1 {
			w.write(c, rest+"└─ ", rest+"   ")
		} else {
			w.write(c, rest+"├─ ", rest+"│  ")
		}
	}
}

// state of an object, with the reason.
func (p *plugin) state(d diagnosis.Diagnosis) string {
	colours := map[diagnosis.State]text.Colour{
		diagnosis.Stopped: text.Bad, diagnosis.Failing: text.Bad, diagnosis.Ready: text.Good,
	}
	out := p.colour(cmp.Or(colours[d.State], text.Waiting), string(d.State))
	if d.Since != nil {
		out += " " + text.Since(d.Since.Time, p.now())
	}
	if d.Reason != "" && d.Reason != string(d.State) {
		out += ": " + text.Clean(d.Reason)
	}
	if d.Guess {
		out += " (a guess)"
	}
	return out
}

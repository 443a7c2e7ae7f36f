package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// outputVersion is the version of what -o json and the other formats print.
const outputVersion = "cli.graft.crossplane.io/v1alpha1"

const wide = "wide"

// An output prints text, or what -o asks for with one of cli-runtime's printers.
type output struct {
	*plugin

	printers genericclioptions.PrintFlags
	format   string
}

// addFlags adds the flags for cli-runtime's formats and for additional formats.
func (o *output) addFlags(c *cobra.Command, own ...string) {
	o.printers = genericclioptions.PrintFlags{
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
		OutputFormat:         &o.format,
	}
	o.printers.TemplatePrinterFlags.AddFlags(c)
	formats := append(o.printers.AllowedFormats(), own...)
	choice := strings.Join(formats, ", ")
	c.Flags().StringVarP(&o.format, "output", "o", "", "Output format. One of: "+choice+".")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if name, _, _ := strings.Cut(o.format, "="); name != "" && !slices.Contains(formats, name) {
			return errors.Errorf("there is no output format %q: choose one of %s", o.format, choice)
		}
		return nil
	}
}

// isText reports whether the output is for a person.
func (o *output) isText() bool {
	return o.format == wide || o.format == "" && *o.printers.TemplatePrinterFlags.TemplateArgument == ""
}

// print v in the chosen format.
func (o *output) print(kind string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return errors.Wrap(err, "cannot encode the output")
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &u.Object); err != nil {
		return errors.Wrap(err, "cannot encode the output")
	}
	u.SetAPIVersion(outputVersion)
	u.SetKind(kind)

	printer, err := o.printers.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(u, o.streams.Out)
}

// progressAfter is how long a list may take before progress is shown.
const progressAfter = time.Second

// A listing is a command that reads many objects.
type listing struct {
	output

	all bool
}

func (l *listing) addFlags(c *cobra.Command, formats ...string) {
	c.Flags().BoolVarP(&l.all, "all-namespaces", "A", false, "Look at all namespaces.")
	l.output.addFlags(c, formats...)
}

// list the objects of the kinds, with progress on a terminal.
func (l *listing) list(ctx context.Context, kinds []cluster.Kind) ([]cluster.Item, []cluster.Unread) {
	namespace := l.cluster.Namespace
	if l.all {
		namespace = ""
	}
	began, erase := l.now(), ""
	items, unread := l.cluster.List(ctx, kinds, namespace, func(done, objects int) {
		if l.terminal(l.streams.ErrOut) && l.now().Sub(began) > progressAfter {
			erase = "\r\x1b[K"
			fmt.Fprintf(l.streams.ErrOut, "%s%d of %d kinds, %d objects", erase, done, len(kinds), objects)
		}
	})
	fmt.Fprint(l.streams.ErrOut, erase)
	return items, unread
}

// each reads the objects of the kinds whose list leaves it open how they are, and calls fn with each.
func (l *listing) each(
	ctx context.Context, kinds []cluster.Kind, open func(cluster.Item) bool, fn func(object),
) []cluster.Unread {
	items, unread := l.list(ctx, kinds)
	items = slices.DeleteFunc(items, func(i cluster.Item) bool { return !open(i) })
	objects, more := l.cluster.Read(ctx, items)
	for _, i := range items {
		if u, ok := objects[i.UID]; ok {
			fn(object{Unstructured: u, kind: i.Kind})
		}
	}
	return append(unread, more...)
}

// undescribed returns the groups that the API server cannot describe, if kinds may be missing because of them: the
// arguments name a category, or none and mean several.
func (l *listing) undescribed(args ...string) []cluster.Unread {
	categories := []string{"", cluster.Managed, cluster.Composite, cluster.Claim, cluster.Crossplane}
	kinds := strings.Split(strings.Join(args, ","), ",")
	if !slices.ContainsFunc(kinds, func(s string) bool { return slices.Contains(categories, s) }) {
		return nil
	}
	var out []cluster.Unread
	for _, group := range l.cluster.Hidden() {
		out = append(out, undescribed(schema.GroupKind{Group: group, Kind: "*"}))
	}
	return out
}

// gap reports whether unread kinds make the result incomplete. Without -A a user may be allowed one namespace only:
// cluster-scoped kinds that are forbidden make no gap.
func (l *listing) gap(unread []cluster.Unread) bool {
	return slices.ContainsFunc(unread, func(u cluster.Unread) bool {
		return l.all || u.Kind.Resource.Namespaced || !kerrors.IsForbidden(u.Err)
	})
}

// A result of a listing.
type result struct {
	kind string // For programs, with the body.
	body any

	header []string // For a person, with the rows below it.
	narrow int      // The number of columns without -o wide.
	rows   [][]string
	none   string // Says that there are no rows, if that is certain.

	unread []cluster.Unread
}

// show a result, unless ctx has ended. It returns an error if not all could be read.
func (l *listing) show(ctx context.Context, r result) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	gap := error(nil)
	if l.gap(r.unread) {
		gap = errGap
	}
	l.warn(r.unread)
	if !l.isText() {
		return cmp.Or(l.print(r.kind, r.body), gap)
	}
	if len(r.rows) == 0 && r.none != "" {
		if gap == nil {
			fmt.Fprintln(l.streams.ErrOut, r.none)
		}
		return gap
	}
	rows := append([][]string{r.header}, r.rows...)
	for i := range rows {
		if l.format != wide {
			rows[i] = rows[i][:r.narrow]
		}
	}
	return cmp.Or(text.WriteTable(l.streams.Out, rows), gap)
}

// warn says which kinds could not be read.
func (l *listing) warn(unread []cluster.Unread) {
	var names []string
	for _, u := range unread {
		why := "forbidden"
		if !kerrors.IsForbidden(u.Err) {
			why = sentence(u.Err)
		}
		names = append(names, fmt.Sprintf("%s (%s)", u.Kind, why))
	}
	if len(names) > 0 {
		fmt.Fprintf(l.streams.ErrOut, "Not read: %s.\n", text.Clean(strings.Join(slices.Compact(names), ", ")))
	}
}

// unreadNames returns the names of kinds for programs.
func unreadNames(unread []cluster.Unread) []string {
	var out []string
	for _, u := range unread {
		out = append(out, u.Kind.String())
	}
	return out
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

func newNames(p *plugin) *cobra.Command {
	n := &names{listing: listing{plugin: p}}
	c := &cobra.Command{
		Use:   "names [KIND,CATEGORY...]",
		Short: "Print the external name of every managed resource, or check them against a backup",
		Long: `Print the external name of every managed resource, as a backup: an external resource
whose name is lost may not be found again.

With --check, say which names of a backup are lost or changed, and how to repair each.
The exit status is 1 then, and 2 if not all could be read.`,
		Example: `  # A backup.
  kubectl graft names -A -o yaml > names.yaml

  # After a restore, or every night.
  kubectl graft names --check names.yaml`,
		Args: between(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return n.run(c.Context(), args) },
	}
	n.addFlags(c, false)
	c.Flags().StringVar(&n.check, "check", "",
		"Compare with this file, which -o json or -o yaml wrote; - for the standard input.")
	return c
}

type names struct {
	listing

	check string
}

// A nameList is what -o json prints, and --check reads.
type nameList struct {
	APIVersion string  `json:"apiVersion,omitempty"`
	Kind       string  `json:"kind,omitempty"`
	Items      []named `json:"items"`
}

// A named managed resource.
type named struct {
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"`
	Namespace    string    `json:"namespace,omitempty"`
	Name         string    `json:"name"`
	UID          types.UID `json:"uid"`
	ExternalName string    `json:"externalName"`
}

const nameListKind = "ExternalNameList"

func (n *names) run(ctx context.Context, args []string) error {
	if n.check != "" && len(args) > 0 {
		return errors.New("the file says which kinds to check: leave out the argument")
	}
	c, err := n.open()
	if err != nil {
		return err
	}
	if err := c.RequireCrossplane(); err != nil {
		return err
	}
	if n.check != "" {
		return n.compare(ctx, c)
	}
	kinds := c.InCategories(cluster.Managed)
	if len(args) > 0 {
		if kinds, err = c.Selected(args[0]); err != nil {
			return err
		}
	}
	items, unread := n.list(ctx, c, kinds)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	out := nameList{Items: []named{}}
	var rows [][]string
	for _, i := range items {
		name := i.Annotations[diagnosis.AnnotationExternalName]
		out.Items = append(out.Items, named{
			APIVersion: i.Kind.GroupVersion().String(), Kind: i.Kind.Kind,
			Namespace: i.Namespace, Name: i.Name, UID: i.UID, ExternalName: name,
		})
		rows = append(rows, []string{i.Namespace, i.Kind.String() + "/" + i.Name, name})
	}
	gap := n.warn(unread)

	if isText, _ := n.out.text(); isText {
		err = text.WriteTable(n.streams.Out, []string{"NAMESPACE", "NAME", "EXTERNAL-NAME"}, rows)
	} else {
		err = n.out.print(n.streams.Out, nameListKind, out)
	}
	if err == nil && gap {
		// A backup with a gap is worse than none that is missed.
		err = errGap
	}
	return err
}

// A difference between a backup and the cluster.
type difference struct {
	named

	// State is Lost, Changed or Missing.
	State string `json:"state"`

	// Now is the external name in the cluster.
	Now string `json:"now,omitempty"`

	// Advice names the repair.
	Advice diagnosis.Advice `json:"advice"`
}

func (n *names) compare(ctx context.Context, c *cluster.Cluster) error {
	backup, err := n.readBackup()
	if err != nil {
		return err
	}
	kinds, namespace := n.scope(c, backup)
	n.all = namespace == ""
	items, unread := c.List(ctx, kinds, namespace, nil)
	now := map[string]cluster.Item{}
	for _, i := range items {
		now[keyOf(i.Kind.GroupKind(), i.Namespace, i.Name)] = i
	}
	gaps := map[schema.GroupKind]bool{}
	for _, u := range unread {
		gaps[u.Kind.GroupKind()] = true
	}

	out := []difference{}
	for _, was := range backup {
		gk := schema.FromAPIVersionAndKind(was.APIVersion, was.Kind).GroupKind()
		if was.ExternalName == "" || gaps[gk] {
			continue
		}
		i, exists := now[keyOf(gk, was.Namespace, was.Name)]
		if d, differs := n.differs(was, i, exists); differs {
			out = append(out, d)
		}
	}
	gap := n.warn(unread)

	body := map[string]any{"items": out, "unread": unreadNames(unread)}
	if isText, _ := n.out.text(); isText {
		n.write(out, len(backup))
	} else if err := n.out.print(n.streams.Out, "ExternalNameCheck", body); err != nil {
		return err
	}
	switch {
	case gap:
		return errGap
	case len(out) > 0:
		return errFound
	}
	return nil
}

// scope returns the kinds of a backup, and its namespace if all objects are in one.
func (n *names) scope(c *cluster.Cluster, backup []named) ([]cluster.Kind, string) {
	kinds, namespaces := map[schema.GroupKind]bool{}, map[string]bool{}
	for _, was := range backup {
		namespaces[was.Namespace] = true
		kinds[schema.FromAPIVersionAndKind(was.APIVersion, was.Kind).GroupKind()] = true
	}
	if len(namespaces) == 1 {
		return c.Among(kinds), backup[0].Namespace
	}
	return c.Among(kinds), ""
}

func (n *names) differs(was named, i cluster.Item, exists bool) (difference, bool) {
	d := difference{named: was, Now: i.Annotations[diagnosis.AnnotationExternalName]}
	if !exists {
		d.State = "Missing"
		d.Advice.Text = fmt.Sprintf("It does not exist. If external resource %q does, create it with the "+
			"annotation %s "+
			"before its provider runs.", was.ExternalName, diagnosis.AnnotationExternalName)
		return d, true
	}
	if d.Now == was.ExternalName {
		return d, false
	}
	annotate := fmt.Sprintf("kubectl annotate %s --overwrite %s", n.target(i.Kind, i.Namespace, i.Name),
		text.ShellQuote(diagnosis.AnnotationExternalName+"="+was.ExternalName))
	d.State, d.Advice = "Lost", diagnosis.Advice{Text: "Store it again.", Commands: []string{annotate}}
	if d.Now != "" {
		d.State = "Changed"
		d.Advice.Text = fmt.Sprintf("If external resource %q is the right one, store it. The other is managed by "+
			"nothing "+
			"then.", was.ExternalName)
	}
	return d, true
}

func (n *names) readBackup() ([]named, error) {
	read, name := os.ReadFile, n.check
	if n.check == "-" {
		name = "the standard input"
		read = func(string) ([]byte, error) { return io.ReadAll(n.streams.In) }
	}
	body, err := read(n.check)
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the backup")
	}
	l := nameList{}
	if err := yaml.Unmarshal(body, &l); err != nil || l.Kind != nameListKind || l.APIVersion != outputVersion {
		return nil, errors.Errorf("%s is not a backup: write one with kubectl graft names -A -o yaml", name)
	}
	return l.Items, nil
}

func (n *names) write(list []difference, of int) {
	s := n.style()
	for _, d := range list {
		line := fmt.Sprintf("%q, now %q", d.ExternalName, d.Now)
		if d.Now == "" {
			line = fmt.Sprintf("%q", d.ExternalName)
		}
		fmt.Fprintf(n.streams.Out, "%s %s: %s\n  to do: %s\n", s.Bad(d.State),
			text.Clean(nameOf(d.Kind, d.Namespace, d.Name)), line, text.Clean(d.Advice.Text))
		for _, c := range d.Advice.Commands {
			fmt.Fprintln(n.streams.Out, "    $ "+text.Clean(c))
		}
	}
	fmt.Fprintf(n.streams.ErrOut, "%d of %d names of the backup are lost, changed or missing.\n", len(list), of)
}

func keyOf(gk schema.GroupKind, namespace, name string) string {
	return strings.Join([]string{gk.String(), namespace, name}, "|")
}

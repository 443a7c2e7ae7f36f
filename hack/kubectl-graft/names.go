package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

func newNames(p *plugin) *cobra.Command {
	n := &names{listing: listing{output: output{plugin: p}}}
	c := p.command(&cobra.Command{
		Use:   "names [KIND,CATEGORY...]",
		Short: "Print the external name of every managed resource, or check them against a backup",
		Long: `Print the external name of every managed resource, as a backup: an external resource
whose name is lost may not be found again.

With --check, say which names of a backup are lost or changed, and how to repair each.
The exit status is 1 then, and 2 if not all could be read, now or for the backup.`,
		Example: `  # A backup.
  kubectl graft names -A -o yaml > names.yaml

  # After a restore, or every night.
  kubectl graft names --check names.yaml`,
	}, 0, 1, n.run)
	n.addFlags(c)
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
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Items      []named  `json:"items"`
	Unread     []string `json:"unread,omitempty"` // Kinds that could not be read.
}

// A named managed resource.
type named struct {
	corev1.ObjectReference

	ExternalName string `json:"externalName"`
}

const nameListKind = "ExternalNameList"

func (n *names) run(ctx context.Context, args []string) error {
	if n.check != "" && len(args) > 0 {
		return errors.New("the file says which kinds to check: leave out the argument")
	}
	err := n.cluster.RequireCrossplane()
	if err != nil {
		return err
	}
	if n.check != "" {
		return n.compare(ctx)
	}
	kinds := n.cluster.InCategories(cluster.Managed)
	if len(args) > 0 {
		if kinds, err = n.cluster.Selected(args[0]); err != nil {
			return err
		}
	}
	items, unread := n.list(ctx, kinds)
	unread = append(unread, n.undescribed(args...)...)
	out := nameList{Items: []named{}, Unread: unreadNames(unread)}
	table := result{kind: nameListKind, unread: unread, narrow: 3}
	table.header = []string{"NAMESPACE", "NAME", "EXTERNAL-NAME"}
	for _, i := range items {
		name := i.Annotations[diagnosis.AnnotationExternalName]
		out.Items = append(out.Items, named{ObjectReference: i.Reference(), ExternalName: name})
		table.rows = append(table.rows, []string{i.Namespace, i.Kind.String() + "/" + i.Name, name})
	}
	table.body = out
	return n.show(ctx, table)
}

// A difference between a backup and the cluster.
type difference struct {
	named

	State  string           `json:"state"`         // Lost, Changed or Missing.
	Now    string           `json:"now,omitempty"` // The external name in the cluster.
	Advice diagnosis.Advice `json:"advice"`
}

func (n *names) compare(ctx context.Context) error {
	file, err := n.readBackup()
	if err != nil {
		return err
	}
	backup := file.Items
	kinds, namespaces := map[schema.GroupKind]bool{}, map[string]bool{}
	for _, was := range backup {
		namespaces[was.Namespace] = true
		kinds[was.GroupVersionKind().GroupKind()] = true
	}
	for _, name := range file.Unread {
		// A user who still may not read a kind of the cluster needs no backup of it.
		if k, err := n.cluster.Named(name); err == nil {
			kinds[k.GroupKind()] = true
		}
	}
	if len(backup) > 0 { // An empty backup does not say which namespace it is of.
		n.cluster.Namespace = backup[0].Namespace
		n.all = len(namespaces) > 1 || n.cluster.Namespace == ""
	}
	items, unread := n.list(ctx, n.cluster.Among(kinds))
	for _, u := range unread {
		kinds[u.Kind.GroupKind()] = false
	}
	for _, name := range file.Unread {
		if !slices.Contains(unreadNames(unread), name) {
			k := cluster.Kind{Resource: metav1.APIResource{Name: name}}
			unread = append(unread, cluster.Unread{Kind: k, Err: errors.New("it could not be read for the backup")})
		}
	}
	now := map[place]cluster.Item{}
	holders := map[holding][]corev1.ObjectReference{}
	hold := func(r corev1.ObjectReference, name string) {
		h := holding{GroupKind: r.GroupVersionKind().GroupKind(), name: name}
		holders[h] = append(holders[h], r)
	}
	for _, i := range items {
		now[placeOf(i.Reference())] = i
		hold(i.Reference(), i.Annotations[diagnosis.AnnotationExternalName])
	}
	for _, was := range backup {
		hold(was.ObjectReference, was.ExternalName)
		gk := was.GroupVersionKind().GroupKind()
		if _, served := n.cluster.Of(gk); kinds[gk] && !served && n.cluster.Undescribed(gk.Group) {
			kinds[gk] = false
			unread = append(unread, undescribed(gk))
		}
	}

	out := []difference{}
	for _, was := range backup {
		if was.ExternalName == "" || !kinds[was.GroupVersionKind().GroupKind()] {
			continue
		}
		i, exists := now[placeOf(was.ObjectReference)]
		if d := n.difference(was, i, exists); d.State != "" {
			n.restrain(&d, i, holders)
			out = append(out, d)
		}
	}

	n.warn(unread)
	body := map[string]any{"items": out, "unread": unreadNames(unread)}
	if n.isText() {
		n.write(out, len(backup))
	} else if err := n.print("ExternalNameCheck", body); err != nil {
		return err
	}
	switch {
	case n.gap(unread):
		return errGap
	case len(out) > 0:
		return errFound
	}
	return nil
}

// difference returns how a managed resource differs from the backup. Its state is empty if it does not.
func (n *names) difference(was named, i cluster.Item, exists bool) difference {
	d := difference{named: was, Now: i.Annotations[diagnosis.AnnotationExternalName]}
	annotate := fmt.Sprintf("kubectl annotate %s --overwrite %s", n.target(i.Kind, i.Namespace, i.Name),
		text.ShellQuote(diagnosis.AnnotationExternalName+"="+was.ExternalName))

	switch {
	case !exists:
		d.State = "Missing"
		d.Advice.Text = fmt.Sprintf("It does not exist. If external resource %q does, create it with the "+
			"annotation %s before its provider runs.", was.ExternalName, diagnosis.AnnotationExternalName)
	case d.Now == "":
		d.State, d.Advice = "Lost", diagnosis.Advice{Text: "Store it again.", Commands: []string{annotate}}
	case d.Now != was.ExternalName:
		d.State, d.Advice.Commands = "Changed", []string{annotate}
		d.Advice.Text = fmt.Sprintf("If external resource %q is the right one, store it. "+
			"The other is managed by nothing then.", was.ExternalName)
	}
	return d
}

// A holding is an external name that managed resources of a kind have.
type holding struct {
	schema.GroupKind

	name string
}

// restrain replaces the advice to store a name if two managed resources would act on one external resource then, or
// if it is uncertain that the name is the object's. The item has no UID if the object is missing.
func (n *names) restrain(d *difference, i cluster.Item, holders map[holding][]corev1.ObjectReference) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetUID(i.UID)
	o.SetAnnotations(i.Annotations)
	s := diagnosis.StateOf(o, n.now())
	of := holders[holding{GroupKind: d.GroupVersionKind().GroupKind(), name: d.ExternalName}]
	at := placeOf(d.ObjectReference)
	other := slices.IndexFunc(of, func(r corev1.ObjectReference) bool { return placeOf(r) != at })

	switch {
	case other >= 0:
		d.Advice = diagnosis.Advice{Text: fmt.Sprintf("%s has that external name, now or in the backup. Two managed "+
			"resources must not act on one external resource: set the annotation %s only if these are two.",
			nameOf(of[other]), diagnosis.AnnotationExternalName)}
	case s.CreateUnknown || s.CreateFailed || s.Run.Type != "":
		// If a create failed, its outcome is in the status, which the list does not have.
		d.Advice = diagnosis.Advice{
			Text:     "An operation may be in progress, or its last create has failed or has an unknown outcome.",
			Commands: []string{"kubectl graft why " + n.target(i.Kind, i.Namespace, i.Name)},
		}
	case d.UID != "" && i.UID != "" && d.UID != i.UID:
		d.Advice = diagnosis.Advice{Text: fmt.Sprintf("It is another object than in the backup: restored, or created "+
			"since. If it is to manage external resource %q, set the annotation %s.", d.ExternalName,
			diagnosis.AnnotationExternalName)}
	case !n.all:
		d.Advice.Text += " Make sure that no managed resource of another namespace has that name."
	}
}

func (n *names) readBackup() (nameList, error) {
	read, name := os.ReadFile, n.check
	if n.check == "-" {
		name = "the standard input"
		read = func(string) ([]byte, error) { return io.ReadAll(n.streams.In) }
	}
	body, err := read(n.check)
	if err != nil {
		return nameList{}, errors.Wrap(err, "cannot read the backup")
	}
	l := nameList{}
	if err := yaml.Unmarshal(body, &l); err != nil || l.Kind != nameListKind || l.APIVersion != outputVersion {
		return l, errors.Errorf("%s is not a backup: write one with kubectl graft names -A -o yaml", name)
	}
	return l, nil
}

func (n *names) write(list []difference, of int) {
	for _, d := range list {
		line := fmt.Sprintf("%q", d.ExternalName)
		if d.Now != "" {
			line += fmt.Sprintf(", now %q", d.Now)
		}
		fmt.Fprintf(n.streams.Out, "%s %s: %s\n  to do: %s\n", n.colour(text.Bad, d.State),
			text.Clean(nameOf(d.ObjectReference)), line, text.Clean(d.Advice.Text))
		for _, c := range d.Advice.Commands {
			fmt.Fprintln(n.streams.Out, "    $ "+text.Clean(c))
		}
	}
	fmt.Fprintf(n.streams.ErrOut, "%d of %d names of the backup are lost, changed or missing.\n", len(list), of)
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

func newResolve(p *plugin) *cobra.Command {
	r := &resolve{writing: writing{plugin: p}}
	c := &cobra.Command{
		Use:   "resolve KIND/NAME (--external-name=NAME | --not-created)",
		Short: "Settle a create whose outcome is unknown",
		Long: `Settle a create whose outcome is unknown, after a look at the external system.

It is refused while the create may still be in progress, and if another managed
resource of the kind has the external name. With --external-name it also lets a
provider manage an external resource that its create has found and left alone.`,
		Example: `  # The external resource exists, and this is its name.
  kubectl graft resolve bucket/photos --external-name=b-4711

  # It does not exist, and will not. The provider creates one.
  kubectl graft resolve bucket/photos --not-created`,
		Args:              between(1, 2),
		ValidArgsFunction: p.completeObjects,
		RunE:              func(c *cobra.Command, args []string) error { return r.run(c.Context(), args) },
	}
	r.addFlags(c)
	c.Flags().StringVar(&r.name, "external-name", "", "The external resource exists and has this name.")
	c.Flags().BoolVar(&r.notCreated, "not-created", false,
		"There is no external resource, and the create is not in progress.")
	c.MarkFlagsOneRequired("external-name", "not-created")
	c.MarkFlagsMutuallyExclusive("external-name", "not-created")
	return c
}

type resolve struct {
	writing

	name       string
	notCreated bool
}

func (r *resolve) run(ctx context.Context, args []string) error {
	if !r.notCreated && (r.name == "" || text.Clean(strings.TrimSpace(r.name)) != r.name) {
		return errors.Errorf("%q is not an external name", r.name)
	}
	c, o, err := r.subject(ctx, args)
	if err != nil {
		return err
	}
	if err := r.refuse(o); err != nil {
		return err
	}
	p := plan{of: o}
	annotations := map[string]any{diagnosis.AnnotationReconcileRequested: stamp(r.now())}

	if r.notCreated {
		r.consequence(&p, "nothing is created, and the object is removed.",
			"There is no external resource: its provider creates one.")
	} else {
		owner, notes := r.named(ctx, c, o)
		if owner != "" {
			return errors.Errorf("%s has the external name %q already: two managed resources would act on one "+
				"external "+
				"resource", owner, r.name)
		}
		p.says = append(p.says, notes...)
		if was := diagnosis.ExternalName(o); was != r.name {
			p.say("annotation %s: %q (was %q)", diagnosis.AnnotationExternalName, r.name, was)
		}
		r.consequence(&p, fmt.Sprintf("unless its policies keep it, external resource %q is deleted.", r.name),
			fmt.Sprintf("Its provider manages external resource %q from now on.", r.name))
		annotations[diagnosis.AnnotationExternalName] = r.name
	}
	settled := []string{
		diagnosis.AnnotationCreatePending, diagnosis.AnnotationOperation, diagnosis.AnnotationCreateRefused,
	}
	for _, key := range settled {
		if _, ok := o.GetAnnotations()[key]; ok {
			annotations[key] = nil
			p.say("annotation %s: removed", key)
		}
	}
	if r := diagnosis.RecordOf(o); r != nil && !r.Usable() {
		p.say("The record cannot be used: it may be that of another object of which this is a copy. Make sure that " +
			"the " +
			"external resource is its own.")
	}
	p.write = func(ctx context.Context, dryRun bool) (string, error) {
		_, err := c.PatchMetadata(ctx, o.kind, o.Unstructured, "annotations", annotations, dryRun)
		return o.String() + ": the create is settled.", err
	}
	return r.carryOut(ctx, p)
}

// consequence adds the consequence of the write for an object that is being deleted, or not.
func (r *resolve) consequence(p *plan, deleting, otherwise string) {
	s := otherwise
	if p.of.GetDeletionTimestamp() != nil {
		s = "It is being deleted: " + deleting
	}
	if diagnosis.IsPaused(p.of.Unstructured) {
		s += " Its reconciliation is paused: not before the pause ends."
	}
	p.says = append(p.says, s)
}

// refuse a create whose outcome is known, or that may be in progress.
func (r *resolve) refuse(o object) error {
	record := diagnosis.RecordOf(o)
	_, unknown := diagnosis.CreateUnknown(o, r.now())

	switch {
	case !o.kind.In(cluster.Managed):
		return errors.Errorf("%s is not a managed resource: only those have an external resource", o)
	case record.MayRun(r.now()):
		return errors.Errorf("the %s of %s may be in progress until %s: wait", record.Type, o, stamp(record.Until()))
	case !unknown && (r.notCreated || !diagnosis.CreateRefused(o)):
		return errors.Errorf("the outcome of the create of %s is known: there is nothing to resolve", o)
	case r.notCreated && diagnosis.CreateAwaited(o.Unstructured):
		return errors.Errorf("the create of %s may still be in progress, and its provider finds that out: wait until "+
			"the "+
			"time in the message of kubectl graft why", o)
	}
	return nil
}

// named returns the other managed resource of the kind that has the external name, if there
// is one, and notes about missing permissions.
func (r *resolve) named(ctx context.Context, c *cluster.Cluster, o object) (owner string, notes []string) {
	items, unread := c.List(ctx, []cluster.Kind{o.kind}, "", nil)
	if len(unread) > 0 {
		// A user of one namespace may not list all.
		notes = append(notes, "You may not list the other managed resources of the kind: make sure that none has this "+
			"external name.")
		items, _ = c.List(ctx, []cluster.Kind{o.kind}, o.GetNamespace(), nil)
	}
	for _, i := range items {
		if i.UID != o.GetUID() && i.Annotations[diagnosis.AnnotationExternalName] == r.name {
			return nameOf(i.Kind.Kind, i.Namespace, i.Name), nil
		}
	}
	return "", notes
}

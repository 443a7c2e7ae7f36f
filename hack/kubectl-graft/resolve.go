package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

func newResolve(p *plugin) *cobra.Command {
	r := &resolve{writing: writing{plugin: p}}
	c := r.verb(&cobra.Command{
		Use:   "resolve KIND/NAME (--external-name=NAME | --not-created)",
		Short: "Settle a create whose outcome is unknown",
		Long: `Settle a create whose outcome is unknown, after a look at the external system.

It is refused while the create may be in progress, and if another managed resource of
the kind has the external name. A create that is not asynchronous may be in progress
for five minutes after its announcement. While the provider looks for the external
resource, --not-created is left to it. With --external-name it also lets a provider
manage an external resource that its create has found and left alone.`,
		Example: `  # The external resource exists, and this is its name.
  kubectl graft resolve bucket/photos --external-name=b-4711

  # It does not exist, and will not. The provider creates one.
  kubectl graft resolve bucket/photos --not-created`,
	}, 0, r.plan)
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

func (r *resolve) plan(ctx context.Context, o object, _ []string) (plan, error) {
	if !r.notCreated && (r.name == "" || text.Clean(strings.TrimSpace(r.name)) != r.name) {
		return plan{}, errors.Errorf("%q is not an external name", r.name)
	}
	state, was := diagnosis.StateOf(o.Unstructured, r.now()), diagnosis.ExternalName(o)
	if err := r.refuse(o, state); err != nil {
		return plan{}, err
	}
	annotations := map[string]any{}
	p := plan{patch: annotate(annotations), done: o.String() + ": the create is settled."}
	then, deleted := "There is no external resource: its provider creates one.",
		"nothing is created, and the object is removed."
	copied, name := state.RecordError != nil, r.name
	if r.notCreated && copied {
		name = was
	}
	if name != "" {
		if err := r.unique(ctx, o, name, &p); err != nil {
			return plan{}, err
		}
	}

	switch {
	case r.notCreated && name != "":
		then = fmt.Sprintf("It keeps external name %q: if that external resource exists its provider manages it, and "+
			"otherwise creates one.", was)
		deleted = fmt.Sprintf("unless its policies keep it, external resource %q is deleted if it exists.", was)
	case !r.notCreated:
		if was != r.name {
			p.say("annotation %s: %q (was %q)", diagnosis.AnnotationExternalName, r.name, was)
		}
		annotations[diagnosis.AnnotationExternalName] = r.name
		then = fmt.Sprintf("Its provider manages external resource %q from now on.", r.name)
		deleted = fmt.Sprintf("unless its policies keep it, external resource %q is deleted.", r.name)
	}
	if o.GetDeletionTimestamp() != nil {
		then = "It is being deleted: " + deleted
	}
	if diagnosis.IsPaused(o.Unstructured, true) {
		then += " Its reconciliation is paused: not before the pause ends."
	}
	p.say("%s", then)

	settled := []string{diagnosis.AnnotationCreatePending, diagnosis.AnnotationOperation}
	if !r.notCreated || copied {
		// Otherwise an external resource with that name is still another's.
		settled = append(settled, diagnosis.AnnotationCreateRefused)
	}
	for _, key := range settled {
		if _, ok := o.GetAnnotations()[key]; ok {
			annotations[key] = nil
			p.say("annotation %s: removed", key)
		}
	}
	p.request(annotations, r.now())
	if copied {
		p.say("The record cannot be used: it may be that of another object of which this is a copy. " +
			"Make sure that the external resource is its own.")
	}
	return p, nil
}

// refuse a create whose outcome is known, or that may be in progress.
func (r *resolve) refuse(o object, s asyncstate.State) error {
	blocks := diagnosis.Blocks(s.Run, o.Unstructured)
	awaited, timed := diagnosis.CreateAwaited(o.Unstructured)

	switch {
	case !o.kind.In(cluster.Managed):
		return errors.Errorf("%s is not a managed resource: only those have an external resource", o)
	case blocks && !timed:
		return errors.Errorf("the %s of %s may be in progress until %s: wait", s.Run.Type, o, diagnosis.Until(s.Run))
	case awaited && s.CreateUnknown && (blocks || r.notCreated):
		return errors.Errorf("the create of %s may still be in progress, and its provider finds that out: "+
			"wait, until the time in the message of kubectl graft why if it has one", o)
	case !s.CreateUnknown && (r.notCreated || !s.CreateRefused):
		return errors.Errorf("the outcome of the create of %s is known: there is nothing to resolve", o)
	}
	return nil
}

// unique returns an error if another managed resource of the kind has the external name, or if that can't be checked.
// The plan says so if the user may not list all.
func (r *resolve) unique(ctx context.Context, o object, name string, p *plan) error {
	items, unread := r.cluster.List(ctx, []cluster.Kind{o.kind}, "", nil)
	if len(unread) > 0 && kerrors.IsForbidden(unread[0].Err) {
		// A user of one namespace may not list all.
		p.say("You may not list the other managed resources of the kind: make sure that none has this external name.")
		items, unread = r.cluster.List(ctx, []cluster.Kind{o.kind}, o.GetNamespace(), nil)
	}
	if len(unread) > 0 && !kerrors.IsForbidden(unread[0].Err) {
		return errors.Wrapf(unread[0].Err, "cannot check whether another managed resource has external name %q", name)
	}
	advice := ""
	if r.notCreated {
		advice = "first change or remove its annotation " + diagnosis.AnnotationExternalName + ": "
	}
	for _, i := range items {
		if i.UID != o.GetUID() && i.Annotations[diagnosis.AnnotationExternalName] == name {
			return errors.Errorf("%s%s has the external name %q already: two managed resources would act on one "+
				"external resource", advice, nameOf(i.Reference()), name)
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// maxOrphanConflicts is how often a step is made again because another client wrote to the
// object. The garbage collector is one: it removes its own finalizer.
const maxOrphanConflicts = 20

func newOrphan(p *plugin) *cobra.Command {
	w := &orphan{writing: writing{plugin: p}}
	c := &cobra.Command{
		Use:   "orphan KIND/NAME",
		Short: "Delete an object, and leave behind what it stands for",
		Long: `Delete a managed resource and leave its external resource behind, or a composite or
claim and leave behind what it is composed of.

It pauses the object, changes its policies so that the external resource is kept,
deletes it, and then removes Crossplane's own finalizers: in this order no
controller can add its finalizer again. Other finalizers stay, and are named.

It is refused if a composite or claim would create the object again, if a Usage
protects it, and while an operation may be in progress.`,
		Example: `  # The bucket stays in the external system, and nothing manages it.
  kubectl graft orphan bucket/photos -n team-a

  # What would be written.
  kubectl graft orphan bucket/photos -n team-a --dry-run=server`,
		Args:              between(1, 2),
		ValidArgsFunction: p.completeObjects,
		RunE:              func(c *cobra.Command, args []string) error { return w.run(c.Context(), args) },
	}
	w.addFlags(c)
	return c
}

type orphan struct{ writing }

func (w *orphan) run(ctx context.Context, args []string) error {
	c, o, err := w.subject(ctx, args)
	if err != nil {
		return err
	}
	own := ownFinalizers(o.Unstructured)
	notes, err := w.refuse(ctx, c, o, own)
	if err != nil {
		return err
	}
	keep, says := keeping(o.Unstructured)
	p := plan{of: o, says: slices.Concat(notes, []string{left(o)}, says)}
	p.say("deleted; the objects that it owns stay")
	for _, f := range own {
		p.say("finalizer %s: removed", f)
	}
	p.write = func(ctx context.Context, dryRun bool) (string, error) { return w.write(ctx, c, o, keep, dryRun) }
	return w.carryOut(ctx, p)
}

// ownFinalizers returns the finalizers of Crossplane and its providers. That of a
// ProviderConfigUsage is not orphaned with the managed resource.
func ownFinalizers(o metav1.Object) []string {
	var out []string
	for _, f := range diagnosis.FinalizersOf(o) {
		others := f.Name == diagnosis.FinalizerUsage || f.Name == diagnosis.FinalizerConfig
		if f.Owner == diagnosis.Crossplane && !others {
			out = append(out, f.Name)
		}
	}
	return out
}

// refuse an object that another would create again, and one with an operation in progress.
// It returns notes about objects that could not be read.
func (w *orphan) refuse(ctx context.Context, c *cluster.Cluster, o object, own []string) ([]string, error) {
	record := diagnosis.RecordOf(o)

	switch {
	case !o.kind.In(cluster.Managed, cluster.Composite, cluster.Claim):
		return nil, errors.Errorf("%s is not a managed resource, composite or claim: it leaves nothing behind", o)
	case record.MayRun(w.now()):
		return nil, errors.Errorf("the %s of %s may be in progress until %s: wait, or its result is lost",
			record.Type, o, stamp(record.Until()))
	case o.GetDeletionTimestamp() == nil && o.GetLabels()[diagnosis.LabelInUse] == "true":
		return nil, errors.Errorf("a Usage protects %s: kubectl graft why %s names it", o, w.targetOf(o))
	case len(own) == 0:
		return nil, errors.Errorf("%s has no finalizer of Crossplane's, so that nothing would be left behind: "+
			"delete it "+
			"with kubectl delete", o)
	}

	var notes []string
	if _, unknown := diagnosis.CreateUnknown(o, w.now()); unknown {
		notes = append(notes, "It is unknown whether its create created an external resource: look for one afterwards.")
	}
	for _, r := range creators(o) {
		k, ok := c.Of(r.GroupKind())
		if !ok {
			continue
		}
		u, err := c.Get(ctx, k, r.Namespace, r.Name)
		switch {
		case kerrors.IsNotFound(err):
		case err != nil:
			notes = append(notes, nameOf(r.Kind, "", r.Name)+
				" could not be read: if it still exists it creates the object again.")
		case u.GetDeletionTimestamp() == nil && !diagnosis.IsPaused(u):
			above := object{Unstructured: u, kind: k}
			return nil, errors.Errorf("%s would create %s again: pause it first with kubectl annotate %s %s=true",
				above, o, w.targetOf(above), diagnosis.AnnotationPaused)
		}
	}
	return notes, nil
}

// creators returns the composite and the claim that create an object.
func creators(o object) []diagnosis.Reference {
	var out []diagnosis.Reference
	if owner := metav1.GetControllerOf(o); owner != nil {
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		out = append(out, diagnosis.Reference{GroupVersionKind: gvk, Namespace: o.GetNamespace(), Name: owner.Name})
	}
	claim, _, _ := unstructured.NestedMap(o.Object, "spec", "claimRef")
	if r, ok := diagnosis.ReferenceOf(claim); ok {
		out = append(out, r)
	}
	return out
}

// left names the objects that stay.
func left(o object) string {
	if o.kind.In(cluster.Managed) {
		if n := diagnosis.ExternalName(o); n != "" {
			return fmt.Sprintf("External resource %q stays, and nothing manages it.", n)
		}
		return "It has no external name: if it has an external resource, that stays, and nothing manages it."
	}
	var names []string
	for _, r := range diagnosis.ResourceReferences(o.Unstructured) {
		names = append(names, nameOf(r.Kind, "", r.Name))
	}
	return fmt.Sprintf("These stay: [%s].", strings.Join(names, ", "))
}

// keeping returns a patch that pauses an object and has its external resource kept, and a
// description of the patch.
func keeping(o *unstructured.Unstructured) (patch map[string]any, says []string) {
	patch = map[string]any{}
	if o.GetAnnotations()[diagnosis.AnnotationPaused] != "true" {
		patch["metadata"] = map[string]any{"annotations": map[string]any{diagnosis.AnnotationPaused: "true"}}
		says = append(says, "annotation "+diagnosis.AnnotationPaused+": true")
	}
	spec := map[string]any{}
	if p, _, _ := unstructured.NestedString(o.Object, "spec", "deletionPolicy"); p == "Delete" {
		spec["deletionPolicy"] = "Orphan"
		says = append(says, "spec.deletionPolicy: Orphan")
	}
	policies, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "managementPolicies")
	if slices.Contains(policies, "*") || slices.Contains(policies, "Delete") {
		if slices.Contains(policies, "*") {
			policies = []string{"Observe", "Create", "Update", "LateInitialize"}
		}
		policies = slices.DeleteFunc(policies, func(p string) bool { return p == "Delete" })
		spec["managementPolicies"] = anySlice(policies)
		says = append(says, "spec.managementPolicies: "+strings.Join(policies, ", "))
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch, says
}

// write in the order that docs/finalizers.md gives. Only the first request must meet the
// object as it was shown: after it the object is paused.
func (w *orphan) write(
	ctx context.Context, c *cluster.Cluster, o object, keep map[string]any, dryRun bool,
) (string, error) {
	now := o.Unstructured
	if len(keep) > 0 {
		u, err := c.Patch(ctx, o.kind, now, keep, dryRun)
		if err != nil {
			return "", err
		}
		if !dryRun {
			now = u
		}
	}
	if dryRun {
		return "", c.Orphan(ctx, o.kind, now, true)
	}
	steps := []func(*unstructured.Unstructured) error{
		func(u *unstructured.Unstructured) error { return c.Orphan(ctx, o.kind, u, false) },
		func(u *unstructured.Unstructured) error { return w.removeOwn(ctx, c, o, u) },
	}
	for _, step := range steps {
		var err error
		if now, err = w.retry(ctx, c, o, now, step); err != nil {
			return "", errors.Wrapf(err, "%s is paused and its external resource is kept, but it is not removed", o)
		}
		if now == nil {
			return o.String() + " is removed.", nil
		}
	}
	if slices.Equal(now.GetFinalizers(), []string{metav1.FinalizerOrphanDependents}) {
		return o.String() + " is released: the garbage collector removes it soon.", nil
	}
	return fmt.Sprintf("%s is being deleted, paused, and held by %s.", o, strings.Join(now.GetFinalizers(), ", ")), nil
}

// retry a step after conflicts. It returns the object after it, or nil if it no longer
// exists.
func (w *orphan) retry(
	ctx context.Context, c *cluster.Cluster, o object, now *unstructured.Unstructured,
	step func(*unstructured.Unstructured) error,
) (*unstructured.Unstructured, error) {
	for range maxOrphanConflicts {
		err := step(now)
		if err != nil && !cluster.Changed(err) && !kerrors.IsNotFound(err) {
			return nil, err
		}
		u, gerr := c.Get(ctx, o.kind, o.GetNamespace(), o.GetName())
		switch {
		case kerrors.IsNotFound(gerr), gerr == nil && u.GetUID() != o.GetUID():
			return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
		case gerr != nil:
			return nil, gerr
		case err == nil:
			return u, nil
		}
		if patch, _ := keeping(u); len(patch) > 0 {
			return nil, errors.New("another client ended the pause, or allowed the external resource to be deleted")
		}
		now = u
	}
	return nil, errors.New("other clients write to it all the time")
}

// removeOwn removes Crossplane's finalizers.
func (w *orphan) removeOwn(ctx context.Context, c *cluster.Cluster, o object, now *unstructured.Unstructured) error {
	own := ownFinalizers(now)
	if len(own) == 0 {
		return nil
	}
	rest := slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return slices.Contains(own, f) })
	_, err := c.PatchMetadata(ctx, o.kind, now, "finalizers", anySlice(rest), false)
	return err
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
)

// maxOrphanConflicts is how many requests are made, more than needed because other clients
// write to the object. The garbage collector is one: it removes its own finalizer.
const maxOrphanConflicts = 20

func newOrphan(p *plugin) *cobra.Command {
	w := &orphan{writing: writing{plugin: p}}
	return w.verb(&cobra.Command{
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
	}, 0, w.plan)
}

type orphan struct{ writing }

func (w *orphan) plan(ctx context.Context, o object, _ []string) (plan, error) {
	own, _ := ownFinalizers(o)
	p := plan{write: func(ctx context.Context, dryRun bool) (string, error) { return w.write(ctx, o, dryRun) }}
	if err := w.refuse(ctx, o, own, &p); err != nil {
		return plan{}, err
	}
	p.say("%s", left(o))
	if reason := w.diagnose(o).Reason; reason == diagnosis.ReasonExternalDeleteRequested ||
		reason == diagnosis.ReasonWaitingForExternalResource {
		p.say("The external system was asked to delete it already, and may still do so.")
	}
	_, says := keeping(o.Unstructured)
	p.says = append(p.says, says...)
	p.say("deleted; the objects that it owns stay")
	for _, f := range own {
		p.say("finalizer %s: removed", f.Name)
	}
	return p, nil
}

// ownFinalizers returns the finalizers of Crossplane and its providers, and the others. That
// of a ProviderConfigUsage is not orphaned with the managed resource.
func ownFinalizers(o metav1.Object) (own, others diagnosis.Finalizers) {
	for _, f := range diagnosis.FinalizersOf(o) {
		used := f.Name == diagnosis.FinalizerUsage || f.Name == diagnosis.FinalizerConfig
		if f.Owner == diagnosis.Crossplane && !used {
			own = append(own, f)
		} else {
			others = append(others, f)
		}
	}
	return own, others
}

// refuse an object that would be created again, or with an operation in progress. The plan names unread objects.
func (w *orphan) refuse(ctx context.Context, o object, own diagnosis.Finalizers, p *plan) error {
	state := diagnosis.StateOf(o.Unstructured, w.now())

	switch {
	case !o.kind.In(cluster.Managed, cluster.Composite, cluster.Claim):
		return errors.Errorf("%s is not a managed resource, composite or claim: it leaves nothing behind", o)
	case diagnosis.Blocks(state.Run, o.Unstructured):
		return errors.Errorf("the %s of %s may be in progress until %s: wait, or its result is lost",
			state.Run.Type, o, diagnosis.Until(state.Run))
	case o.GetDeletionTimestamp() == nil && o.GetLabels()[diagnosis.LabelInUse] == "true":
		return errors.Errorf("a Usage protects %s: kubectl graft why %s names it", o, w.targetOf(o))
	case len(o.GetFinalizers()) == 0:
		return errors.Errorf("%s has no finalizer, so that nothing would be left behind: "+
			"delete it with kubectl delete", o)
	case len(own) == 0 && o.kind.In(cluster.Managed):
		return errors.Errorf("%s has no finalizer of Crossplane's: its provider has let it go, or uses one of these: %s",
			o, strings.Join(o.GetFinalizers(), ", "))
	}

	if state.CreateUnknown {
		p.say("It is unknown whether its create created an external resource: look for one afterwards.")
	}
	for _, r := range creators(o) {
		above, err := w.follow(ctx, r.GroupVersionKind().GroupKind(), r.Namespace, r.Name)
		switch {
		case kerrors.IsNotFound(err), errors.Is(err, errNoKind):
		case err != nil:
			p.say("%s/%s could not be read: if it still exists it creates the object again.", r.Kind, r.Name)
		case !above.deleted() && !diagnosis.IsPaused(above.Unstructured, above.kind.In(cluster.Managed)):
			annotate := w.targetOf(above)
			if _, ok := above.GetAnnotations()[diagnosis.AnnotationPaused]; ok {
				annotate += " --overwrite"
			}
			return errors.Errorf("%s would create %s again: pause it first with kubectl annotate %s %s=true",
				above, o, annotate, diagnosis.AnnotationPaused)
		}
	}
	return nil
}

// creators returns the composite and the claim that create an object.
func creators(o object) []corev1.ObjectReference {
	var out []corev1.ObjectReference
	if owner := metav1.GetControllerOf(o); owner != nil {
		out = append(out, corev1.ObjectReference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: o.GetNamespace(), Name: owner.Name,
		})
	}
	if claim := diagnosis.ClaimOf(o.Unstructured); claim.Name != "" {
		out = append(out, claim)
	}
	return out
}

// left names the objects that stay.
func left(o object) string {
	name := diagnosis.ExternalName(o)
	switch {
	case o.kind.In(cluster.Managed) && name != "":
		return fmt.Sprintf("External resource %q stays, and nothing manages it.", name)
	case o.kind.In(cluster.Managed):
		return "It has no external name: if it has an external resource, that stays, and nothing manages it."
	}
	var names []string
	for _, r := range diagnosis.ResourceReferences(o.Unstructured) {
		names = append(names, r.Kind+"/"+r.Name)
	}
	return fmt.Sprintf("These stay: [%s].", strings.Join(names, ", "))
}

// keeping returns a patch that pauses an object and has its external resource kept, and a description of the patch.
func keeping(o *unstructured.Unstructured) (patch map[string]any, says []string) {
	patch = map[string]any{}
	if !diagnosis.AnnotatedPaused(o) {
		patch = annotate(map[string]any{diagnosis.AnnotationPaused: "true"})
		says = append(says, "annotation "+diagnosis.AnnotationPaused+": true")
	}
	spec := map[string]any{}
	if diagnosis.Field(o.Object, "spec", "deletionPolicy") == "Delete" {
		spec["deletionPolicy"] = "Orphan"
		says = append(says, "spec.deletionPolicy: Orphan")
	}
	policies, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "managementPolicies")
	if slices.Contains(policies, "*") {
		policies = []string{"Observe", "Create", "Update", "LateInitialize", "Delete"}
	}
	if slices.Contains(policies, "Delete") {
		policies = slices.DeleteFunc(policies, func(p string) bool { return p == "Delete" })
		spec["managementPolicies"] = policies
		says = append(says, "spec.managementPolicies: "+strings.Join(policies, ", "))
	}
	if len(spec) > 0 {
		patch["spec"] = spec
	}
	return patch, says
}

// write in the order that docs/finalizers.md gives. The first request must meet the object as it was shown, which is
// paused then.
func (w *orphan) write(ctx context.Context, o object, dryRun bool) (string, error) {
	keep, _ := keeping(o.Unstructured)
	var err error
	if len(keep) > 0 {
		_, err = w.cluster.Patch(ctx, o.kind, o.Unstructured, keep, dryRun)
	}
	if err == nil && (len(keep) == 0 || dryRun) {
		err = w.cluster.Orphan(ctx, o.kind, o.Unstructured, dryRun)
	}
	switch {
	case err != nil:
		return "", err
	case dryRun: // Nothing is stored: the API server has the object as it was read.
		return "", w.tryRemoval(ctx, o)
	}
	left, err := w.release(ctx, o, len(keep) == 0)
	switch {
	case err != nil:
		return "", errors.Errorf("%s is paused and its external resource is kept, but it is not removed: %s",
			o, sentence(err)) // A wrapped error would be printed without this text.
	case left == nil:
		return o.String() + " is removed.", nil
	case slices.Equal(left, []string{metav1.FinalizerOrphanDependents}):
		return o.String() + " is released: the garbage collector removes it soon.", nil
	}
	return fmt.Sprintf("%s is being deleted, paused, and held by %s.", o, strings.Join(left, ", ")), nil
}

// tryRemoval has the API server check whether the user may remove the finalizers. The removal of the last one is an
// update. It is a patch while the garbage collector has a finalizer of its own there.
func (w *orphan) tryRemoval(ctx context.Context, o object) error {
	_, others := ownFinalizers(o)
	if !o.deleted() {
		collected := append(others.Names(), metav1.FinalizerOrphanDependents)
		if err := w.cluster.SetFinalizers(ctx, o.kind, o.Unstructured, collected, true); err != nil {
			return err
		}
	}
	return w.cluster.SetFinalizers(ctx, o.kind, o.Unstructured, others.Names(), true)
}

// release deletes a kept object, unless that is done, and removes Crossplane's finalizers. It returns the rest, or nil
// if no object is left.
func (w *orphan) release(ctx context.Context, o object, deleted bool) ([]string, error) {
	for range maxOrphanConflicts {
		now, err := w.cluster.Get(ctx, o.kind, o.GetNamespace(), o.GetName())
		switch {
		case kerrors.IsNotFound(err), err == nil && now.GetUID() != o.GetUID():
			return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
		case err != nil:
			return nil, err
		}
		own, others := ownFinalizers(now)
		keep, _ := keeping(now)
		state, name := diagnosis.StateOf(now, w.now()), diagnosis.ExternalName(now)
		switch {
		case deleted && len(own) == 0:
			return now.GetFinalizers(), nil
		case len(keep) > 0:
			return nil, errors.New("another client ended the pause, or allowed the external resource to be deleted")
		case diagnosis.Blocks(state.Run, now):
			return nil, errors.Errorf("meanwhile its %s may be in progress until %s: wait, and run the command again",
				state.Run.Type, diagnosis.Until(state.Run))
		case name != diagnosis.ExternalName(o):
			return nil, errors.Errorf("meanwhile its external name is %q: run the command again", name)
		case !deleted:
			err = w.cluster.Orphan(ctx, o.kind, now, false)
			deleted = err == nil
		default:
			err = w.cluster.SetFinalizers(ctx, o.kind, now, others.Names(), false)
		}
		if err != nil && !cluster.Changed(err) && !kerrors.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, errors.New("other clients write to it all the time")
}

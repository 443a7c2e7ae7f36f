package crashtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// errNotApplicable says that a provider has nothing for a default scenario.
var errNotApplicable = errors.New("not applicable")

// A User acts on the managed resource of a scenario, and on a second one of its kind.
type User struct {
	run *run

	// abandoned is the external resource that AbandonSecond left.
	abandoned string

	// specs of managed resources before the first change that has to show.
	specs map[string]map[string]any

	// calling says that the user acts during a call.
	calling bool
}

// Edit the managed resource, unless it no longer exists. If its spec changes, its external resource has to.
func (u *User) Edit(fn func(o client.Object)) error { return u.changeFirst(fn, false) }

// Wait lets simulated time pass.
func (u *User) Wait(d time.Duration) error {
	u.run.phase.wait = d
	return nil
}

// Client returns a client of the API server that no fault reaches, for other objects than the managed resource.
func (u *User) Client() client.Client { return u.run.sim.API.Admin() }

// Cloud returns the fake of the external system, to change it behind the provider's back.
func (u *User) Cloud() Cloud { return u.run.cloud }

// Create the managed resource.
func Create(u *User) error { return u.create(u.run.first, "") }

// CreateSecond creates a second managed resource, with the changes of [Provider.Second].
func CreateSecond(u *User) error { return u.create(u.run.second, "") }

// CreateSameName creates a second managed resource with the external name of the first.
// From then on the external resource has to stay.
func CreateSameName(u *User) error {
	if err := u.needsAnnotation(); err != nil {
		return err
	}
	name := u.run.nameOf(u.run.first)
	u.protect(name)
	return u.create(u.run.second, name)
}

// Change the managed resource with [Provider.Change].
func Change(u *User) error {
	if u.run.provider.Change == nil {
		return errors.Wrap(errNotApplicable, "crashtest: a scenario changes the managed resource: set Provider.Change")
	}
	return u.changeFirst(u.run.provider.Change, true)
}

// ChangeBack gives the managed resource the spec again that it had before the first change.
func ChangeBack(u *User) error {
	return u.changeFirst(func(o client.Object) {
		content := contentOf(o)
		spec, _ := content["spec"].(map[string]any)
		before, _ := u.specs[o.GetName()]["spec"].(map[string]any)
		maps.Copy(spec, before)
		_ = decode(content, o)
	}, false)
}

// Delete the managed resource.
func Delete(u *User) error { return u.remove(u.run.first) }

// DeleteSecond deletes the second managed resource.
func DeleteSecond(u *User) error {
	if !u.run.expect.Exempt(u.run.second.GetName()) && len(u.run.faults.injections) == 0 {
		if err := u.needsExternal(u.run.second); err != nil {
			return err
		}
	}
	return u.remove(u.run.second)
}

// AbandonSecond removes the second managed resource without its finalizers, so that its
// external resource belongs to no managed resource. From then on it has to stay.
func AbandonSecond(u *User) error {
	name := u.run.nameOf(u.run.second)
	// After the first act a fault may be the cause, which is no reason to end the run.
	if !u.run.faults.armed {
		if err := u.needsExternal(u.run.second); err != nil {
			return err
		}
	}
	u.protect(name)
	u.abandoned = name
	if err := u.remove(u.run.second); err != nil {
		return err
	}
	return u.run.edit(u.run.second, func(o client.Object) error {
		o.SetFinalizers(nil)
		return nil
	})
}

// Rename sets the external name of the managed resource to the one that [AbandonSecond]
// left. The former external resource has to stay.
func Rename(u *User) error {
	if err := u.needsAnnotation(); err != nil {
		return err
	}
	if u.abandoned == "" {
		return errors.New("crashtest: a scenario renames a managed resource: call AbandonSecond before")
	}
	u.protect(u.run.nameOf(u.run.first))
	u.act("sets the external name to "+u.abandoned, "", history.Act{Kind: history.Released, External: u.abandoned})
	return u.run.edit(u.run.first, func(o client.Object) error {
		meta.SetExternalName(o, u.abandoned)
		return nil
	})
}

// Restart the provider as an upgrade does: its process is stopped and another one starts.
func Restart(u *User) error {
	u.act("restarts the provider", "", history.Act{})
	u.run.sim.Restart()
	return nil
}

// Pause reconciliation of the managed resource by its annotation. From then on any change
// to its external resource is a finding, unless the reconcile had begun before.
func Pause(u *User) error {
	return u.editFirst("pauses the managed resource", history.Paused, func(o client.Object) error {
		meta.AddAnnotations(o, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
		return nil
	})
}

// Resume reconciliation of the managed resource.
func Resume(u *User) error {
	return u.editFirst("resumes the managed resource", history.Resumed, func(o client.Object) error {
		meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused)
		return nil
	})
}

// ForbidDelete takes the action Delete out of the management policies. From then on the
// external resource has to stay.
func ForbidDelete(u *User) error {
	return u.editFirst("takes Delete out of the management policies", history.Other, func(o client.Object) error {
		m, ok := o.(manageable)
		if !ok {
			return errors.Wrapf(errNotApplicable, "crashtest: %T has no spec.managementPolicies", o)
		}
		policies := slices.Clone(policiesOf(o))
		if len(policies) == 0 {
			policies = xpv2.ManagementPolicies{
				xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
				xpv2.ManagementActionLateInitialize,
			}
		}
		m.SetManagementPolicies(slices.DeleteFunc(policies, func(p xpv2.ManagementAction) bool {
			return p == xpv2.ManagementActionDelete
		}))
		return nil
	})
}

// AddFinalizer adds the finalizer of another controller, which removes it ten seconds after the deletion. From then on
// the provider must not remove it.
func AddFinalizer(u *User) error {
	u.finalized(anotherFinalizer)
	return u.run.edit(u.run.first, func(o client.Object) error {
		meta.AddFinalizer(o, anotherFinalizer)
		return nil
	})
}

// DenyAccess makes the external system refuse each call with status 401.
func DenyAccess(u *User) error {
	u.run.faults.denied = true
	u.act("revokes the credentials", "", history.Act{Kind: history.Denied})
	return nil
}

// GrantAccess ends [DenyAccess].
func GrantAccess(u *User) error {
	u.run.faults.denied = false
	u.act("repairs the credentials", "", history.Act{Kind: history.Granted})
	return nil
}

// DeleteExternal deletes the external resource behind the provider's back, which has to create it again. The fake needs
// a method Delete as [Resources] has.
func DeleteExternal(u *User) error {
	c, ok := u.run.cloud.(interface{ Delete(name string) bool })
	if !ok {
		return errors.Wrapf(errNotApplicable, "crashtest: %T has no method Delete(name string) bool", u.run.cloud)
	}
	name := u.run.nameOf(u.run.first)
	u.act("deletes external resource "+name, u.run.first.GetName(), history.Act{Kind: history.Lost, External: name})
	c.Delete(name)
	return nil
}

// act records an act of the user, and makes the run look at its state again.
func (u *User) act(text, object string, a history.Act) {
	if text != "" {
		text = "the user " + text
	}
	a.During = u.calling
	u.run.act(history.Event{Kind: history.KindAct, Text: text, Object: object, Act: a})
}

// editFirst changes the managed resource with an act of a kind.
func (u *User) editFirst(text string, kind history.ActKind, fn func(o client.Object) error) error {
	u.act(text, u.run.first.GetName(), history.Act{Kind: kind})
	return u.run.edit(u.run.first, fn)
}

// protect an external resource: it has to stay as it is.
func (u *User) protect(name string) {
	if state, ok := u.run.cloud.Exists()[name]; ok {
		u.act("", "", history.Act{Kind: history.Protected, External: name, State: state})
	}
}

// finalized says that another controller added a finalizer.
func (u *User) finalized(name string) {
	u.act(
		"sees finalizer "+name+" of another controller", u.run.first.GetName(),
		history.Act{Kind: history.Finalized, External: name},
	)
}

func (u *User) needsAnnotation() error {
	if u.run.provider.annotated {
		return nil
	}
	return errors.Wrap(errNotApplicable, "crashtest: with Provider.Name no annotation sets the external name")
}

// needsExternal returns an error if a managed resource has no external resource.
func (u *User) needsExternal(o client.Object) error {
	name := u.run.nameOf(o)
	if _, exists := u.run.cloud.Exists()[name]; exists && name != "" {
		return nil
	}
	return errors.Wrapf(
		errNotApplicable, "crashtest: the second managed resource has no external resource %q, for instance because "+
			"a field of the spec has to be unique: set Provider.Second", name,
	)
}

func (u *User) create(o client.Object, externalName string) error {
	o, _ = o.DeepCopyObject().(client.Object)
	act := history.Act{Kind: history.Created}
	if externalName != "" {
		meta.SetExternalName(o, externalName)
		act.Kind = history.CreatedShared
	}
	u.run.sim.API.Track(o)
	err := u.Client().Create(context.Background(), o)
	if kerrors.IsAlreadyExists(err) && u.run.expect.Gone(o.GetName()) {
		return nil // A fault keeps the one that was deleted, which is a finding.
	}
	delete(u.specs, o.GetName())
	u.act("creates "+o.GetName(), o.GetName(), act)
	for _, f := range o.GetFinalizers() {
		u.finalized(f)
	}
	return errors.Wrapf(err, "crashtest: the user cannot create %s", o.GetName())
}

// changeFirst changes the managed resource. shows says that the change has to show in [Cloud.Exists]. Otherwise
// it has to if the user changes the spec, and does not change it back.
func (u *User) changeFirst(fn func(o client.Object), shows bool) error {
	name := u.run.first.GetName()
	state, exists := u.run.cloud.Exists()[u.run.nameOf(u.run.first)]
	if made := u.run.cloud.Made(); !exists && u.calling && len(made) > u.run.foreign {
		// The create that is under way has made it, and its name is not stored yet.
		state, exists = u.run.cloud.Exists()[made[len(made)-1]]
	}
	kind := history.Other
	err := u.run.edit(u.run.first, func(o client.Object) error {
		was := specOf(o)
		fn(o)
		is := specOf(o)
		switch before, changed := u.specs[name]; {
		case !changed && exists && (shows || !equality.Semantic.DeepEqual(was, is)):
			u.specs[name], kind = was, history.Changed
		case changed && !shows && equality.Semantic.DeepEqual(before, is):
			kind = history.ChangedBack
		}
		return nil
	})
	u.act("changes "+name, name, history.Act{Kind: kind, State: state})
	return err
}

func (u *User) remove(of client.Object) error {
	u.act("deletes "+of.GetName(), of.GetName(), history.Act{Kind: history.Deleted})
	o, err := u.run.sim.API.Stored(of)
	if err != nil || o == nil {
		return err
	}
	return client.IgnoreNotFound(u.Client().Delete(context.Background(), o))
}

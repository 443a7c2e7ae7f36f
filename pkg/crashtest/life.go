package crashtest

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Life is a list of acts of a user on managed resources. At its end each managed resource
// has to be as the user wants it: Ready with its external resource, or gone with it.
type Life struct {
	// Name of the life, which is part of the name of a subtest.
	Name string

	// Before lists acts that happen before any fault does.
	Before []Act

	// Acts of the life. Faults happen from the first one on.
	Acts []Act

	// Creates is how many external resources the provider may create in this life. 1 if
	// it is 0.
	Creates int

	// optional lives are left out if the provider has nothing for them.
	optional bool
}

// An Act is one thing that a user does, when the provider is at rest.
type Act struct {
	// Do it, for instance (*User).Delete. Returning an error ends the run.
	Do func(u *User) error

	// DuringCall moves the act into the first call that changes the external system after
	// the previous act: it happens after the external system changed and before the
	// provider gets the answer. Without such a call it happens at rest.
	DuringCall bool
}

// Lives returns the default lives. Append to them, or select some.
func Lives() []Life {
	create, change, remove := Act{Do: (*User).Create}, Act{Do: (*User).Change}, Act{Do: (*User).Delete}
	deny, grant := Act{Do: (*User).DenyAccess}, Act{Do: (*User).GrantAccess}
	rename, abandoned := Act{Do: (*User).Rename}, []Act{
		create, {Do: (*User).CreateAnother}, {Do: (*User).AbandonAnother},
	}
	during := func(a Act) Act {
		a.DuringCall = true
		return a
	}
	lives := []Life{
		{Name: "create", Acts: []Act{create}},
		{Name: "update", Before: []Act{create}, Acts: []Act{change}},
		{Name: "delete", Before: []Act{create}, Acts: []Act{remove}},
		{Name: "delete-in-create", Acts: []Act{create, during(remove)}},
		{Name: "update-in-create", Acts: []Act{create, during(change)}},
		{Name: "delete-in-update", Before: []Act{create}, Acts: []Act{change, during(remove)}},
		{Name: "restart", Before: []Act{create}, Acts: []Act{{Do: (*User).Restart}}},
		{Name: "pause", Before: []Act{create}, Acts: []Act{{Do: (*User).Pause}, change, {Do: (*User).Resume}}},
		{Name: "orphan", Before: []Act{create}, Acts: []Act{{Do: (*User).ForbidDelete}, remove}},
		{Name: "rename", Creates: 2, Before: abandoned, Acts: []Act{rename}},
		{Name: "rename-delete", Creates: 2, Before: abandoned, Acts: []Act{rename, remove}},
		{
			Name: "same-name", Before: []Act{create},
			Acts: []Act{{Do: (*User).CreateSameName}, {Do: (*User).DeleteAnother}},
		},
		{Name: "credentials", Acts: []Act{deny, create, grant}},
		{Name: "credentials-delete", Before: []Act{create}, Acts: []Act{deny, remove, grant}},
	}
	for i := range lives {
		lives[i].optional = true
	}
	return lives
}

// errNotApplicable says that a provider has nothing for a default life.
var errNotApplicable = errors.New("not applicable")

// A User acts on the managed resource of a life, and on another one of its kind.
type User struct {
	world *world
}

// Create the managed resource.
func (u *User) Create() error { return u.create(0, "") }

// Change the managed resource with [Provider.Change].
func (u *User) Change() error {
	if u.world.subject.change == nil {
		return errors.Wrap(errNotApplicable, "crashtest: a life changes the managed resource: set Provider.Change")
	}
	return u.change(u.world.subject.change, true)
}

// Edit the managed resource, unless it no longer exists.
func (u *User) Edit(fn func(o client.Object)) error {
	return u.change(fn, false)
}

// change the managed resource. shows says that the change has to show in [Cloud.Exists]. Otherwise
// it has to if the user changes the spec, and does not change it back.
func (u *User) change(fn func(o client.Object), shows bool) error {
	u.world.userDoes("changes %s", u.world.key(0).Name)
	state, exists := u.world.cloud.Exists()[u.world.nameOf(0)]
	if made := u.world.cloud.Made(); !exists && u.world.calling && len(made) > u.world.foreign {
		// The create that is under way has made it, and its name is not stored yet.
		state, exists = u.world.cloud.Exists()[made[len(made)-1]]
	}
	return u.edit(0, func(o client.Object) error {
		was := specOf(o)
		fn(o)
		is := specOf(o)
		switch e := u.world.edited; {
		case e == nil && exists && (shows || !equality.Semantic.DeepEqual(was, is)):
			u.world.edited = &edit{state: state, spec: was}
		case e != nil && !shows && equality.Semantic.DeepEqual(e.spec, is):
			u.world.edited = nil
		}
		return nil
	})
}

// Delete the managed resource.
func (u *User) Delete() error { return u.delete(0) }

// Restart the provider as an upgrade does: its process is stopped and another one starts.
func (u *User) Restart() error {
	u.world.userDoes("restarts the provider")
	for _, p := range u.world.alive() {
		u.world.retire(p)
	}
	u.world.start()
	return nil
}

// Pause reconciliation of the managed resource by its annotation. From then on any change
// to its external resource is a finding. During a call, from when the provider is at rest on.
func (u *User) Pause() error {
	u.world.userDoes("pauses the managed resource")
	u.world.wants[0].paused, u.world.wants[0].finishes = true, u.world.calling
	return u.edit(0, func(o client.Object) error {
		meta.AddAnnotations(o, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
		return nil
	})
}

// Resume reconciliation of the managed resource.
func (u *User) Resume() error {
	u.world.userDoes("resumes the managed resource")
	u.world.wants[0].paused = false
	return u.edit(0, func(o client.Object) error {
		meta.RemoveAnnotations(o, meta.AnnotationKeyReconciliationPaused)
		return nil
	})
}

// ForbidDelete takes the action Delete out of the management policies. From then on the
// external resource has to stay.
func (u *User) ForbidDelete() error {
	u.world.userDoes("takes Delete out of the management policies")
	return u.edit(0, func(o client.Object) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		policies := limitedTo(content)
		if len(policies) == 0 {
			policies = []string{"Observe", "Create", "Update", "LateInitialize"}
		}
		policies = slices.DeleteFunc(policies, func(p string) bool { return p == "Delete" })
		if err := unstructured.SetNestedStringSlice(content, policies, "spec", "managementPolicies"); err != nil {
			return err
		}
		if err := decode(content, o); err != nil {
			return err
		}
		back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return err
		}
		if got, _, err := unstructured.NestedSlice(back, "spec", "managementPolicies"); err != nil ||
			len(got) != len(policies) {
			return errors.Wrapf(errNotApplicable, "crashtest: %T has no spec.managementPolicies", o)
		}
		return nil
	})
}

// CreateAnother creates a second managed resource.
func (u *User) CreateAnother() error { return u.create(1, "") }

// CreateSameName creates a second managed resource with the external name of the first.
// From then on the external resource has to stay.
func (u *User) CreateSameName() error {
	if u.world.subject.named {
		return errors.Wrap(
			errNotApplicable, "crashtest: Provider.Name is set: the external name can't be set with an annotation",
		)
	}
	name := u.world.nameOf(0)
	u.world.protect(name)
	u.world.wants[1].any = true
	return u.create(1, name)
}

// DeleteAnother deletes the second managed resource.
func (u *User) DeleteAnother() error { return u.delete(1) }

// AbandonAnother removes the second managed resource without its finalizers, so that its
// external resource belongs to no managed resource. From then on it has to stay.
func (u *User) AbandonAnother() error {
	u.world.userDoes("abandons the second managed resource")
	name := u.world.nameOf(1)
	if name == "" {
		return errors.Wrap(errNotApplicable, "crashtest: the second managed resource has no external name")
	}
	// After the first act a fault may be the cause, which is no reason to end the run.
	if _, exists := u.world.cloud.Exists()[name]; !exists && !u.world.plan.armed {
		return errors.Wrapf(
			errNotApplicable, "crashtest: the second managed resource has no external resource %q, for instance because "+
				"a field of the spec has to be unique", name,
		)
	}
	if err := u.edit(1, func(o client.Object) error {
		o.SetFinalizers(nil)
		return nil
	}); err != nil {
		return err
	}
	u.world.protect(name)
	u.world.abandoned = name
	u.world.wants[1].gone = true
	return u.delete(1)
}

// Rename sets the external name of the managed resource to the one that AbandonAnother
// left. The former external resource has to stay.
func (u *User) Rename() error {
	if u.world.subject.named {
		return errors.Wrap(
			errNotApplicable, "crashtest: Provider.Name is set: the external name can't be set with an annotation",
		)
	}
	if u.world.abandoned == "" {
		return errors.New("crashtest: a life renames a managed resource: call AbandonAnother before")
	}
	u.world.userDoes("sets the external name to %q", u.world.abandoned)
	u.world.protect(u.world.nameOf(0))
	u.world.release(u.world.abandoned)
	return u.edit(0, func(o client.Object) error {
		meta.SetExternalName(o, u.world.abandoned)
		return nil
	})
}

// DenyAccess makes the external system refuse each call with status 401.
func (u *User) DenyAccess() error {
	u.world.userDoes("revokes the credentials")
	u.world.denied = true
	return nil
}

// GrantAccess ends DenyAccess.
func (u *User) GrantAccess() error {
	u.world.userDoes("repairs the credentials")
	u.world.denied = false
	return nil
}

// Wait lets simulated time pass.
func (u *User) Wait(d time.Duration) error {
	u.world.waitUntil = time.Now().Add(d)
	return nil
}

func (u *User) create(i int, externalName string) error {
	o := u.world.blank(i)
	u.world.userDoes("creates %s", o.GetName())
	if externalName != "" {
		meta.SetExternalName(o, externalName)
	}
	err := u.world.server.Admin().Create(context.Background(), o)
	if kerrors.IsAlreadyExists(err) && u.world.wants[i].gone {
		return nil // A fault keeps the one that was deleted, which is a finding.
	}
	u.world.wants[i] = want{exists: true, any: u.world.wants[i].any}
	if i == 0 {
		u.world.edited = nil
	}
	return errors.Wrapf(err, "crashtest: the user cannot create %s", o.GetName())
}

func (u *User) edit(i int, fn func(o client.Object) error) error {
	defer u.world.touch()
	for {
		o, err := u.world.stored(i)
		if err != nil || o == nil {
			return err
		}
		if err := fn(o); err != nil {
			return err
		}
		if err := u.world.server.Admin().Update(context.Background(), o); !kerrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}

func (u *User) delete(i int) error {
	defer u.world.touch()
	u.world.userDoes("deletes %s", u.world.blank(i).GetName())
	u.world.wants[i].gone = true
	o, err := u.world.stored(i)
	if err != nil || o == nil {
		return err
	}
	return client.IgnoreNotFound(u.world.server.Admin().Delete(context.Background(), o))
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A finding is the result of one life.
type finding struct {
	// duplicate: a second external resource was created.
	duplicate bool

	// leak: there is an external resource without a managed resource, which will
	// never be deleted. That of one that is stopped isn't a leak yet.
	leak bool

	// nameLost: the external resource exists, and what is stored isn't its name.
	nameLost bool

	// stuck: it is at rest, or isn't within bounds, and not as the user wants it,
	// and no condition says that an operator has to decide.
	stuck bool

	// stopped: nothing is in progress, and a condition says what is unknown.
	stopped bool

	// misled: a create made something and returned an error that says that it did not.
	// With a finder, or a name that is known beforehand, Graft looks before it repeats
	// that create or lets the object go, so such a life has to end as any other. A
	// token belongs to the create that failed, and the last kind has nothing: there,
	// for each such answer, one resource may be left behind and made again. No more.
	misled bool

	// reconciles from the last fault to rest.
	reconciles int

	// steps that were taken, and how many faults struck.
	steps  []step
	struck int

	// why it isn't fine, in words.
	why []string

	// err says that the life couldn't be led.
	err error
}

// bad reports whether something happened that must never happen.
func (f finding) bad() bool { return f.duplicate || f.leak || f.nameLost || f.stuck || f.err != nil }

func (f *finding) because(flag *bool, format string, a ...any) {
	*flag = true
	f.why = append(f.why, fmt.Sprintf(format, a...))
}

// judge how a life ended.
func (w *world) judge(s story, rested bool) finding {
	f := finding{
		reconciles: max(w.reconcilesChanged-w.reconcilesBefore, 0),
		steps:      w.steps,
		struck:     w.plan.struck,
	}

	d, err := w.object()
	if err != nil {
		f.err = err
		return f
	}
	unknown := says(d)

	switch {
	case d == nil && !s.deleted:
		f.because(&f.stuck, "the managed resource is gone, but it was not deleted by the user")
	case unknown != "":
		f.because(&f.stopped, "stopped: %s", unknown)
	case s.deleted && d != nil:
		f.because(&f.stuck, "the managed resource is still there: finalizers %v, %s", d.GetFinalizers(), conditions(d))
	case !s.deleted:
		w.judgeExisting(&f, s, d, rested)
	}

	// A refusal that is not true can be found out only by a look-up, at once: nothing waits
	// after a refusal.
	excused := 0
	if k := w.kind.goesBy(); k == tokenClient || k == blindClient || k == finderClient && w.lag > 0 {
		excused = w.denied
	}
	created, left := w.cloud.Stats(string(w.user.uid)).Created, w.unowned(d)
	f.misled = excused > 0 && (created > 1 || len(left) > 0)
	if created > 1+excused {
		f.because(&f.duplicate, "%d external resources were created", created)
	}

	if len(left) > excused && !f.stopped {
		f.because(&f.leak, "will never be deleted: %s", strings.Join(left, ", "))
	}
	w.tracef("%s", strings.Join(f.why, "; "))
	return f
}

// judgeExisting looks at what is to exist.
func (w *world) judgeExisting(f *finding, s story, d *v1alpha1.Database, rested bool) {
	there := w.cloud.Inventory()
	if len(there) == 0 {
		f.because(&f.stuck, "there is no external resource: %s", conditions(d))
		return
	}
	i := slices.IndexFunc(there, func(r cloud.Resource) bool { return meta.GetExternalName(d) == r.ID })
	if i < 0 {
		f.because(&f.nameLost, "the external name is %q, there is %s", meta.GetExternalName(d), w.inventory())
		return
	}
	if ready := d.GetCondition(xpv2.TypeReady); ready.Status != corev1.ConditionTrue || sizeOf(there[i]) != s.size || !rested {
		f.because(&f.stuck, "at rest %t, size %d, want %d: %s", rested, sizeOf(there[i]), s.size, conditions(d))
	}
}

// unowned returns the external resources that no managed resource stands for. d is
// nil if there is none.
func (w *world) unowned(d *v1alpha1.Database) []string {
	var out []string
	for _, r := range w.cloud.Inventory() {
		if d == nil || meta.GetExternalName(d) != r.ID {
			out = append(out, r.ID)
		}
	}
	return out
}

func (w *world) inventory() string {
	var ids []string
	for _, r := range w.cloud.Inventory() {
		ids = append(ids, fmt.Sprintf("%s (%s)", r.ID, r.State))
	}
	return strings.Join(ids, ", ")
}

func conditions(d *v1alpha1.Database) string {
	var out []string
	for _, c := range d.Status.Conditions {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s/%s %s", c.Type, c.Status, c.Reason, c.Message)))
	}
	return strings.Join(out, ", ")
}

// says returns the condition message of a managed resource that waits until an
// operator has determined the outcome of a create. Otherwise it returns "".
func says(d *v1alpha1.Database) string {
	if d == nil {
		return ""
	}
	synced := d.GetCondition(xpv2.TypeSynced)
	if synced.Status != corev1.ConditionFalse {
		return ""
	}
	for _, admits := range []string{"cannot determine creation result", "it is unknown whether the external resource was created"} {
		if strings.Contains(synced.Message, admits) {
			return synced.Message
		}
	}
	return ""
}

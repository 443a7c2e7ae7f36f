package seam

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxAnnounceFailures is how many reconciles in a row may fail because
	// conditions can't be announced. After that they continue without: a
	// deletion must not depend on whether it can be reported.
	maxAnnounceFailures = 5

	conditionAttempts   = 5
	firstConditionDelay = 10 * time.Millisecond
)

// ErrNoStatus means that the API server has the object but no status for it:
// its CRD lacks the status subresource.
var ErrNoStatus = errors.New("the kind has no status subresource: its CRD must declare one")

// Conditioned returns the conditions of o, which is of this kind, in
// status.conditions. It returns false for an object that has none, and for an
// unstructured object that has something else there.
//
// An object may be a resource.Conditioned, an unstructured object, or of a Go type
// that ConditionsError accepts. An unstructured object that has no conditions yet has
// none, unless the scheme knows a Go type of its kind that has.
func (k Kind) Conditioned(o client.Object) (resource.Conditioned, bool) {
	if u, ok := o.(runtime.Unstructured); ok {
		content := u.UnstructuredContent()
		found, ok := hasConditions(content)
		_, is := o.(resource.Conditioned)
		return contentConditions{content: content}, ok && (found || is || k.conditioned)
	}

	if c, ok := o.(resource.Conditioned); ok {
		return c, true
	}
	return fieldConditions{object: o}, k.conditioned && reflect.TypeOf(o) == k.goType
}

// ConditionsError returns an error if the kind's Go type has status.conditions that
// conditions can't be written to.
func (k Kind) ConditionsError() error { return k.conditionsErr }

// supportsConditions reports whether objects of a Go type have conditions, and
// returns an error if those can't hold what a condition says.
func supportsConditions(of reflect.Type) (bool, error) {
	o, ok := reflect.New(of.Elem()).Interface().(client.Object)
	if !ok {
		return false, nil
	}
	if _, ok := o.(runtime.Unstructured); ok {
		return false, nil
	}
	if _, ok := o.(resource.Conditioned); ok {
		return true, nil
	}
	list, ok := conditionsField(o, true)
	if !ok {
		return false, nil
	}

	// Whether a type fits is found out by trying it.
	want, c := xpv2.Deleting().WithMessage("message"), fieldConditions{object: o}
	if list.Kind() == reflect.Slice {
		c.SetConditions(want)
	}

	if list.Kind() != reflect.Slice || !c.GetCondition(want.Type).Equal(want) {
		return false, errors.Errorf("the conditions of %s are of type %s, which can't hold a condition: use []metav1.Condition, or implement resource.Conditioned", of, list.Type())
	}
	return true, nil
}

// conditionsField returns the field status.conditions of an object of a Go type. It
// is false if there is none, also because a pointer on the way is nil, unless those
// are to be set.
func conditionsField(o client.Object, set bool) (reflect.Value, bool) {
	status, ok := jsonField(reflect.ValueOf(o), "status", set)
	if !ok {
		return reflect.Value{}, false
	}
	return jsonField(status, "conditions", set)
}

// jsonField returns the field of a struct that has the supplied name in JSON, also
// if it is one of an inlined struct.
func jsonField(v reflect.Value, name string, set bool) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			if !set || !v.CanSet() {
				return reflect.Value{}, false
			}
			v.Set(reflect.New(v.Type().Elem()))
		}

		v = v.Elem()
	}

	if v.Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && f.IsExported() {
			return v.Field(i), true
		}
		if tag == "" && f.Anonymous {
			if in, ok := jsonField(v.Field(i), name, set); ok {
				return in, true
			}
		}
	}
	return reflect.Value{}, false
}

// fieldConditions are the conditions of an object of a Go type, such as
// []metav1.Condition. They are read and written as JSON, which is what their type
// has in common with Crossplane's.
type fieldConditions struct{ object client.Object }

func (c fieldConditions) all() []xpv2.Condition {
	list, ok := conditionsField(c.object, false)
	if !ok {
		return nil
	}
	data, err := json.Marshal(list.Interface())
	if err != nil {
		return nil
	}
	var entries []map[string]any
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil
	}

	// A field that has another form than Crossplane's hides no condition.
	out := make([]xpv2.Condition, len(entries))
	for i, m := range entries {
		out[i] = conditionFrom(m)
	}
	return out
}

// GetCondition returns a condition.
func (c fieldConditions) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	s := xpv2.ConditionedStatus{Conditions: c.all()}
	return s.GetCondition(t)
}

// SetConditions sets conditions.
func (c fieldConditions) SetConditions(cs ...xpv2.Condition) {
	list, ok := conditionsField(c.object, true)
	if !ok {
		return
	}
	for _, want := range cs {
		had := c.all()
		i := slices.IndexFunc(had, func(h xpv2.Condition) bool { return h.Type == want.Type })
		entry := reflect.New(list.Type().Elem())

		if i >= 0 {
			if had[i].Equal(want) {
				continue
			}
			entry.Elem().Set(list.Index(i))
		}

		// All fields are there, also those that are empty.
		data, err := json.Marshal(metav1.Condition{
			Type:               string(want.Type),
			Status:             metav1.ConditionStatus(want.Status),
			ObservedGeneration: want.ObservedGeneration,
			LastTransitionTime: want.LastTransitionTime,
			Reason:             string(want.Reason),
			Message:            want.Message,
		})
		if err != nil || json.Unmarshal(data, entry.Interface()) != nil {
			continue // supportsConditions would have found out.
		}
		if i >= 0 {
			list.Index(i).Set(entry.Elem())
		} else {
			list.Set(reflect.Append(list, entry.Elem()))
		}
	}
}

// contentConditions are the conditions of an unstructured object that hasConditions
// has checked. Setting one leaves the others as they are, also what only
// metav1.Condition requires: a message may be empty, but not missing.
type contentConditions struct{ content map[string]any }

func (c contentConditions) list() []any {
	v, _, _ := unstructured.NestedFieldNoCopy(c.content, "status", "conditions")
	list, _ := v.([]any)
	return list
}

// GetCondition returns a condition.
func (c contentConditions) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	for _, v := range c.list() {
		if m, _ := v.(map[string]any); m["type"] == string(t) {
			return conditionFrom(m)
		}
	}
	return xpv2.Condition{Type: t, Status: corev1.ConditionUnknown}
}

// SetConditions sets conditions.
func (c contentConditions) SetConditions(cs ...xpv2.Condition) {
	list := slices.Clone(c.list())

	for _, want := range cs {
		entry := map[string]any{}
		i := slices.IndexFunc(list, func(v any) bool {
			m, _ := v.(map[string]any)
			return m["type"] == string(want.Type)
		})

		if i >= 0 {
			m, _ := list[i].(map[string]any)
			if conditionFrom(m).Equal(want) {
				continue
			}
			entry = maps.Clone(m)
		}

		entry["type"], entry["status"], entry["reason"], entry["message"] = string(want.Type), string(want.Status), string(want.Reason), want.Message
		entry["lastTransitionTime"] = want.LastTransitionTime.UTC().Format(time.RFC3339)
		delete(entry, "observedGeneration")
		if want.ObservedGeneration != 0 {
			entry["observedGeneration"] = want.ObservedGeneration
		}

		if i >= 0 {
			list[i] = entry
		} else {
			list = append(list, entry)
		}
	}

	// It was checked that nothing else is there.
	status, ok := c.content["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		c.content["status"] = status
	}
	status["conditions"] = list
}

// conditionFrom decodes what it can of a condition.
func conditionFrom(m map[string]any) xpv2.Condition {
	text := func(k string) string { s, _ := m[k].(string); return s }

	c := xpv2.Condition{
		Type:    xpv2.ConditionType(text("type")),
		Status:  corev1.ConditionStatus(text("status")),
		Reason:  xpv2.ConditionReason(text("reason")),
		Message: text("message"),
	}

	if t, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
		c.LastTransitionTime = metav1.NewTime(t)
	}

	switch n := m["observedGeneration"].(type) {
	case int64:
		c.ObservedGeneration = n
	case float64:
		c.ObservedGeneration = int64(n)
	}
	return c
}

// hasConditions reports whether there are conditions, and whether what there is
// has their shape. What has it only in JSON, since an inner reconciler has set an int or a
// list of structs, is replaced by what a decoder makes of that.
func hasConditions(content map[string]any) (found, ok bool) {
	v, found, err := unstructured.NestedFieldNoCopy(content, "status", "conditions")

	switch {
	case err != nil:
		return false, false
	case !found || v == nil:
		return false, true
	case areConditions(v):
		return true, true
	}

	data, _ := json.Marshal(v) //nolint:errchkjson // Nothing is decoded then.
	if v, ok = decoded(data); !ok || !areConditions(v) {
		return false, false
	}
	return true, unstructured.SetNestedField(content, v, "status", "conditions") == nil
}

// areConditions reports whether v can be decoded as conditions.
func areConditions(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(c any) bool { return !isCondition(c) })
}

// isCondition reports whether v can be decoded as a condition.
func isCondition(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for _, k := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
		switch m[k].(type) {
		case nil, string:
		default:
			return false
		}
	}

	switch m["observedGeneration"].(type) {
	case nil, int64, float64:
		return true
	default:
		return false
	}
}

// conditionsOf returns a copy of the list at status.conditions of o, which is invalid if
// there is none.
func (k Kind) conditionsOf(o client.Object) reflect.Value {
	list, ok := conditionsField(o, false)
	if u, is := o.(runtime.Unstructured); is {
		v, _, _ := unstructured.NestedFieldNoCopy(u.UnstructuredContent(), "status", "conditions")
		list, ok = reflect.ValueOf(v), v != nil
	}
	if !ok || list.Kind() != reflect.Slice {
		return reflect.Value{}
	}
	return reflect.AppendSlice(reflect.MakeSlice(list.Type(), 0, list.Len()), list)
}

// setConditions sets the list at status.conditions of o, and reports whether that changed
// it.
func (k Kind) setConditions(o client.Object, list reflect.Value) bool {
	was := k.conditionsOf(o)
	if !was.IsValid() || list.IsValid() && reflect.DeepEqual(was.Interface(), list.Interface()) {
		return false
	}
	if !list.IsValid() {
		list = reflect.Zero(was.Type())
	}
	if u, ok := o.(runtime.Unstructured); ok {
		status, _ := u.UnstructuredContent()["status"].(map[string]any)
		if status["conditions"] = list.Interface(); list.IsNil() {
			delete(status, "conditions")
		}
		return true
	}
	field, _ := conditionsField(o, false)
	field.Set(list)
	return true
}

// withoutPatches returns a list of conditions without those of the patches. What server has
// of these is in their place, unless it is nil.
func (s *Session) withoutPatches(list reflect.Value, server client.Object) reflect.Value {
	if !list.IsValid() {
		return list
	}
	stored, out := reflect.MakeSlice(list.Type(), 0, 0), reflect.MakeSlice(list.Type(), 0, list.Len())
	if server != nil {
		if l := s.kind.conditionsOf(server); l.IsValid() && l.Type() == list.Type() {
			stored = l
		}
	}

	for i := range list.Len() {
		c := list.Index(i)
		t := conditionType(c)
		if !slices.ContainsFunc(s.patches, func(p Patch) bool { return slices.Contains(p.Conditions, t) }) {
			out = reflect.Append(out, c)
			continue
		}
		for j := range stored.Len() {
			if conditionType(stored.Index(j)) == t {
				out = reflect.Append(out, stored.Index(j))
			}
		}
	}
	return out
}

// conditionType returns the type of an entry of a list of conditions.
func conditionType(c reflect.Value) xpv2.ConditionType {
	if m, ok := c.Interface().(map[string]any); ok {
		t, _ := m["type"].(string)
		return xpv2.ConditionType(t)
	}
	if f, ok := jsonField(c, "type", false); ok && f.Kind() == reflect.String {
		return xpv2.ConditionType(f.String())
	}
	return ""
}

// ConditionOf returns the condition of that type of o, which is of this kind, or the
// zero condition if o has no conditions.
func (k Kind) ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	if c, ok := k.Conditioned(o); ok {
		return c.GetCondition(t)
	}
	return xpv2.Condition{}
}

// ConditionOf returns the condition of that type of o, or the zero condition if o is
// of a Go type without methods for conditions, or has none.
func ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	return Kind{}.ConditionOf(o, t)
}

// SetConditions sets conditions on o as upstream does, with the generation they
// were observed at. A condition that the API server has already keeps the time
// of its last transition, even if it was replaced in memory meanwhile. That time
// changes with the status only, as metav1.Condition has it; in Crossplane's types it
// changes with the reason and the message, too.
func (s *Session) SetConditions(o client.Object, cs ...xpv2.Condition) {
	to, ok := s.kind.Conditioned(o)
	if !ok {
		return
	}
	from, ok := s.kind.Conditioned(s.base)
	_, crossplanes := o.(resource.Conditioned)

	for _, c := range cs {
		c.ObservedGeneration = o.GetGeneration()

		if ok {
			had := from.GetCondition(c.Type)
			same := had.Equal(c) || !crossplanes && had.Status == c.Status
			if same && !had.LastTransitionTime.IsZero() {
				c.LastTransitionTime = had.LastTransitionTime
			}
		}

		to.SetConditions(c)
	}
}

// Say returns the conditions that an object is to have, given what the API
// server has, or none to leave it alone. It may be called more than once: what
// was read first may turn out to be old.
type Say func(server client.Object) []xpv2.Condition

// WriteConditions puts conditions on the API server, and nothing else. It does
// nothing if they are there. Conflicts are resolved by reading the object from
// the API server itself; an object that is gone needs no conditions, which is no
// error.
//
// If o is not nil, o's resource version follows if no other client wrote in between.
func (s *Session) WriteConditions(ctx context.Context, o client.Object, say Say) error {
	followed := o != nil && o.GetResourceVersion() == s.base.GetResourceVersion()

	for attempt := 1; ; attempt++ {
		server, err := s.patchConditions(ctx, say(s.base))

		switch {
		case err == nil && server == nil:
			return nil
		case err == nil:
			s.wrote(server, true)
			if followed {
				o.SetResourceVersion(server.GetResourceVersion())
			}
			return nil
		case !kerrors.IsConflict(err) && !kerrors.IsNotFound(err) && !kerrors.IsInvalid(err):
			return errors.Wrap(err, "cannot write conditions")
		}

		live, lerr := s.live(ctx)
		if lerr != nil {
			return errors.Wrap(lerr, "cannot write conditions")
		}
		if live == nil {
			s.ended()
			return nil
		}

		if live.GetResourceVersion() == s.base.GetResourceVersion() || attempt == conditionAttempts {
			if kerrors.IsNotFound(err) {
				return ErrNoStatus
			}
			return errors.Wrap(err, "cannot write conditions")
		}

		followed = false
		s.rebase(live, s.writes.get(live).fresh(live.GetResourceVersion()))
		if werr := s.options.Wait(ctx, firstConditionDelay<<attempt); werr != nil {
			return errors.Wrap(werr, "cannot write conditions")
		}
	}
}

// Announce puts conditions on the API server before the inner reconciler sees o,
// and gives o the state that the API server then has.
//
// If that fails in a way that may pass, the error is returned, so that the
// reconcile is retried, a limited number of times. After that, or if the error is
// permanent, it calls failed and returns nil.
func (s *Session) Announce(ctx context.Context, o client.Object, failed func(o client.Object, err error), say Say) error {
	err := s.WriteConditions(ctx, nil, say)

	switch {
	case s.gone:
		return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case err == nil:
		s.writes.succeeded(o)
		if o.GetResourceVersion() != s.base.GetResourceVersion() {
			s.Refresh(o)
		}
		return nil
	}

	s.unannounced = true
	if !Permanent(err) && s.writes.failed(o) <= maxAnnounceFailures {
		return err
	}
	failed(o, err)
	return nil
}

// Withdraw announces a condition instead of one that is True on the API server, though o is
// not being deleted: another writer has restored it. One that o has since our last write is
// the inner reconciler's own. The API server may turn out to have o as being deleted.
func (s *Session) Withdraw(ctx context.Context, o client.Object, failed func(o client.Object, err error), c xpv2.Condition) error {
	restored := func(o client.Object) bool {
		return !meta.WasDeleted(o) && s.kind.ConditionOf(o, c.Type).Status == corev1.ConditionTrue && s.writes.get(o).version != o.GetResourceVersion()
	}
	if !restored(o) {
		return nil
	}
	return s.Announce(ctx, o, failed, func(server client.Object) []xpv2.Condition {
		if !restored(server) {
			return nil
		}
		return []xpv2.Condition{c}
	})
}

// patchConditions returns the object as the API server then has it, or nil if
// there was nothing to write.
func (s *Session) patchConditions(ctx context.Context, cs []xpv2.Condition) (client.Object, error) {
	if len(cs) == 0 {
		return nil, nil //nolint:nilnil // As below.
	}
	want := clone(s.base)
	s.SetConditions(want, cs...)
	return s.patchStatus(ctx, want)
}

// patchStatus makes the status on the API server that of want. It returns the object as
// the API server then has it, or nil if there was nothing to write.
func (s *Session) patchStatus(ctx context.Context, want client.Object) (client.Object, error) {
	diff, err := client.MergeFrom(s.base).Data(want)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if err := json.Unmarshal(diff, &body); err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, nil //nolint:nilnil // Nothing to write is an answer.
	}
	p, err := guarded(s.base, body)
	if err != nil {
		return nil, err
	}
	o := Empty(s.base)
	err = s.client.Status().Patch(ctx, o, p)
	s.doubt(s.base, err)
	return o, err
}

// Stamp formats a time for a message. Unlike an elapsed time it does not change.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

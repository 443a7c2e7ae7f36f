package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// errUnsupported is what a server answers that is asked for what none of Graft's code
// asks for.
var errUnsupported = errors.New("embedded: neither applies nor deletes collections")

// serving returns what a server does to writes before and after they reach the
// tracker.
func (s *Server) serving() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
			return s.write(ctx, o, dry, s.checkCreate, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			dry := len((&client.UpdateOptions{}).ApplyOptions(opts).DryRun) > 0
			return s.write(ctx, o, dry, s.checkUpdate, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption,
		) error {
			dry := len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0
			check := func(ctx context.Context, o client.Object) error { return s.checkPatch(ctx, o, p, false) }
			return s.write(ctx, o, dry, check, func() error { return asRefused(p, c.Patch(ctx, o, p, opts...)) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			s.writing.Lock()
			defer s.writing.Unlock()
			do := (&client.DeleteOptions{}).ApplyOptions(opts)
			if len(do.DryRun) > 0 {
				return c.Delete(ctx, o, opts...)
			}
			return s.delete(ctx, o, do)
		},
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			return errUnsupported
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errUnsupported
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			so := (&client.SubResourceUpdateOptions{}).ApplyOptions(opts)
			// With a body the object only names what to update.
			dry := len(so.DryRun) > 0 || so.SubResourceBody != nil
			return s.write(
				ctx, o, dry, s.checkUpdate, func() error { return c.SubResource(name).Update(ctx, o, opts...) },
			)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			so := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
			dry := len(so.DryRun) > 0 || so.SubResourceBody != nil
			check := func(ctx context.Context, o client.Object) error { return s.checkPatch(ctx, o, p, true) }
			return s.write(
				ctx, o, dry, check,
				func() error { return asRefused(p, c.SubResource(name).Patch(ctx, o, p, opts...)) },
			)
		},
		SubResourceApply: func(
			context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption,
		) error {
			return errUnsupported
		},
	}
}

// write checks a write, does it and reads the stored object into o. A dry write is
// only passed on.
func (s *Server) write(
	ctx context.Context, o client.Object, dry bool, check func(context.Context, client.Object) error, do func() error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if dry {
		return do()
	}
	s.writing.Lock()
	defer s.writing.Unlock()

	if check != nil {
		if err := check(ctx, o); err != nil {
			return err
		}
	}

	if err := do(); err != nil {
		return err
	}

	// The object is gone if its last finalizer was removed. What the write left
	// in o is then the last that is known of it, as it is with a real server.
	key := client.ObjectKeyFromObject(o)
	stored, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("embedded: a copy of %T has no metadata", o)
	}
	if err := s.base.Get(ctx, key, stored); err != nil {
		return client.IgnoreNotFound(err)
	}
	return s.base.Get(ctx, key, o)
}

func (s *Server) checkCreate(_ context.Context, o client.Object) error {
	gvk, err := s.base.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	if k, ok := s.kinds[gvk]; ok && k.namespaced && o.GetNamespace() == "" {
		return kerrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	return nil
}

// checkUpdate refuses an update of another object of the same name. The tracker
// can't: for status it sees the stored object's metadata.
func (s *Server) checkUpdate(ctx context.Context, o client.Object) error {
	gvk, current, err := s.current(ctx, o)
	if err != nil {
		return err
	}
	if o.GetUID() != "" && o.GetUID() != current.GetUID() {
		return kerrors.NewConflict(s.resource(gvk), o.GetName(), anotherUID(o.GetUID(), current.GetUID()))
	}
	if _, custom := s.kinds[gvk]; custom && o.GetResourceVersion() == "" {
		return kerrors.NewInvalid(gvk.GroupKind(), o.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"),
		})
	}
	return nil
}

// checkPatch refuses a patch that would change the UID. The tracker would too, but
// isn't asked if the patch removes the last finalizer.
//
// It also refuses a patch of another version, which the fake client lets pass if it is
// one of the status of an unstructured object.
func (s *Server) checkPatch(ctx context.Context, o client.Object, p client.Patch, status bool) error {
	if p.Type() != types.MergePatchType && p.Type() != types.StrategicMergePatchType {
		return nil
	}
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var body struct {
		Metadata struct {
			UID     types.UID `json:"uid"`
			Version string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return kerrors.NewBadRequest(err.Error())
	}
	if body.Metadata.UID == "" && body.Metadata.Version == "" {
		return nil
	}
	gvk, current, err := s.current(ctx, o)
	if err != nil {
		return err
	}
	if v := body.Metadata.Version; v != "" && v != current.GetResourceVersion() {
		return kerrors.NewConflict(s.resource(gvk), o.GetName(), anotherVersion(v, current.GetResourceVersion()))
	}
	if uid := body.Metadata.UID; uid != "" && !status {
		if errs := validation.ValidateImmutableField(
			uid, current.GetUID(), field.NewPath("metadata", "uid"),
		); len(errs) > 0 {
			return kerrors.NewInvalid(gvk.GroupKind(), o.GetName(), errs)
		}
	}
	return nil
}

// asRefused gives the error of a JSON patch that doesn't apply, be it for its test,
// the status that a server answers with.
func asRefused(p client.Patch, err error) error {
	var status kerrors.APIStatus
	if err == nil || p.Type() != types.JSONPatchType || errors.As(err, &status) {
		return err
	}
	return kerrors.NewGenericServerResponse(
		http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false,
	)
}

// delete an object. It needs the lock.
func (s *Server) delete(ctx context.Context, o client.Object, do *client.DeleteOptions) error {
	gvk, current, err := s.current(ctx, o)
	if err != nil {
		return err
	}
	if p := do.Preconditions; p != nil {
		switch {
		case p.UID != nil && *p.UID != current.GetUID():
			return kerrors.NewConflict(s.resource(gvk), o.GetName(), anotherUID(*p.UID, current.GetUID()))
		case p.ResourceVersion != nil && *p.ResourceVersion != current.GetResourceVersion():
			return kerrors.NewConflict(
				s.resource(gvk), o.GetName(), anotherVersion(*p.ResourceVersion, current.GetResourceVersion()),
			)
		}
	}

	if had := current.GetFinalizers(); s.collect && do.PropagationPolicy != nil {
		current.SetFinalizers(finalizersFor(*do.PropagationPolicy, had))

		if !slices.Equal(had, current.GetFinalizers()) {
			s.tracker.collecting = true
			err := s.base.Update(ctx, current)
			s.tracker.collecting = false
			if err != nil {
				return err
			}

			// The object is gone if it lost its last finalizer.
			return client.IgnoreNotFound(s.base.Delete(ctx, o))
		}
	}
	return s.base.Delete(ctx, o)
}

// finalizersFor returns the finalizers of an object that is deleted with a propagation
// policy.
func finalizersFor(p metav1.DeletionPropagation, had []string) []string {
	fs := slices.DeleteFunc(slices.Clone(had), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})

	switch p {
	case metav1.DeletePropagationOrphan:
		fs = append(fs, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		fs = append(fs, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground:
	}
	return fs
}

func anotherUID(want, got types.UID) error {
	return fmt.Errorf("the request is for UID %s, the object has UID %s", want, got)
}

func anotherVersion(want, got string) error {
	return fmt.Errorf("the request is for version %s, the object has version %s", want, got)
}

// current returns the kind of an object, and the object as it is stored.
func (s *Server) current(ctx context.Context, o client.Object) (schema.GroupVersionKind, client.Object, error) {
	gvk, err := s.base.GroupVersionKindFor(o)
	if err != nil {
		return gvk, nil, err
	}
	current, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return gvk, nil, fmt.Errorf("embedded: a copy of %s has no metadata", gvk)
	}
	return gvk, current, s.base.Get(ctx, client.ObjectKeyFromObject(o), current)
}

func (s *Server) resource(gvk schema.GroupVersionKind) schema.GroupResource {
	m, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}
	}
	return m.Resource.GroupResource()
}

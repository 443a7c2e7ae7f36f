package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// describe a managed resource for the oracle. o is nil if it no longer exists.
func (s *subject) describe(name string, o client.Object) oracle.Object {
	out := oracle.Object{Name: name, Conditions: "it no longer exists"}
	if o == nil {
		return out
	}
	var status xpv2.ConditionedStatus
	if content, ok := contentOf(o)["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status) // Another status has no conditions.
	}
	out.Version = history.Version{
		Exists: true, UID: string(o.GetUID()), External: s.Name(o), Ready: ready(status), Orphans: orphans(o),
	}
	operation := status.GetCondition(asyncstate.TypeOperation)
	out.Finalizers, out.Conditions, out.Fixed = o.GetFinalizers(), text(status), forbids(o, xpv2.ManagementActionUpdate)
	out.Async = operation.Reason != ""
	out.Undecided = meta.ExternalCreateIncomplete(o) || operation.Reason == asyncstate.ReasonOutcomeUnknown
	return out
}

// ready reports whether conditions say that an object is ready and synced. One of a kind without
// conditions is.
func ready(s xpv2.ConditionedStatus) bool {
	is := func(t xpv2.ConditionType) bool { return s.GetCondition(t).Status == corev1.ConditionTrue }
	synced := s.GetCondition(xpv2.TypeSynced).Reason == "" || is(xpv2.TypeSynced)
	return len(s.Conditions) == 0 || is(xpv2.TypeReady) && synced
}

// text returns conditions in one line. A message that another condition has, too, is quoted once.
func text(s xpv2.ConditionedStatus) string {
	var out []string
	said := map[string]bool{}
	for _, c := range s.Conditions {
		if said[c.Message] {
			c.Message = ""
		}
		said[c.Message] = true
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s/%s %s", c.Type, c.Status, c.Reason, c.Message)))
	}
	return cmp.Or(strings.Join(out, ", "), "it has no conditions")
}

// changedFields returns the paths of the fields that differ.
func changedFields(was, is client.Object) (out []string) {
	if was == nil || is == nil {
		return nil
	}
	a, b := map[string]any{}, map[string]any{}
	flatten("", contentOf(was), a)
	flatten("", contentOf(is), b)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		own := strings.HasPrefix(path, "metadata.resourceVersion") || strings.HasPrefix(path, "metadata.generation") ||
			strings.HasSuffix(path, ".lastTransitionTime")
		if !own && !reflect.DeepEqual(a[path], b[path]) {
			out = append(out, path)
		}
	}
	return out
}

// flatten a value to its fields by their paths.
func flatten(path string, v any, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, field := range v {
			flatten(strings.TrimPrefix(path+"."+k, "."), field, out)
		}
	case []any:
		for i, e := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), e, out)
		}
	default:
		out[path] = v
	}
}

// removedFinalizers returns the finalizers that an object no longer has.
func removedFinalizers(was, is client.Object) []string {
	if was == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(was.GetFinalizers()), func(f string) bool {
		return is != nil && slices.Contains(is.GetFinalizers(), f)
	})
}

// connectionSecret returns the data of a managed resource's connection secret, or nil if it has none.
func connectionSecret(ctx context.Context, r client.Reader, o client.Object) map[string]string {
	ref, _, err := unstructured.NestedStringMap(contentOf(o), "spec", "writeConnectionSecretToRef")
	if err != nil || ref["name"] == "" {
		return nil
	}
	u, s, out := &unstructured.Unstructured{}, &corev1.Secret{}, map[string]string{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	key := client.ObjectKey{Namespace: cmp.Or(ref["namespace"], o.GetNamespace()), Name: ref["name"]}
	if r.Get(ctx, key, u) != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s) != nil {
		return out
	}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out
}

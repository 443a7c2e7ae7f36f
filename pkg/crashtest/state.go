package crashtest

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// describe a managed resource for the oracle. o is nil if it no longer exists.
func (s *subject) describe(name string, o client.Object) oracle.Object {
	if o == nil {
		return oracle.Object{Name: name, Conditions: "it no longer exists"}
	}
	content := contentOf(o)
	cs := conditionsOf(content)
	async, unknown := operationOf(cs)
	return oracle.Object{
		Name: name, Finalizers: o.GetFinalizers(), Conditions: conditionsText(cs),
		Undecided: meta.ExternalCreateIncomplete(o) || unknown, Async: async, Fixed: !mayUpdate(content),
		Version: history.Version{
			Exists: true, UID: string(o.GetUID()), External: s.Name(o), Ready: ready(cs), Orphans: orphans(content),
		},
	}
}

// changedFields returns the paths of the fields that differ.
func changedFields(was, is client.Object) (out []string) {
	if was == nil || is == nil {
		return nil
	}
	var walk func(path string, a, b any)
	walk = func(path string, a, b any) {
		ignored := []string{".metadata.resourceVersion", ".metadata.generation"}
		if reflect.DeepEqual(a, b) || slices.Contains(ignored, path) || strings.HasSuffix(path, ".lastTransitionTime") {
			return
		}
		x, isMap := a.(map[string]any)
		y, both := b.(map[string]any)
		if !isMap || !both {
			l, isList := a.([]any)
			m, both := b.([]any)
			if !isList || !both || len(l) != len(m) {
				out = append(out, strings.TrimPrefix(path, "."))
				return
			}
			for i := range l {
				walk(fmt.Sprintf("%s[%d]", path, i), l[i], m[i])
			}
			return
		}
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			walk(path+"."+k, x[k], y[k])
		}
	}
	walk("", contentOf(was), contentOf(is))
	return out
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

// connectionSecret returns the data of a managed resource's connection secret, or nil.
func connectionSecret(ctx context.Context, r client.Reader, o client.Object) map[string]string {
	content := contentOf(o)
	path := []string{"spec", "writeConnectionSecretToRef"}
	name, found, err := unstructured.NestedString(content, append(path, "name")...)
	if !found || err != nil {
		return nil
	}
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: name}
	namespace, found, err := unstructured.NestedString(content, append(path, "namespace")...)
	if err == nil && found {
		key.Namespace = namespace
	}
	s := &unstructured.Unstructured{}
	s.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Secret"})
	out := map[string]string{}
	if r.Get(ctx, key, s) != nil {
		return out
	}
	data, _, err := unstructured.NestedStringMap(s.Object, "data")
	if err != nil {
		return out
	}
	for k, v := range data {
		if text, err := base64.StdEncoding.DecodeString(v); err == nil {
			out[k] = string(text)
		}
	}
	return out
}

// A condition of a managed resource.
type condition struct{ kind, status, reason, message string }

func conditionsOf(content map[string]any) []condition {
	list, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return nil
	}
	var out []condition
	for _, e := range list {
		c, ok := e.(map[string]any)
		if !ok {
			continue
		}
		field := func(name string) string {
			s, _ := c[name].(string)
			return s
		}
		out = append(out, condition{field("type"), field("status"), field("reason"), field("message")})
	}
	return out
}

// ready reports whether conditions say that an object is ready and synced. One of a kind without
// conditions is.
func ready(cs []condition) bool {
	isReady := len(cs) == 0
	for _, c := range cs {
		isReady = isReady || c.kind == "Ready" && c.status == "True"
		if c.kind == "Synced" && c.status != "True" {
			return false
		}
	}
	return isReady
}

// conditionsText returns conditions in one line. A message that another condition has, too, is quoted once.
func conditionsText(cs []condition) string {
	var out []string
	said := map[string]bool{}
	for _, c := range cs {
		if said[c.message] {
			c.message = ""
		}
		said[c.message] = true
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s/%s %s", c.kind, c.status, c.reason, c.message)))
	}
	if len(out) == 0 {
		return "it has no conditions"
	}
	return strings.Join(out, ", ")
}

// operationOf reports whether conditions show that operations are asynchronous, and whether the outcome of one is not
// known.
func operationOf(cs []condition) (async, unknown bool) {
	for _, c := range cs {
		if c.kind == string(asyncstate.TypeOperation) {
			return true, c.reason == string(asyncstate.ReasonOutcomeUnknown)
		}
	}
	return false, false
}

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// now is when the tests run: their objects have times before it.
var now = time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)

// An api is an API server in memory, as far as the plugin uses one. It checks the UID and
// the resource version that a write names.
type api struct {
	mu      sync.Mutex
	kinds   map[schema.GroupVersion][]metav1.APIResource
	objects map[string]*unstructured.Unstructured
	version int

	// forbidden are requests, as "verb plural", that are refused. "describe group/version" is a discovery that fails.
	forbidden map[string]bool

	// before is called before a write, and denied is how a webhook refuses it.
	before func(o *unstructured.Unstructured)
	denied string

	// emptied is called after a write that removes the last finalizer has been checked, and before the object is
	// deleted.
	emptied func()

	// onRequest is called before each request.
	onRequest func(r *http.Request)

	// fails returns the error of a request, or nil. The API server answers with a status, and any other error means
	// that there is no answer.
	fails func(r *http.Request) error

	// pageSize is how many objects a page of a list has at most.
	pageSize int

	// date is the time that each answer has, if it is set.
	date time.Time

	// writes are the requests that would change something.
	writes []string
}

func resourceOf(kind, plural string, namespaced bool, categories ...string) metav1.APIResource {
	return metav1.APIResource{
		Name:         plural,
		SingularName: strings.ToLower(kind),
		Kind:         kind,
		Namespaced:   namespaced,
		Categories:   categories,
		Verbs:        []string{"get", "list", "update", "patch", "delete"},
	}
}

// newAPI returns an API server with the kinds of Crossplane, of a provider, and the objects
// of a YAML file in testdata.
func newAPI(t *testing.T, files ...string) *api {
	t.Helper()
	gv := func(s string) schema.GroupVersion {
		out, err := schema.ParseGroupVersion(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := &api{
		objects: map[string]*unstructured.Unstructured{}, forbidden: map[string]bool{}, pageSize: 500,
		kinds: map[schema.GroupVersion][]metav1.APIResource{
			gv("v1"): {
				resourceOf("Namespace", "namespaces", false),
				resourceOf("ConfigMap", "configmaps", true),
			},
			gv("coordination.k8s.io/v1"): {resourceOf("Lease", "leases", true)},
			gv("apiextensions.k8s.io/v1"): {
				resourceOf("CustomResourceDefinition", "customresourcedefinitions", false),
			},
			gv("apiextensions.crossplane.io/v1"): {
				resourceOf("CompositeResourceDefinition", "compositeresourcedefinitions", false),
			},
			gv("protection.crossplane.io/v1beta1"): {
				resourceOf("Usage", "usages", true),
				resourceOf("ClusterUsage", "clusterusages", false),
			},
			gv("pkg.crossplane.io/v1"): {resourceOf("ProviderRevision", "providerrevisions", false)},
			gv("example.org/v1"): {
				resourceOf("XApp", "xapps", false, "composite"),
				resourceOf("App", "apps", true, "claim"),
			},
			gv("cloud.example.org/v1"): {
				resourceOf("Database", "databases", false, "managed"),
				resourceOf("ProviderConfig", "providerconfigs", true, "crossplane"),
				resourceOf("ProviderConfigUsage", "providerconfigusages", true),
			},
			gv("s3.cloud.example.org/v1"): {
				resourceOf("Bucket", "buckets", true, "managed"),
				resourceOf("Policy", "policies", true, "managed"),
			},
			gv("s3.other.example.org/v1"): {resourceOf("Policy", "policies", true, "managed")},
		},
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join("testdata", f))
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			a.add(t, doc)
		}
	}
	return a
}

// add an object.
func (a *api) add(t *testing.T, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	if len(u.Object) == 0 {
		return
	}
	if u.GetUID() == "" {
		u.SetUID(types.UID("uid-of-" + strings.ToLower(u.GetKind()) + "-" + u.GetName()))
	}
	a.version++
	u.SetResourceVersion(strconv.Itoa(a.version))
	r, ok := a.resource(u.GroupVersionKind())
	if !ok {
		t.Fatalf("the fake API server has no kind %s", u.GroupVersionKind())
	}
	a.objects[key(u.GroupVersionKind().GroupVersion(), r.Name, u.GetNamespace(), u.GetName())] = u
}

// remove an object at once.
func (a *api) remove(o *unstructured.Unstructured) {
	maps.DeleteFunc(a.objects, func(_ string, x *unstructured.Unstructured) bool { return x == o })
}

func (a *api) resource(gvk schema.GroupVersionKind) (metav1.APIResource, bool) {
	i := slices.IndexFunc(a.kinds[gvk.GroupVersion()], func(r metav1.APIResource) bool { return r.Kind == gvk.Kind })
	if i < 0 {
		return metav1.APIResource{}, false
	}
	return a.kinds[gvk.GroupVersion()][i], true
}

func key(gv schema.GroupVersion, plural, namespace, name string) string {
	return strings.Join([]string{gv.String(), plural, namespace, name}, "|")
}

// leftPolicy returns the key of a policy that a finalizer holds.
func leftPolicy() string {
	return key(schema.GroupVersion{Group: "s3.cloud.example.org", Version: "v1"}, "policies", "team-b", "left")
}

// RoundTrip answers a request.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == "unreachable" {
		return nil, errors.New("no such host")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onRequest != nil {
		a.onRequest(r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	code, body := 0, any(nil)
	if a.fails == nil || a.fails(r) == nil {
		code, body = a.answer(r)
	} else if s := kerrors.APIStatus(nil); errors.As(a.fails(r), &s) {
		code, body = status(int(s.Status().Code), s.Status().Reason, s.Status().Message)
	} else {
		return nil, a.fails(r)
	}
	text, err := json.Marshal(body)
	header := http.Header{"Content-Type": []string{"application/json"}}
	if !a.date.IsZero() {
		header.Set("Date", a.date.Format(http.TimeFormat))
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Request: r, Header: header,
		Body: io.NopCloser(bytes.NewReader(text)),
	}, err
}

func (a *api) answer(r *http.Request) (int, any) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/version":
		return 200, version.Info{GitVersion: "v1.35.0"}
	case r.URL.Path == "/api":
		return 200, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case r.URL.Path == "/apis":
		return 200, a.groups()
	case parts[0] == "api":
		return a.request(r, schema.GroupVersion{Version: parts[1]}, parts[2:])
	default:
		return a.request(r, schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:])
	}
}

func (a *api) groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for gv := range a.kinds {
		if gv.Group != "" {
			v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
			out.Groups = append(out.Groups,
				metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
	}
	return out
}

// request answers a request below a group and version.
func (a *api) request(r *http.Request, gv schema.GroupVersion, parts []string) (int, any) {
	if len(parts) == 0 && a.forbidden["describe "+gv.String()] {
		return status(503, metav1.StatusReasonServiceUnavailable, "the server is currently unable to handle the request")
	}
	if len(parts) == 0 {
		return 200, metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: gv.String(),
			APIResources: a.kinds[gv],
		}
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	plural, verb := parts[0], strings.ToLower(r.Method)
	if len(parts) == 1 {
		verb = "list"
	}
	if a.forbidden[verb+" "+plural] {
		return status(
			403,
			metav1.StatusReasonForbidden,
			fmt.Sprintf("%s.%s is forbidden: User \"jane\" cannot %s resource %q in API group %q", plural, gv.Group,
				verb, plural, gv.Group),
		)
	}
	if len(parts) == 1 {
		return 200, a.list(r, gv, plural, namespace)
	}
	k := key(gv, plural, namespace, parts[1])
	if verb != "get" && a.before != nil && a.objects[k] != nil {
		a.before(a.objects[k])
	}
	o := a.objects[k]
	if verb != "get" && a.denied != "" {
		return status(403, metav1.StatusReasonForbidden, a.denied)
	}
	if o == nil {
		return status(404, metav1.StatusReasonNotFound, plural+" \""+parts[1]+"\" not found")
	}
	switch verb {
	case "patch", "put":
		return a.write(r, k, o)
	case "delete":
		return a.delete(r, k, o)
	}
	return 200, o
}

func status(code int, reason metav1.StatusReason, message string) (int, any) {
	return code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message, //nolint:gosec // It is small.
	}
}

func (a *api) list(r *http.Request, gv schema.GroupVersion, plural, namespace string) any {
	var of []*unstructured.Unstructured
	for k, o := range a.objects {
		if strings.HasPrefix(k, gv.String()+"|"+plural+"|") && (namespace == "" || namespace == o.GetNamespace()) {
			of = append(of, o)
		}
	}
	slices.SortFunc(of, func(x, y *unstructured.Unstructured) int {
		return cmp.Or(strings.Compare(x.GetNamespace(), y.GetNamespace()), strings.Compare(x.GetName(), y.GetName()))
	})
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to, next := min(len(of), from+a.pageSize), ""
	if to < len(of) {
		next = strconv.Itoa(to)
	}
	meta := map[string]any{"continue": next}
	if !strings.Contains(r.Header.Get("Accept"), "as=Table") {
		items := []any{}
		for _, o := range of[from:to] {
			items = append(items, o.Object)
		}
		return map[string]any{"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items}
	}
	rows := []any{}
	for _, o := range of[from:to] {
		rows = append(rows, map[string]any{
			"cells":  []any{o.GetName(), columnOf(o, "Synced"), columnOf(o, "Ready")},
			"object": map[string]any{"metadata": o.Object["metadata"]},
		})
	}
	return map[string]any{
		"kind":       "Table",
		"apiVersion": "meta.k8s.io/v1",
		"metadata":   meta,
		"rows":       rows,
		"columnDefinitions": []any{
			map[string]any{"name": "Name"},
			map[string]any{"name": "SYNCED"},
			map[string]any{"name": "READY"},
		},
	}
}

func columnOf(o *unstructured.Unstructured, typ string) string {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == typ {
			s, _ := m["status"].(string)
			return s
		}
	}
	return ""
}

// write answers a patch, or an update with a whole object.
func (a *api) write(r *http.Request, k string, o *unstructured.Unstructured) (int, any) {
	body, _ := io.ReadAll(r.Body)
	dryRun := r.URL.Query().Get("dryRun")
	a.writes = append(a.writes, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+dryRun)+"\n  "+string(body))
	out := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &out.Object); err != nil {
		return status(400, metav1.StatusReasonBadRequest, err.Error())
	}
	if code, s := guarded(o, out.GetUID(), out.GetResourceVersion()); code != 0 {
		return code, s
	}
	if r.Method == http.MethodPatch {
		out.Object = merge(o.DeepCopy().Object, out.Object)
	}
	adds := slices.ContainsFunc(out.GetFinalizers(), func(f string) bool {
		return !slices.Contains(o.GetFinalizers(), f)
	})
	if adds && o.GetDeletionTimestamp() != nil {
		return status(422, metav1.StatusReasonInvalid, "no new finalizers can be added if the object is being deleted")
	}
	a.version++
	out.SetResourceVersion(strconv.Itoa(a.version))
	if dryRun != "" {
		return 200, out
	}
	if out.GetDeletionTimestamp() == nil || len(out.GetFinalizers()) > 0 {
		a.objects[k] = out
		return 200, out
	}
	if a.emptied != nil {
		a.emptied()
	}
	// As in Kubernetes, the delete after an update has the UID as a precondition, and the delete after a patch has none.
	if r.Method == http.MethodPut && a.objects[k].GetUID() != out.GetUID() {
		return status(409, metav1.StatusReasonConflict, "Precondition failed: UID in precondition")
	}
	delete(a.objects, k)
	return 200, out
}

func (a *api) delete(r *http.Request, k string, o *unstructured.Unstructured) (int, any) {
	body, _ := io.ReadAll(r.Body)
	a.writes = append(a.writes, strings.TrimSpace("DELETE "+r.URL.Path)+"\n  "+string(body))
	opts := metav1.DeleteOptions{}
	if err := json.Unmarshal(body, &opts); err != nil || opts.Preconditions == nil {
		return status(400, metav1.StatusReasonBadRequest, fmt.Sprintf("preconditions are missing: %v", err))
	}
	if code, s := guarded(o, *opts.Preconditions.UID, *opts.Preconditions.ResourceVersion); code != 0 {
		return code, s
	}
	if len(opts.DryRun) > 0 {
		return status(200, "", "")
	}
	out := o.DeepCopy()
	if out.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(now)
		out.SetDeletionTimestamp(&at)
	}
	if p := opts.PropagationPolicy; p != nil && *p == metav1.DeletePropagationOrphan {
		// As in Kubernetes. Its own finalizer is added and soon removed.
		out.SetFinalizers(slices.DeleteFunc(out.GetFinalizers(), func(f string) bool {
			return f == metav1.FinalizerDeleteDependents
		}))
	}
	a.version++
	out.SetResourceVersion(strconv.Itoa(a.version))
	a.objects[k] = out
	if len(out.GetFinalizers()) == 0 {
		delete(a.objects, k)
	}
	return 200, out
}

// guarded returns an error unless a write names the stored UID and resource version.
func guarded(o *unstructured.Unstructured, uid types.UID, resourceVersion string) (int, any) {
	if uid == o.GetUID() && resourceVersion == o.GetResourceVersion() {
		return 0, nil
	}
	return status(409, metav1.StatusReasonConflict, "the object has been modified")
}

// merge a patch into an object.
func merge(o, patch map[string]any) map[string]any {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(o, k)
		case isMap:
			old, _ := o[k].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			o[k] = merge(old, below)
		default:
			o[k] = v
		}
	}
	return o
}

// A terminal holds the input and the output of a command.
type terminal struct {
	types    string
	isNone   bool
	out, err bytes.Buffer

	// outIsOne says that all streams are a terminal. ahead is how far its clock is ahead, and slow how far it moves
	// each time that it is read.
	outIsOne    bool
	ahead, slow time.Duration

	// wait is called where the plugin waits.
	wait func() error
}

// run the plugin with a command line, and return the exit status.
func (a *api) run(t *testing.T, term *terminal, args ...string) int {
	t.Helper()
	return a.runWith(t.Context(), t, term, args...)
}

func (a *api) runWith(ctx context.Context, t *testing.T, term *terminal, args ...string) int {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join("testdata", "kubeconfig"))
	flags := genericclioptions.NewConfigFlags(false)
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.Transport = a
		return c
	}
	var ticks atomic.Int64
	p := &plugin{
		flags:   flags,
		streams: genericiooptions.IOStreams{In: strings.NewReader(term.types), Out: &term.out, ErrOut: &term.err},
		clock: func() time.Time {
			return now.Add(term.ahead + time.Duration(ticks.Add(1))*term.slow)
		},
		wait:  func(context.Context, time.Duration) error { return term.wait() },
		build: "v0.24.0",
		terminal: func(stream any) bool {
			_, in := stream.(io.Reader)
			return term.outIsOne || in && !term.isNone && stream != any(&term.out) && stream != any(&term.err)
		},
	}
	return run(ctx, p, args)
}

// result runs a command line, and returns its output, requests and exit status.
func (a *api) result(t *testing.T, line string) string {
	t.Helper()
	term := &terminal{types: "y\n"}
	code := a.run(t, term, strings.Fields(line)...)
	out := "$ kubectl graft " + line + "\n" + term.out.String()
	if s := term.err.String(); s != "" {
		out += "--- stderr\n" + s
	}
	if len(a.writes) > 0 {
		out += "--- requests\n" + strings.Join(a.writes, "\n") + "\n"
		a.writes = nil
	}
	return out + fmt.Sprintf("--- exit status %d\n\n", code)
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // It is no secret.
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, which go test -update writes: -want, +got:\n%s", file, diff)
	}
}

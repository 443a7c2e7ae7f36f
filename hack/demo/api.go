package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// An api is an API server over HTTP as far as informers, mappers and dynamic clients
// need one: it serves the kinds of the CRDs that are created in it. Names are unique
// among all objects of a kind. It checks nothing, and there are no finalizers.
type api struct {
	mu      sync.Mutex
	version int
	kinds   map[string]metav1.TypeMeta                       // By path.
	objects map[string]map[string]*unstructured.Unstructured // By path of the kind, and name.
	events  []apiEvent
	changed chan struct{}
}

type apiEvent struct {
	version int
	path    string
	kind    apiwatch.EventType
	object  *unstructured.Unstructured
}

// serve starts one. Close it in the end.
func serve() *httptest.Server {
	a := &api{
		version: 1,
		kinds:   map[string]metav1.TypeMeta{crdPath: {APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}},
		objects: map[string]map[string]*unstructured.Unstructured{crdPath: {}},
		changed: make(chan struct{}),
	}

	return httptest.NewServer(a)
}

// ServeHTTP serves the Kubernetes API.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, name := a.parse(r.URL.Path)

	a.mu.Lock()
	_, served := a.objects[path]
	a.mu.Unlock()

	switch {
	case path == "":
		a.discover(w, strings.Trim(r.URL.Path, "/"))
	case !served:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r, path)
	default:
		a.answer(w, r, path, name)
	}
}

// parse returns the path of a kind without a namespace, and the name of an object.
// There is no kind in a request for discovery.
func (a *api) parse(url string) (path, name string) {
	p := strings.Split(strings.Trim(url, "/"), "/")
	if len(p) > 5 && p[3] == "namespaces" {
		p = slices.Delete(p, 3, 5)
	}

	if len(p) < 4 {
		return "", ""
	}

	if len(p) > 4 {
		name = p[4]
	}

	return "/" + strings.Join(p[:4], "/"), name
}

func (a *api) answer(w http.ResponseWriter, r *http.Request, path, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	objects := a.objects[path]

	in := &unstructured.Unstructured{}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&in.Object); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}

		name = in.GetName()
	}

	old := objects[name]

	switch {
	case r.Method == http.MethodGet && name == "":
		items := make([]any, 0, len(objects))
		for _, o := range objects {
			items = append(items, o.Object)
		}

		respond(w, map[string]any{
			"apiVersion": a.kinds[path].APIVersion, "kind": a.kinds[path].Kind + "List",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
		})
	case r.Method == http.MethodPost && old != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	case r.Method == http.MethodPost:
		a.store(path, apiwatch.Added, in)
		respond(w, in.Object)
	case old == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPut && in.GetResourceVersion() != old.GetResourceVersion():
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	case r.Method == http.MethodPut:
		a.store(path, apiwatch.Modified, in)
		respond(w, in.Object)
	case r.Method == http.MethodDelete:
		a.store(path, apiwatch.Deleted, old.DeepCopy())
		respond(w, metav1.Status{Status: metav1.StatusSuccess})
	default:
		respond(w, old.Object)
	}
}

// store an object, or that it is deleted. A CRD defines a kind.
func (a *api) store(path string, kind apiwatch.EventType, o *unstructured.Unstructured) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))

	if o.GetUID() == "" {
		o.SetUID(types.UID(o.GetResourceVersion()))
	}

	if kind == apiwatch.Deleted {
		delete(a.objects[path], o.GetName())
	} else {
		a.objects[path][o.GetName()] = o
	}

	if path == crdPath {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		of := "/apis/" + group + "/v1/" + plural
		a.kinds[of] = metav1.TypeMeta{APIVersion: group + "/v1", Kind: name}

		if kind == apiwatch.Deleted {
			delete(a.objects, of)
		} else if a.objects[of] == nil {
			a.objects[of] = map[string]*unstructured.Unstructured{}
		}
	}

	a.events = append(a.events, apiEvent{version: a.version, path: path, kind: kind, object: o})

	close(a.changed)
	a.changed = make(chan struct{})
}

// watch streams events until the client or the kind goes.
func (a *api) watch(w http.ResponseWriter, r *http.Request, path string) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") != "" {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)

	for {
		a.mu.Lock()

		changed, news := a.changed, a.events
		_, served := a.objects[path]
		a.mu.Unlock()

		for _, e := range news {
			if e.version > since && e.path == path {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object.Object})
			}

			since = max(since, e.version)
		}

		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}

		if !served {
			return
		}

		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// discover answers with the groups, or with the resources of one.
func (a *api) discover(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	resources := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: strings.TrimPrefix(path, "apis/")}

	add := func(group, plural, kind string, namespaced bool) {
		v := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}

		if resources.GroupVersion == v.GroupVersion {
			resources.APIResources = append(resources.APIResources, metav1.APIResource{
				Name: plural, Kind: kind, Namespaced: namespaced, Verbs: metav1.Verbs{"create", "delete", "get", "list", "update", "watch"},
			})
		}
	}

	add("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false)

	for _, crd := range a.objects[crdPath] {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
		add(group, plural, kind, scope == "Namespaced")
	}

	switch {
	case path == "api":
		respond(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "apis":
		respond(w, groups)
	case len(resources.APIResources) == 0:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	default:
		respond(w, resources)
	}
}

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: int32(code), Message: fmt.Sprint(reason), //nolint:gosec // An HTTP status.
	})
}

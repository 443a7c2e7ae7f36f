package watchtest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// A stream is an open watch.
type stream struct {
	req Request
	cut context.CancelFunc
}

// ServeHTTP serves the Kubernetes API.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, sub, ok := parse(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	done := a.arrive(&req)
	defer done()
	if !a.suffer(r.Context(), w, req) {
		return
	}
	switch req.Verb {
	case Discover:
		a.discover(w, req.GVR, sub)
	case Watch:
		a.watch(w, r, req)
	case Object:
		code, body := a.object(r, req)
		write(w, code, body)
	default:
		code, body := a.list(r, req)
		write(w, code, body)
	}
}

// parse says what a request wants. sub tells the two roots of discovery apart.
func parse(r *http.Request) (req Request, sub string, ok bool) {
	req.At = time.Now()
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case p[0] == "api" && len(p) == 1, p[0] == "apis" && len(p) == 1:
		req.Verb = Discover
		return req, p[0], true
	case p[0] == "apis" && len(p) == 2:
		return req, "", false
	case p[0] == "api":
		req.GVR.Version, p = p[1], p[2:]
	case p[0] == "apis":
		req.GVR.Group, req.GVR.Version, p = p[1], p[2], p[3:]
	default:
		return req, "", false
	}
	if len(p) == 0 {
		req.Verb = Discover
		return req, "", true
	}
	if p[0] == "namespaces" && len(p) > 2 {
		req.Namespace, p = p[1], p[2:]
	}
	req.GVR.Resource = p[0]
	if len(p) > 1 {
		req.Name = p[1]
	}
	q := r.URL.Query()
	switch {
	case r.Method != http.MethodGet || req.Name != "":
		req.Verb = Object
	case q.Get("watch") == "true" || q.Get("watch") == "1":
		req.Verb = Watch
		req.Initial = q.Get("sendInitialEvents") == "true"
	default:
		req.Verb = List
	}
	return req, "", true
}

// arrive records a request. The returned function says that it has ended.
func (a *API) arrive(r *Request) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, *r)
	a.pending[r] = struct{}{}
	wake(&a.arrived)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.pending, r)
		wake(&a.arrived)
	}
}

// suffer applies the fault that a request suffers, and says whether it is to be
// answered after that.
func (a *API) suffer(ctx context.Context, w http.ResponseWriter, r Request) bool {
	for {
		a.mu.Lock()
		i := a.faultFor(r)
		a.mu.Unlock()
		if i == nil {
			return true
		}
		switch f := i.fault; {
		case f.hang:
			select {
			case <-i.lifted:
				continue
			case <-ctx.Done():
				return false
			}
		case f.delay > 0 && !sleep(ctx, f.delay):
			return false
		case f.broken != nil:
			if c, ok := w.(*response); ok {
				c.fail(f.broken)
			}
			return false
		case f.status == 0:
			return true
		default:
			if f.retryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
			}
			if f.body != "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(f.status)
				_, _ = io.WriteString(w, f.body) // A client that went away is no error.
				return false
			}
			fail(w, f.status, "a fault of this test", r)
			return false
		}
	}
}

// sleep returns whether the context let it.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reasonFor returns the reason that goes with an HTTP status, for those that
// clients look at.
func reasonFor(status int) metav1.StatusReason {
	return map[int]metav1.StatusReason{
		http.StatusNotFound:            metav1.StatusReasonNotFound,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusGone:                metav1.StatusReasonExpired,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}[status]
}

func statusFor(code int, message string, r Request) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Message:  fmt.Sprintf("%s %s: %s", r.Verb, r.GVR.Resource, message),
		Reason:   reasonFor(code),
		Details:  &metav1.StatusDetails{Group: r.GVR.Group, Kind: r.GVR.Resource},
		Code:     int32(code), //nolint:gosec // An HTTP status.
	}
}

func refused(code int, message string, r Request) (int, any) {
	return code, statusFor(code, message, r)
}

func fail(w http.ResponseWriter, code int, message string, r Request) {
	write(w, code, statusFor(code, message, r))
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)

	// A client that went away is no error of ours.
	_ = json.NewEncoder(w).Encode(body)
}

// discover answers with the groups, or with the resources of one.
func (a *API) discover(w http.ResponseWriter, gvr schema.GroupVersionResource, root string) {
	a.mu.Lock()
	kinds := make([]Kind, 0, len(a.served))
	for _, s := range a.served {
		kinds = append(kinds, s.kind)
	}
	a.mu.Unlock()
	slices.SortFunc(kinds, func(x, y Kind) int {
		return cmp.Or(strings.Compare(x.Plural, y.Plural), strings.Compare(x.GVK.Group, y.GVK.Group))
	})
	switch root {
	case "api":
		write(w, http.StatusOK, metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"},
		})
		return
	case "apis":
		write(w, http.StatusOK, groups(kinds))
		return
	}
	out := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: gvr.GroupVersion().String(),
	}
	for _, k := range kinds {
		if k.GVK.GroupVersion() != gvr.GroupVersion() {
			continue
		}
		out.APIResources = append(out.APIResources, metav1.APIResource{
			Name:         k.Plural,
			SingularName: strings.ToLower(k.GVK.Kind),
			Namespaced:   !k.Cluster,
			Kind:         k.GVK.Kind,
			Verbs:        metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		})
	}
	if len(out.APIResources) == 0 {
		fail(
			w, http.StatusNotFound, "the server could not find the requested resource",
			Request{Verb: Discover, GVR: gvr},
		)
		return
	}
	write(w, http.StatusOK, out)
}

func groups(kinds []Kind) metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	at := make(map[string]int)
	for _, k := range kinds {
		if k.GVK.Group == "" {
			continue
		}
		i, ok := at[k.GVK.Group]
		if !ok {
			i = len(out.Groups)
			at[k.GVK.Group] = i
			out.Groups = append(out.Groups, metav1.APIGroup{Name: k.GVK.Group})
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GVK.GroupVersion().String(), Version: k.GVK.Version}
		g := &out.Groups[i]
		if !slices.Contains(g.Versions, v) {
			g.Versions = append(g.Versions, v)
			g.PreferredVersion = g.Versions[0]
		}
	}
	return out
}

// storageFor returns what is served at the request's path: a path with a
// namespace leads nowhere for a cluster-scoped kind.
func (a *API) storageFor(r Request) *storage {
	s := a.served[r.GVR]
	if s == nil || s.kind.Cluster && r.Namespace != "" {
		return nil
	}
	return s
}

// A view turns stored objects into what a client asked for.
type view func(k Kind, u *unstructured.Unstructured) map[string]any

// viewFor returns the view that a client accepts first: whole objects or their
// metadata.
func viewFor(r *http.Request) (view, func(k Kind) (apiVersion, kind string)) {
	if !strings.Contains(strings.Split(r.Header.Get("Accept"), ",")[0], "PartialObjectMetadata") {
		return func(_ Kind, u *unstructured.Unstructured) map[string]any { return u.Object },
			func(k Kind) (string, string) { return k.GVK.GroupVersion().String(), k.GVK.Kind + "List" }
	}
	return func(_ Kind, u *unstructured.Unstructured) map[string]any {
			return map[string]any{
				"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
				"metadata": u.Object["metadata"],
			}
		},
		func(Kind) (string, string) { return "meta.k8s.io/v1", "PartialObjectMetadataList" }
}

// list the objects of a kind. What it returns is a copy.
func (a *API) list(r *http.Request, req Request) (int, any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.storageFor(req)
	if s == nil {
		return refused(http.StatusNotFound, "the server could not find the requested resource", req)
	}
	see, list := viewFor(r)
	apiVersion, kind := list(s.kind)
	items := make([]any, 0, len(s.objects))
	for _, o := range s.sorted(req.Namespace) {
		items = append(items, see(s.kind, o))
	}
	return http.StatusOK, map[string]any{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(a.version, 10)},
		"items":    items,
	}
}

// sorted returns the objects in a namespace, or all, by name.
func (s *storage) sorted(namespace string) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(s.objects))
	for _, o := range slices.SortedFunc(maps.Values(s.objects), func(x, y *unstructured.Unstructured) int {
		return strings.Compare(x.GetNamespace()+"/"+x.GetName(), y.GetNamespace()+"/"+y.GetName())
	}) {
		if namespace == "" || o.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return out
}

// watch streams events until the client goes, the watch is cut, or the kind.
func (a *API) watch(w http.ResponseWriter, r *http.Request, req Request) {
	q := r.URL.Query()
	a.mu.Lock()
	s := a.storageFor(req)
	if s == nil {
		a.mu.Unlock()
		fail(w, http.StatusNotFound, "the server could not find the requested resource", req)
		return
	}
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	st := &stream{req: req, cut: cut}
	a.streams[st] = struct{}{}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.streams, st)
	}()
	see, _ := viewFor(r)
	since, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	var first []any
	switch {
	case req.Initial || since == 0:
		for _, o := range s.sorted(req.Namespace) {
			first = append(first, event(apiwatch.Added, see(s.kind, o)))
		}
		since = a.version
		if req.Initial {
			first = append(first, bookmark(s.kind, see, since))
		}
	case since < s.compacted:
		a.mu.Unlock()
		fail(w, http.StatusGone, "too old resource version", req)
		return
	}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	send := func(events []any) bool {
		enc := json.NewEncoder(w)
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return false
			}
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		return true
	}
	for ok := send(first); ok; {
		var next []any
		a.mu.Lock()
		changed := a.changed
		ended := a.served[req.GVR] != s
		f := a.faultFor(req)
		frozen := f != nil && f.fault.hang
		if !frozen {
			for _, e := range s.events {
				if e.version > since && (req.Namespace == "" || req.Namespace == e.object.GetNamespace()) {
					next = append(next, event(e.kind, see(s.kind, e.object)))
				}
			}
			since = a.version
		}
		a.mu.Unlock()
		if len(next) > 0 {
			ok = ctx.Err() == nil && send(next)
			continue
		}

		// A kind that went has no further events.
		if ended && !frozen {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func event(t apiwatch.EventType, object map[string]any) any {
	return map[string]any{"type": string(t), "object": object}
}

// bookmark returns the event that ends the initial events of a streamed list.
func bookmark(k Kind, see view, version int64) any {
	u := k.New()
	u.SetResourceVersion(strconv.FormatInt(version, 10))
	u.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return event(apiwatch.Bookmark, see(k, u))
}

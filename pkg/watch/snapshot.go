package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// handlerPatience is how long a handler may take for an event. Its watch is Degraded then.
const handlerPatience = time.Minute

// A Snapshot is the state of an engine at a time. It is a copy: it doesn't change,
// and may be changed.
type Snapshot struct {
	// Summary for a person: how many watches are in which state, and a line for each
	// watch and controller in trouble.
	Summary []string `json:"summary"`

	Elected     bool                 `json:"elected"`     // Until the manager is, no controller reconciles.
	Controllers []ControllerSnapshot `json:"controllers"` // That were started and not stopped, by name.
	// Ending are controllers that were stopped, and whose reconciles or handlers still run.
	Ending []string       `json:"ending,omitempty"`
	Kinds  []KindSnapshot `json:"kinds"` // Of the cache, by name.
}

// A ControllerSnapshot is the state of a controller.
type ControllerSnapshot struct {
	Name    string          `json:"name"`
	Running bool            `json:"running"` // Else it waits for the election, or for the one before it to end.
	Watches []WatchSnapshot `json:"watches"` // By kind and type.
}

// A Status is the status of a kind, or of a watch.
type Status struct {
	State      State     `json:"state"`
	Since      time.Time `json:"since"`
	Error      string    `json:"error,omitempty"` // The last, unless it was overcome.
	Generation uint64    `json:"generation"`      // How many informers the kind had.
}

// A WatchSnapshot is the state of a watch.
type WatchSnapshot struct { //nolint:revive // There is a Snapshot.
	Type WatchType               `json:"type"`
	GVK  schema.GroupVersionKind `json:"gvk"`
	Status

	Delivered    uint64     `json:"delivered"`              // Events, also those that a predicate held back.
	Queued       int        `json:"queued"`                 // Events that wait for the handler.
	HandlerSince *time.Time `json:"handlerSince,omitempty"` // When the handler that runs was called.
}

// A KindSnapshot is the state of a kind.
type KindSnapshot struct {
	GVK            schema.GroupVersionKind `json:"gvk"`
	Representation string                  `json:"representation"`     // Typed, unstructured or metadata.
	Resource       string                  `json:"resource,omitempty"` // Empty if it wasn't found yet.
	Namespaced     bool                    `json:"namespaced"`
	Status

	Objects int `json:"objects"` // How many are known.
}

// Snapshot returns the state of the engine. Controllers and kinds are read one after the other.
func (e *ControllerEngine) Snapshot() Snapshot {
	s := Snapshot{Elected: isClosed(e.mgr.Elected()), Controllers: []ControllerSnapshot{}, Kinds: []KindSnapshot{}}
	cs, ending := e.controllers.all()
	s.Ending = ending
	for _, c := range cs {
		s.Controllers = append(s.Controllers, c.snapshot())
	}
	slices.SortFunc(s.Controllers, func(a, b ControllerSnapshot) int { return strings.Compare(a.Name, b.Name) })
	for _, k := range e.kinds.all() {
		s.Kinds = append(s.Kinds, k.snapshot())
	}
	slices.SortFunc(s.Kinds, func(a, b KindSnapshot) int {
		return strings.Compare(a.GVK.String()+a.Representation, b.GVK.String()+b.Representation)
	})
	s.Summary = s.summary()
	return s
}

func (s Snapshot) summary() []string {
	count := make(map[State]int)
	var wrong []string
	for _, c := range s.Controllers {
		for _, w := range c.Watches {
			count[w.State]++
			if w.State == StateDormant || w.State == StateDegraded {
				wrong = append(wrong, fmt.Sprintf("%s: %s watch for %s is %s since %s: %s",
					c.Name, w.Type, w.GVK, w.State, w.Since.UTC().Format(time.RFC3339), w.Error))
			}
		}
	}
	all := fmt.Sprintf("%d controllers, %d kinds, watches:", len(s.Controllers), len(s.Kinds))
	for _, state := range states() {
		if n := count[state]; n > 0 {
			all += fmt.Sprintf(" %d %s", n, state)
		}
	}
	out := []string{all}
	if !s.Elected {
		out = append(out, "the manager isn't elected: no controller reconciles")
	}
	for _, name := range s.Ending {
		out = append(out, name+": the controller was stopped, and a reconcile or handler of it still runs")
	}
	return append(out, wrong...)
}

// DebugHandler returns a handler that serves a Snapshot as JSON. It changes nothing,
// but tells names of kinds and controllers: serve it where only operators look, as
// one does with profiles.
func (e *ControllerEngine) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(e.Snapshot()) // An error means that the client went away.
	})
}

func (c *controller) snapshot() ControllerSnapshot {
	s := ControllerSnapshot{Name: c.name, Running: c.running.Load(), Watches: []WatchSnapshot{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, w := range c.watches {
		s.Watches = append(s.Watches, w.snapshot(c.queue != nil))
	}
	slices.SortFunc(s.Watches, func(a, b WatchSnapshot) int {
		return WatchID{a.Type, a.GVK}.compare(WatchID{b.Type, b.GVK})
	})
	return s
}

func (w *controllerWatch) snapshot(hasQueue bool) WatchSnapshot {
	queued, busySince := w.backlog()
	s := WatchSnapshot{
		Type:      w.id.Type,
		GVK:       w.id.GVK,
		Status:    w.kind.snapshot().Status,
		Delivered: w.delivered.Load(),
		Queued:    queued,
	}
	if !busySince.IsZero() {
		s.HandlerSince = &busySince
	}
	if w.requested.After(s.Since) {
		s.Since = w.requested
	}
	switch {
	case !hasQueue:
		s.State, s.Since = StatePending, w.requested
	case s.State != StateActive:
	case s.HandlerSince != nil && time.Since(busySince) >= handlerPatience:
		s.State, s.Since = StateDegraded, busySince
		s.Error = fmt.Sprintf("the handler doesn't return, and %d events wait for it", queued)
	case !w.HasSynced():
		s.State = StateSyncing
	}
	return s
}

func (k *kind) snapshot() KindSnapshot {
	st := k.status.Load()
	objects, _ := k.broadcaster.counts()
	s := KindSnapshot{
		GVK:            k.key.GroupVersionKind,
		Representation: string(k.key.as),
		Status:         Status{State: st.state, Since: st.since, Generation: st.generation},
		Objects:        objects,
	}
	if st.mapping != nil {
		s.Resource = st.mapping.Resource.Resource
		s.Namespaced = st.mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}
	if st.err != nil {
		s.Error = st.err.Error()
	}
	return s
}

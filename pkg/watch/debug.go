package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DebugHandler returns a handler that shows a Snapshot: as text, for a person, or
// as JSON, if that is accepted or asked for by ?format=json. What is wrong comes
// first. It changes nothing, but tells names of kinds and controllers: serve it
// where only operators look, as one does with profiles.
func (e *ControllerEngine) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		s := e.Snapshot()
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if wantsJSON(r) {
			w.Header().Set("Content-Type", "application/json")
			// An error is the client's, who went away.
			_ = json.NewEncoder(w).Encode(s)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, s.String())
	})
}

func wantsJSON(r *http.Request) bool {
	if f := r.URL.Query().Get("format"); f != "" {
		return f == "json"
	}
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

// String returns the snapshot as a text for a person.
func (s Snapshot) String() string {
	w := &strings.Builder{}

	count := make(map[State]int)
	var wrong []string
	for _, c := range s.Controllers {
		for _, watch := range c.Watches {
			count[watch.State]++
			if watch.State == StateDormant || watch.State == StateDegraded {
				wrong = append(wrong, fmt.Sprintf("%s: %s watch for %s is %s for %s: %s",
					c.Name, watch.Type, gvkText(watch.GVK), watch.State, s.age(watch.Since), watch.Error))
			}
		}
	}
	fmt.Fprintf(w, "%d controllers, %d kinds, watches:", len(s.Controllers), len(s.Kinds))
	for _, state := range States() {
		if n := count[state]; n > 0 {
			fmt.Fprintf(w, " %d %s", n, state)
		}
	}
	fmt.Fprintln(w)
	if !s.Elected {
		fmt.Fprintln(w, "The manager isn't elected: no controller reconciles.")
	}
	switch storeState(s.StateStore) {
	case storeUnreadable, storeNewer, storeFailing:
		fmt.Fprintf(w, "The state store is %s: the log says why.\n", s.StateStore)
	case storeUnknown, storeGood, storeMissing:
	}
	for _, name := range s.Ending {
		fmt.Fprintf(w, "Controller %s was stopped, and something of it still runs.\n", name)
	}
	for _, text := range wrong {
		fmt.Fprintln(w, text)
	}

	fmt.Fprintln(w, "\nWATCHES")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CONTROLLER\tTYPE\tKIND\tSTATE\tFOR\tGENERATION\tDELIVERED")
	for _, c := range s.Controllers {
		name := c.Name
		if !c.Running {
			name += " (waiting)"
		}
		if len(c.Watches) == 0 {
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\n", name)
		}
		for _, watch := range c.Watches {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\n", name, watch.Type, gvkText(watch.GVK), watch.State, s.age(watch.Since), watch.Generation, watch.Delivered)
		}
	}
	_ = t.Flush() // A builder doesn't fail.

	fmt.Fprintln(w, "\nKINDS")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tAS\tSTATE\tFOR\tOWNERS\tLAST READ\tOBJECTS\tNEXT TRY\tERROR")
	for _, k := range s.Kinds {
		read, next := "-", "-"
		if k.LastRead != nil {
			read = s.age(*k.LastRead) + " ago"
		}
		if k.NextTry != nil {
			next = "in " + k.NextTry.Sub(s.Taken).Round(time.Second).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", gvkText(k.GVK), k.Representation, k.State, s.age(k.Since), k.Owners, read, k.Objects, next, k.Error)
	}
	_ = t.Flush()

	return w.String()
}

func (s Snapshot) age(t time.Time) string {
	return s.Taken.Sub(t).Round(time.Second).String()
}

func gvkText(gvk schema.GroupVersionKind) string {
	return gvk.Kind + "." + gvk.GroupVersion().String()
}

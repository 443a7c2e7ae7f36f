package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Authors of a timeline's entries.
const (
	byUser    = "a user"
	byWorld   = ""
	byCloud   = "the cloud"
	byKubectl = "kubectl get"
)

// An entry of a timeline. One by kubectl is a line that it shows.
type entry struct {
	At   seconds `json:"at"`
	Who  string  `json:"who,omitempty"`
	What string  `json:"what,omitempty"`
	Row  *shown  `json:"shown,omitempty"`
}

// A seconds is a time since the beginning.
type seconds float64

const timeWidth = len("60.00s")

func (s seconds) String() string { return fmt.Sprintf("%*.2fs", timeWidth-1, float64(s)) }

// A shown object is what kubectl get shows of an object, and the message that tools show
// beside it.
type shown struct {
	Name         string `json:"name"`
	Ready        string `json:"ready,omitempty"`
	Synced       string `json:"synced,omitempty"`
	ExternalName string `json:"externalName,omitempty"`
	Message      string `json:"message,omitempty"`
}

const notFound = "NotFound"

// A timeline has the acts of a user, and the changes that the user sees of some
// objects. It is safe for concurrent use.
type timeline struct {
	mu      sync.Mutex
	began   time.Time
	skipped time.Duration
	entries []entry
	watched []*watched
}

// A watched object is one that the user looks at.
type watched struct {
	reader client.Reader
	kind   schema.GroupVersionKind
	key    client.ObjectKey
	last   shown
}

// watch an object from now on.
func (t *timeline) watch(r client.Reader, k schema.GroupVersionKind, key client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = append(t.watched, &watched{reader: r, kind: k, key: key})
}

// add an entry.
func (t *timeline) add(who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.append(entry{Who: who, What: what})
}

func (t *timeline) append(e entry) {
	if t.began.IsZero() {
		t.began = time.Now()
	}

	// A loop that calls the cloud is one entry.
	if n := len(t.entries); n > 0 && e.Row == nil && t.entries[n-1].What == e.What {
		return
	}
	e.At = seconds((time.Since(t.began) + t.skipped).Seconds())
	t.entries = append(t.entries, e)
}

// skip lets time pass that is not waited for.
func (t *timeline) skip(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.skipped += d
}

// look at the watched objects, and add the changes.
func (t *timeline) look(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watched {
		now, ok := w.look(ctx)
		if ok && now != w.last {
			w.last = now
			t.append(entry{Who: byKubectl, Row: &now})
		}
	}
}

func (w *watched) look(ctx context.Context) (shown, bool) {
	o := claim.New(claim.WithGroupVersionKind(w.kind)) // Of any kind: it has conditions.
	err := w.reader.Get(ctx, w.key, o.GetUnstructured())
	if kerrors.IsNotFound(err) {
		return shown{Name: w.key.Name, Message: notFound}, w.last.Name != ""
	}
	ready := o.GetCondition(xpv2.TypeReady)
	return shown{
		Name:         w.key.Name,
		Ready:        status(o, xpv2.TypeReady),
		Synced:       status(o, xpv2.TypeSynced),
		ExternalName: meta.GetExternalName(o),
		Message:      cmp.Or(ready.Message, o.GetCondition(xpv2.TypeSynced).Message),
	}, err == nil
}

// status of a condition as kubectl shows it: nothing if it isn't set.
func status(o resource.Conditioned, t xpv2.ConditionType) string {
	c := o.GetCondition(t)
	if c.Reason == "" {
		return ""
	}
	return string(c.Status)
}

func (t *timeline) read() []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.entries)
}

// timeline prints the timeline of a user.
func (p printer) timeline(title string, es []entry) {
	name, external := len("NAME"), 0

	for _, e := range es {
		if e.Row != nil {
			name = max(name, len(e.Row.Name))
			if e.Row.ExternalName != "" {
				external = max(len("EXTERNAL-NAME"), external, len(e.Row.ExternalName))
			}
		}
	}

	columns := func(at string, cells shown) string {
		out := []string{
			pad(at, timeWidth), pad(cells.Name, name), pad(cells.Ready, len("READY")), pad(cells.Synced, len("SYNCED")),
		}
		if external > 0 {
			out = append(out, cells.ExternalName)
		}
		return strings.Join(out, "  ")
	}

	p.line(p.style.paint(bold, title))
	head := shown{Name: "NAME", Ready: "READY", Synced: "SYNCED", ExternalName: "EXTERNAL-NAME"}
	p.line(p.style.paint(faint, columns(pad("TIME", timeWidth), head)))

	for _, e := range es {
		at := e.At.String()
		text, how := "> "+strings.TrimSpace(e.Who+" "+e.What), ""
		if e.Row != nil {
			p.line(columns(at, *e.Row))
			at, text, how = "", e.Row.Message, faint
		}

		if text == "" {
			continue
		}
		for _, l := range wrap(text, width-indent-timeWidth-gap) {
			p.line(pad(at, timeWidth) + strings.Repeat(" ", gap) + p.style.paint(how, l))
			at = ""
		}
	}

	fmt.Fprintln(p.w)
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/diagnosis"
	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
)

// render puts a node into words.
func (p *plugin) render(n node) text.Node {
	s := p.style()
	out := text.Node{
		Title: s.Strong(text.Clean(n.Object.Kind+"/"+n.Object.Name)) + n.where() + "  " + p.state(n.Diagnosis),
	}
	line := func(format string, args ...any) {
		out.Lines = append(out.Lines, text.Clean(fmt.Sprintf(format, args...)))
	}

	message := n.Message
	quotes := n.Reason == diagnosis.ReasonWaitingForDependents || n.Reason == diagnosis.ReasonBlockedByProtection
	if quotes && len(n.InTheWay) > 0 {
		// The objects that the rest is about are shown below.
		message, _, _ = strings.Cut(message, ". ")
		message = strings.TrimSuffix(message, ".") + "."
	}
	if message != "" && message != "." {
		line("%s", message)
	}
	if n.Error != "" {
		line("Synced: %s", n.Error)
	}
	if n.State != diagnosis.Ready && n.ExternalName != "" {
		line("external name: %s", n.ExternalName)
	}
	if op := n.Operation; op != nil {
		line("operation: %s, attempt %d, %s, deadline %s, token %q", op.Type, op.Attempt,
			text.Since(op.Started.Time, p.now()), stamp(op.Deadline.Time), op.Token)
	}
	if n.Progress != "" && n.Progress != n.Message {
		line("progress: %s", n.Progress)
	}
	for _, f := range n.Finalizers {
		by := ""
		if f.Manager != "" {
			by = ", written by " + f.Manager
		}
		line("finalizer: %s (of %s%s)", f.Name, f.Owner, by)
	}
	for _, x := range n.Notes {
		kind := "note"
		if x.Guess {
			kind = "guess"
		}
		line("%s: %s", kind, x.Text)
	}
	for _, a := range n.Advice {
		line("to do: %s", a.Text)
		for _, c := range a.Commands {
			line("  $ %s", c)
		}
	}
	if n.Others > 0 {
		line("%d more below it: not in the way.", n.Others)
	}
	if n.More > 0 {
		line("%d more in its way: not shown.", n.More)
	}
	for _, c := range n.InTheWay {
		out.Nodes = append(out.Nodes, p.render(c))
	}
	return out
}

func (n node) where() string {
	if n.Object.Namespace == "" {
		return ""
	}
	return text.Clean(" in " + n.Object.Namespace)
}

// state of an object, with the reason.
func (p *plugin) state(d diagnosis.Diagnosis) string {
	s, out := p.style(), string(d.State)
	switch d.State {
	case diagnosis.Stopped, diagnosis.Failing:
		out = s.Bad(out)
	case diagnosis.Ready:
		out = s.Good(out)
	default:
		out = s.Waiting(out)
	}
	if d.Since != nil {
		out += " " + text.Since(d.Since.Time, p.now())
	}
	if d.Reason != "" && d.Reason != string(d.State) {
		out += ": " + text.Clean(d.Reason)
	}
	if d.Guess {
		out += " (a guess)"
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

package testkit

import (
	"fmt"
	"slices"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	_ event.Recorder = &Said{}
	_ logging.Logger = &Said{}
)

// Said is an event recorder and a logger that keeps what it is given. It is safe for
// concurrent use.
type Said struct {
	mu     sync.Mutex
	events []event.Event
	lines  []string
}

// Event keeps an event.
func (s *Said) Event(_ runtime.Object, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// WithAnnotations returns the same recorder.
func (s *Said) WithAnnotations(...string) event.Recorder { return s }

// Info keeps a line.
func (s *Said) Info(msg string, kv ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintln(append([]any{msg}, kv...)...))
}

// Debug keeps a line.
func (s *Said) Debug(msg string, kv ...any) { s.Info(msg, kv...) }

// WithValues returns the same logger.
func (s *Said) WithValues(...any) logging.Logger { return s }

// Events returns the messages of the events that have one of the reasons, or of all.
func (s *Said) Events(reasons ...event.Reason) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string

	for _, e := range s.events {
		if len(reasons) == 0 || slices.Contains(reasons, e.Reason) {
			out = append(out, e.Message)
		}
	}
	return out
}

// Lines returns what was logged.
func (s *Said) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// All returns all events and lines.
func (s *Said) All() string { return fmt.Sprint(s.Events(), s.Lines()) }

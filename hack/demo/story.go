package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A story is something that goes wrong with upstream. It is told once with
// upstream and once with Graft, by the same code.
type story struct {
	// name to select the story by. What is before a slash selects all variants.
	name string

	// about says what happens, in plain words.
	about string

	// moral says in one line what is different with Graft.
	moral string

	// cloud is the external system of the story.
	cloud cloud.Options

	// tell lets the story happen and returns what was found, in the same order
	// for either side.
	tell func(ctx context.Context, s *scene) ([]finding, error)
}

// A finding is what was found in one place: a row of the table.
type finding struct {
	// where was looked.
	where string

	// seen is what was there, as it was measured.
	seen string

	// good reports whether this is as it should be.
	good bool

	// broken says that upstream is known to fail here. It is the same for both
	// sides.
	broken bool
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s", f.where, strings.ReplaceAll(f.seen, "\n", ", "))
}

func stories() []story {
	return []story{
		lostExternalName(),
		forgottenOperation(),
		slowDelete(),
		otherFinalizer(),
		brokenCredentials(),
		steadyState(),
		firstStatus(),
	}
}

// selected returns the stories of that name, all if it's empty.
func selected(name string) []story {
	var out []story

	for _, s := range stories() {
		family, _, _ := strings.Cut(s.name, "/")
		if name == "" || name == s.name || name == family {
			out = append(out, s)
		}
	}

	return out
}

func names() []string {
	var out []string
	for _, s := range stories() {
		out = append(out, s.name)
	}

	return out
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A story is something that goes wrong with upstream. It is played once with
// upstream and once with Graft, by the same code.
type story struct {
	// name to select the story by. What is before a slash selects all variants.
	name string

	// about says what happens, in plain words.
	about string

	// difference says in one line what is different with Graft.
	difference string

	// baseline is what upstream's column shows if that is not upstream's own code.
	baseline string

	// single means that the story is about single objects in every environment.
	single bool

	// cloud is the external system of the story.
	cloud cloud.Options

	// play lets the story happen and returns what was found, in the same order
	// for either side.
	play func(ctx context.Context, s *scene) ([]finding, error)
}

// A finding is what was found in one place: a row of the table.
type finding struct {
	// Where was looked.
	Where string `json:"where"`

	// Seen is what was there, as it was measured.
	Seen string `json:"seen"`

	// Good reports whether this is as it should be.
	Good bool `json:"good"`

	// Broken says that upstream is known to fail here. It is the same for both
	// sides.
	Broken bool `json:"upstreamIsKnownToFail"`

	// short is what the overview shows of it, if it is the headline.
	short string
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s", f.Where, strings.ReplaceAll(f.Seen, "\n", ", "))
}

func stories() []story {
	return []story{
		lostExternalName(),
		nameCollision(),
		forgottenOperation(),
		slowDelete(),
		otherFinalizer(),
		brokenCredentials(),
		silentClaim(),
		undeadInformer(),
		collectedAlive(),
		finalizerRace(),
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

package asyncstate

import (
	"cmp"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A contest is about one annotation that an operation writes, and that another writer may have changed since the
// operation began. In a row of precedence an empty field stands for any value.
type contest struct {
	// record on the API server is "own", or "other" if another process repeats the operation or a person has settled it.
	record string

	// annotation is "record", which includes the end of a create, "name" or "other".
	annotation string

	// there is the value on the API server: "missing", "untouched" as the operation found it or has set it, or "changed".
	there string

	// result is "create" if it cannot be observed again, and otherwise "other". After an abandoned create another one
	// may have ended.
	result string
}

type precedenceRow struct {
	contest
	wins bool
}

// precedence says whether the value of the operation is stored. The first row that matches counts.
func precedence() []precedenceRow {
	return []precedenceRow{
		{contest{"other", "name", "missing", ""}, true}, // The name must not be lost.
		{contest{"other", "", "", ""}, false},
		{contest{"own", "record", "", ""}, true},
		{contest{"own", "", "missing", ""}, true},
		{contest{"own", "", "untouched", ""}, true},
		{contest{"own", "", "changed", "create"}, true}, // An event has both names.
		{contest{"own", "", "changed", "other"}, false},
	}
}

// covers reports whether a row is about c.
func (r precedenceRow) covers(c contest) bool {
	return (contest{
		cmp.Or(r.record, c.record), cmp.Or(r.annotation, c.annotation), cmp.Or(r.there, c.there),
		cmp.Or(r.result, c.result),
	}) == c
}

// wins reports whether the value of the operation is stored.
func (c contest) wins() bool {
	for _, r := range precedence() {
		if r.covers(c) {
			return r.wins
		}
	}
	return false
}

// about completes the contest for a change, given the object on the API server. tried reports whether the operation
// itself may have stored a value.
func (c contest) about(change seam.Change, live client.Object, tried func(key, value string) bool) contest {
	theirs, exists := live.GetAnnotations()[change.Key]
	switch c.annotation, c.there = "other", "changed"; {
	case change.Key == meta.AnnotationKeyExternalName:
		c.annotation, exists = "name", theirs != ""
	case change.Key == AnnotationKeyOperation, seam.IdentifiesResource(change.Key):
		c.annotation = "record"
	}
	switch {
	case !exists:
		c.there = "missing"
	case change.Existed && theirs == change.Was, theirs == change.Value, tried(change.Key, theirs):
		c.there = "untouched"
	}
	return c
}

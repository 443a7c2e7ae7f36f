package asyncstate

import (
	"slices"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

func TestPrecedence(t *testing.T) {
	const name, pending = meta.AnnotationKeyExternalName, meta.AnnotationKeyExternalCreatePending
	cases := map[string]struct {
		reason string
		record string // whose it is
		result string // of what
		key    string
		there  string // Empty if the annotation is missing.
		row    int    // of precedence
		wins   bool
	}{
		"NameBesideOtherRecord": {
			reason: "The name must not be lost if another process has the operation.",
			record: "other", result: "create", key: name, row: 0, wins: true,
		},
		"OtherNameBesideOtherRecord": {
			reason: "The process that has the record should decide about the name.",
			record: "other", result: "create", key: name, there: "theirs", row: 1,
		},
		"OtherRecord": {
			reason: "The record of another process should stay.",
			record: "other", result: "create", key: AnnotationKeyOperation, there: "theirs", row: 1,
		},
		"OwnRecord": {
			reason: "The text of the own record may differ, because the answer to a write may have been lost.",
			record: "own", result: "other", key: AnnotationKeyOperation, there: "own", row: 2, wins: true,
		},
		"EndOfCreate": {
			reason: "The end of a create belongs to its record.",
			record: "own", result: "other", key: pending, there: "theirs", row: 2, wins: true,
		},
		"Missing": {
			reason: "A value should be stored if there is none.",
			record: "own", result: "other", key: name, row: 3, wins: true,
		},
		"Untouched": {
			reason: "The value that the operation found should be replaced.",
			record: "own", result: "other", key: name, there: "found", row: 4, wins: true,
		},
		"Tried": {
			reason: "A value of an earlier request whose answer was lost should be replaced.",
			record: "own", result: "other", key: name, there: "tried", row: 4, wins: true,
		},
		"NameDuringCreate": {
			reason: "The name that a create returned is known only once.",
			record: "own", result: "create", key: name, there: "theirs", row: 5, wins: true,
		},
		"NameDuringUpdate": {
			reason: "The name that an update set should yield to one of another writer.",
			record: "own", result: "other", key: name, there: "theirs", row: 6,
		},
	}
	rows := map[int]bool{}
	for test, tc := range cases {
		rows[tc.row] = true
		t.Run(test, func(t *testing.T) {
			live := &v1alpha1.Bucket{}
			if tc.there != "" {
				live.SetAnnotations(map[string]string{tc.key: tc.there})
			}
			change := seam.Change{Key: tc.key, Value: "ours", Was: "found", Existed: true}
			c := contest{record: tc.record, result: tc.result}.about(
				change, live, func(_, value string) bool { return value == "tried" },
			)
			row := slices.IndexFunc(precedence(), func(r precedenceRow) bool { return r.covers(c) })
			if diff := cmp.Diff([]any{tc.row, tc.wins}, []any{row, c.wins()}); diff != "" {
				t.Errorf("\n%s\nrow, wins() of %+v: -want, +got:\n%s", tc.reason, c, diff)
			}
		})
	}
	if len(rows) != len(precedence()) {
		t.Errorf("Each row of precedence should have a case: %d of %d have", len(rows), len(precedence()))
	}
}

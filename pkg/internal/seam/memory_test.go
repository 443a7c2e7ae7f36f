package seam

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A read is fresh only if it is known to be. Versions that can't be compared are
// known to be nothing.
func TestFresh(t *testing.T) {
	cases := map[string]struct {
		reason string
		entry  entry
		read   string
		want   bool
	}{
		"NothingWritten":       {reason: "Nothing was written.", read: "7", want: true},
		"Same":                 {reason: "It is what was written.", entry: entry{version: "7"}, read: "7", want: true},
		"Newer":                {reason: "It is newer.", entry: entry{version: "9"}, read: "10", want: true},
		"Older":                {reason: "It is older.", entry: entry{version: "10"}, read: "9"},
		"UnparseableRead":      {reason: "It can't be compared.", entry: entry{version: "9"}, read: "z10"},
		"UnparseableWrite":     {reason: "It can't be compared.", entry: entry{version: "x9"}, read: "10"},
		"UnparseableSame":      {reason: "What is the same needs no comparing.", entry: entry{version: "x9"}, read: "x9", want: true},
		"LeadingZero":          {reason: "That is no version.", entry: entry{version: "9"}, read: "010"},
		"Doubtful":             {reason: "It may lack what was written last.", entry: entry{version: "5", doubt: "7"}, read: "7"},
		"DoubtfulAlone":        {reason: "It may lack what was written first.", entry: entry{doubt: "7"}, read: "7"},
		"PastDoubt":            {reason: "It has it, if it was done.", entry: entry{version: "5", doubt: "7"}, read: "8", want: true},
		"DoubtfulUnparseable":  {reason: "It can't be compared.", entry: entry{doubt: "x7"}, read: "8"},
		"PastDoubtButTooOld":   {reason: "Both must hold.", entry: entry{version: "9", doubt: "7"}, read: "8"},
		"LongerVersionIsNewer": {reason: "Versions are numbers.", entry: entry{version: "999"}, read: "1000", want: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "fresh(...)", tc.want, tc.entry.fresh(tc.read))
		})
	}
}

func TestMemory(t *testing.T) {
	object := func(uid types.UID, version string, annotations map[string]string) *v1alpha1.Bucket {
		b := &v1alpha1.Bucket{}
		b.SetName("b")
		b.SetUID(uid)
		b.SetResourceVersion(version)
		b.SetAnnotations(annotations)

		return b
	}

	m := NewMemory()
	is := func(reason string, uid types.UID, version, doubt string, pending ...string) {
		t.Helper()

		e, keys := m.get(object(uid, "", nil)), []string(nil)
		for _, c := range e.pending {
			keys = append(keys, c.Key)
		}

		wants(t, reason, "version, doubt, pending", []any{version, doubt, pending}, []any{e.version, e.doubt, keys})
	}

	m.doubted(object("1", "4", nil))
	m.wrote(object("1", "5", nil))
	is("An answer ends doubt.", "1", "5", "")

	m.wrote(object("1", "3", nil))
	is("The newest write counts.", "1", "5", "")

	m.update(object("1", "", nil), func(e *entry) {
		e.pending = Changes{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}, {Key: "c", Value: ""}}
	})
	m.wrote(object("1", "6", map[string]string{"a": "1", "b": "other"}))
	is("The answer to a write of status stores no annotations.", "1", "6", "", "a", "b", "c")

	m.stored(object("1", "6", map[string]string{"a": "1", "b": "other"}))
	is("What was stored is not left over, what was not is.", "1", "6", "", "b", "c")
	is("Another object of the name has nothing to remember.", "2", "", "")

	m.wrote(object("2", "9", nil))
	is("The new object replaces the old.", "2", "9", "")
	wants(t, "", "objects", 1, m.Len())
}

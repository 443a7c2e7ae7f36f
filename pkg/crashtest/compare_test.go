package crashtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	at := func(life string, vs ...Verdict) result {
		r := result{point: point{life: Life{Name: life}}}
		for _, v := range vs {
			r.finding.add(v, "because")
		}
		return r
	}
	got := table(
		[]result{at("create", Leak, Leak, SecondResource), at("create", SecondResource), at("delete")},
		[]result{at("create"), at("delete"), at("delete", NeverDeleted)},
	)
	want := `life    led    second external resource  leak   never deleted
create  2 : 1  2 : 0                     1 : 0  0 : 0
delete  1 : 2  0 : 0                     0 : 0  0 : 1
all     3 : 3  2 : 0                     1 : 0  0 : 1
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("A life counts once for each of its verdicts.\ntable(...): -want, +got:\n%s", diff)
	}
}

package creation

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The record of a create that failed is stored together with upstream's annotation.
func TestChanges_FailedCreate(t *testing.T) {
	announced := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type want struct {
		Phase    Phase
		Named    bool
		Repeated bool
		Failed   time.Time
	}
	cases := map[string]struct {
		reason string
		store  func(c Changes, r *Record) Changes
		want   want
	}{
		"Failed": {
			reason: "The create failed when it ended, not when it was announced.",
			store: func(c Changes, r *Record) Changes {
				at := announced.Add(time.Minute)
				return c.FailedWith(r.WithFailure(Failure{At: at}), errors.New("quota"), at)
			},
			want: want{Phase: Failed, Failed: announced.Add(time.Minute)},
		},
		"Absent": {
			reason: "A create that made nothing failed when it was announced, so that the next may be announced in this second.",
			store: func(c Changes, r *Record) Changes {
				return c.AbsentWith(r.WithFailure(Failure{At: announced.Add(time.Minute)}))
			},
			want: want{Phase: Failed, Failed: announced},
		},
		"AbsentAndNamed": {
			reason: "A name of an external resource that does not exist says nothing about the next create.",
			store: func(c Changes, r *Record) Changes {
				r.Name, r.Repeated = "n", true
				return c.AbsentWith(r.WithFailure(Failure{At: announced.Add(time.Minute)}))
			},
			want: want{Phase: Failed, Failed: announced},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
			meta.SetExternalCreatePending(o, announced)
			tc.store(On(o), NewRecord(o, Create, "holder", "token", announced, time.Hour)).Apply(o)

			s, err := Of(o)
			if err != nil {
				t.Fatal(err)
			}
			got := want{
				Phase:    s.Phase,
				Named:    s.Named,
				Repeated: s.Record.Repeated,
				Failed:   meta.GetExternalCreateFailed(o),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if !s.Record.Announces(o) {
				t.Errorf("\n%s\nthe record is not that of the last create that was announced", tc.reason)
			}

			// A provider without Graft whose clock is behind announces the next create.
			meta.SetExternalCreatePending(o, announced.Add(-time.Hour))
			if s, err := Of(o); err != nil || s.Phase != Announced || s.Record != nil {
				t.Errorf("\nA create that is announced later has no record.\ngot %s, %v", s.Phase, err)
			}
		})
	}
}

func TestChanges_FailedWithExists(t *testing.T) {
	const name, exists = "n", "the bucket already exists"
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		unmanaged   bool
		err         string
		want        Phase
	}{
		"Exists": {
			reason:      "After an earlier success, \"already exists\" should confirm the earlier create.",
			annotations: ends(at2, at1, "", meta.AnnotationKeyExternalName, name),
			err:         exists,
			want:        Created,
		},
		"OtherError": {
			reason:      "Another error should say nothing about the earlier create.",
			annotations: ends(at2, at1, "", meta.AnnotationKeyExternalName, name),
			err:         "quota exceeded",
			want:        Failed,
		},
		"First": {
			reason:      "Without an earlier success, the external resource may have another owner.",
			annotations: ends(at2, "", "", meta.AnnotationKeyExternalName, name),
			err:         exists,
			want:        Failed,
		},
		"WithoutName": {
			reason:      "Without a name, another external resource may be meant.",
			annotations: ends(at2, at1, ""),
			err:         exists,
			want:        Failed,
		},
		"Refused": {
			reason: "An external resource that was refused may have another owner.",
			annotations: ends(
				at2, at1, "", meta.AnnotationKeyExternalName, name, AnnotationKeyRefused, name,
			),
			err:  exists,
			want: Failed,
		},
		"WithoutManaged": {
			reason:      "Upstream's own record of a success should not count: it is written when a create begins.",
			annotations: ends(at2, at1, "", meta.AnnotationKeyExternalName, name),
			unmanaged:   true,
			err:         exists,
			want:        Failed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectWith(tc.annotations)
			r := NewRecord(o, Create, "holder", "token", at(at2), time.Hour)
			if tc.unmanaged {
				r.EndsBefore = nil
			}
			On(o).FailedWith(r.WithFailure(Failure{At: at(at3)}), errors.New(tc.err), at(at3)).Apply(o)

			s, err := Of(o)
			if err != nil || s.Phase != tc.want || s.Record == nil {
				t.Errorf("\n%s\nwant %s with its record, got %s, %v", tc.reason, tc.want, s.Phase, err)
			}
			if got := !meta.GetExternalCreateSucceeded(o).Before(at(at3)); got != (tc.want == Created) {
				t.Errorf("\n%s\nstored as a success: got %t", tc.reason, got)
			}

			// A provider without Graft whose clock is behind announces the next create.
			meta.SetExternalCreatePending(o, at(at1).Add(-time.Hour))
			if s, _ := Of(o); s.Record != nil && !tc.unmanaged {
				t.Errorf("\nA create that is announced later has no record.\ngot %s", s.Phase)
			}
		})
	}
}

func TestAnnounce(t *testing.T) {
	const fourSeconds = "2026-01-02T03:04:04Z"
	cases := map[string]struct {
		reason   string
		known, o map[string]string
		repeated time.Duration
		want     string
	}{
		"Repeated": {
			reason:   "The time until which the earlier create may be in progress should be stored.",
			known:    ends(at1, "", ""),
			o:        ends(at2, "", ""),
			repeated: 20 * time.Second,
			want:     at2,
		},
		"RepeatedInTheSameSecond": {
			reason:   "A create that is announced twice in a second should be told from the earlier one.",
			known:    ends(at1, "", ""),
			o:        ends(at1, "", ""),
			repeated: 20 * time.Second,
			want:     at2,
		},
		"RepeatedByAnotherClock": {
			reason:   "A create that is announced again by a clock that is behind should seem to begin after the last one was announced.",
			known:    ends(at3, "", at2),
			o:        ends(at1, "", at2),
			repeated: 20 * time.Second,
			want:     fourSeconds,
		},
		"First": {reason: "The first announcement should stay.", o: ends(at1, "", ""), want: at1},
		"Later": {
			reason: "An announcement after the end of the last create should stay.",
			known:  ends(at1, at1, ""),
			o:      ends(at3, at1, ""),
			want:   at3,
		},
		"AfterSuccess": {
			reason: "A create that is announced by a clock that is behind should seem to begin after the last one succeeded.",
			known:  ends(at1, at3, ""),
			o:      ends(at2, at3, ""),
			want:   fourSeconds,
		},
		"AfterFailure": {
			reason: "A create that is announced by a clock that is behind should seem to begin after the last one failed.",
			known:  ends(at1, "", at3),
			o:      ends(at2, "", at3),
			want:   fourSeconds,
		},
		"BeforeLastAnnouncement": {
			reason: "A create that is announced by a clock that is behind should seem to begin after the last one, which failed at once.",
			known:  ends(at3, "", at3),
			o:      ends(at2, "", at3),
			want:   fourSeconds,
		},
		"SameSecond": {
			reason: "A create that is announced in the second of the last one should be told from it.",
			known:  ends(at3, "", at3),
			o:      ends(at3, "", at3),
			want:   fourSeconds,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectWith(tc.o)
			Announce(o, objectWith(tc.known), tc.repeated, at(at2))
			if diff := cmp.Diff(tc.want, o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]); diff != "" {
				t.Errorf("\n%s\nAnnounce(...): -want, +got:\n%s", tc.reason, diff)
			}
			wantOpen := ""
			if tc.repeated > 0 {
				wantOpen = stamp(at(at2).Add(tc.repeated))
			}
			if diff := cmp.Diff(wantOpen, o.GetAnnotations()[AnnotationKeyOpenUntil]); diff != "" {
				t.Errorf("\n%s\nAnnounce(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNewlyAnnounced(t *testing.T) {
	cases := map[string]struct {
		reason   string
		known, o map[string]string
		want     bool
	}{
		"Next": {
			reason: "An announcement with another time should be new.",
			known:  ends(at1, at1, ""),
			o:      ends(at2, at1, ""),
			want:   true,
		},
		"Same": {
			reason: "The announcement that the API server has should not be new.",
			known:  ends(at1, "", ""),
			o:      ends(at1, "", ""),
		},
		"SameSecond": {
			reason: "An announcement in the second in which the last create failed should be new.",
			known:  ends(at1, "", at1),
			o:      ends(at1, "", ""),
			want:   true,
		},
		"Ended": {
			reason: "The end of a create should not be an announcement.",
			known:  ends(at1, "", ""),
			o:      ends(at1, at1, ""),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := NewlyAnnounced(objectWith(tc.o), objectWith(tc.known)); got != tc.want {
				t.Errorf("\n%s\nNewlyAnnounced(...): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

func TestRestoreEnds(t *testing.T) {
	cases := map[string]struct {
		reason         string
		known, o, want map[string]string
	}{
		"Changed": {
			reason: "An end that upstream has changed in memory should be restored.",
			known:  ends(at1, at1, at2),
			o:      ends(at3, at3, at3),
			want:   ends(at3, at1, at2),
		},
		"Added": {
			reason: "An end that upstream has added in memory should be removed.",
			known:  ends(at1, "", ""),
			o:      ends(at1, at3, at3),
			want:   ends(at1, "", ""),
		},
		"Removed": {
			reason: "An end that is missing in memory should be restored.",
			known:  ends(at1, at1, at2),
			o:      ends(at1, "", ""),
			want:   ends(at1, at1, at2),
		},
		"Other": {
			reason: "Other annotations should stay.",
			known:  ends("", "", ""),
			o:      ends(at1, "", "", AnnotationKeyRecord, "r"),
			want:   ends(at1, "", "", AnnotationKeyRecord, "r"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectWith(tc.o)
			RestoreEnds(o, objectWith(tc.known))
			if diff := cmp.Diff(tc.want, o.GetAnnotations()); diff != "" {
				t.Errorf("\n%s\nRestoreEnds(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnannounce(t *testing.T) {
	cases := map[string]struct {
		reason  string
		o, want map[string]string
	}{
		"Recorded": {
			reason: "The record and its announcement should be removed.",
			o:      ends(at1, at2, at3, AnnotationKeyRecord, "r"),
			want:   ends("", at2, at3),
		},
		"NotRecorded": {
			reason: "An announcement without a record should stay.",
			o:      ends(at1, at2, at3),
			want:   ends(at1, at2, at3),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectWith(tc.o)
			Unannounce(o)
			if diff := cmp.Diff(tc.want, o.GetAnnotations()); diff != "" {
				t.Errorf("\n%s\nUnannounce(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

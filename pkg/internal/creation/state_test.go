package creation

import (
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	at1 = "2026-01-02T03:04:01Z"
	at2 = "2026-01-02T03:04:02Z"
	at3 = "2026-01-02T03:04:03Z"

	// Records that the first version of Graft wrote.
	recordRunning = `{"version":1,"uid":"uid","type":"create","phase":"running","attempt":1,"token":"t","holder":"h","pending":"2026-01-02T03:04:01Z","announced":{},"generation":1,"started":"2026-01-02T03:04:01Z","deadline":"2026-01-02T04:04:01Z"}`
	recordFailed  = `{"version":1,"uid":"uid","type":"create","phase":"failed","attempt":2,"token":"t","holder":"h","pending":"2026-01-02T03:04:01Z","announced":{"failed":"2026-01-02T03:04:02Z"},"generation":1,"started":"2026-01-02T03:04:01Z","deadline":"2026-01-02T04:04:01Z","ended":"2026-01-02T03:04:02Z","failures":2,"error":"error"}`
	recordUnknown = `{"version":1,"uid":"uid","type":"create","phase":"unknown","attempt":1,"token":"t","holder":"h","pending":"2026-01-02T03:04:01Z","announced":{},"generation":1,"started":"2026-01-02T03:04:01Z","began":"2026-01-02T03:04:02Z","deadline":"2026-01-02T04:04:01Z","open":"2026-01-02T04:04:01Z","abandoned":true,"ended":"2026-01-02T03:04:02Z","failures":1,"error":"no answer","name":"n","handle":"<op&1>","repeated":true}`
	recordUpdate  = `{"version":1,"uid":"uid","type":"update","phase":"running","attempt":1,"token":"t","holder":"h","pending":"2026-01-02T03:04:01Z","started":"2026-01-02T03:04:01Z","deadline":"2026-01-02T04:04:01Z"}`
)

func objectWith(annotations map[string]string) client.Object {
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "uid", Annotations: annotations},
	}
}

// ends returns upstream's three annotations, and those given besides.
func ends(pending, succeeded, failed string, more ...string) map[string]string {
	as := map[string]string{}
	for k, v := range map[string]string{
		meta.AnnotationKeyExternalCreatePending:   pending,
		meta.AnnotationKeyExternalCreateSucceeded: succeeded, meta.AnnotationKeyExternalCreateFailed: failed,
	} {
		if v != "" {
			as[k] = v
		}
	}
	for i := 0; i < len(more); i += 2 {
		as[more[i]] = more[i+1]
	}
	return as
}

func TestOf(t *testing.T) {
	type want struct {
		Phase                                   Phase
		Name, Announcement, Since, Ended        string
		OpenUntil                               string
		Named, Confirmed, Recorded, Settled     bool
		HasRecord, Incomplete, MayExist, Errors bool
	}
	record := func(text string) []string { return []string{AnnotationKeyRecord, text} }
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        want
	}{
		"AnnouncedTwice": {
			reason:      "Another create should be open until the time that was stored, by a clock that may be behind.",
			annotations: ends(at2, "", "", AnnotationKeyOpenUntil, at1),
			want: want{
				Phase:        Announced,
				Announcement: at2,
				Since:        at2,
				OpenUntil:    at1,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"AnnouncedLater": {
			reason:      "A create that was over when the last one was announced should not count.",
			annotations: ends(at2, "", "", AnnotationKeyOpenUntil, "2026-01-02T03:03:01Z"),
			want:        want{Phase: Announced, Announcement: at2, Since: at2, Incomplete: true, MayExist: true},
		},
		"OpenSettled": {
			reason:      "A person who removes the announcement should settle every create.",
			annotations: map[string]string{AnnotationKeyOpenUntil: at2},
			want:        want{},
		},
		"AnnouncedFirst": {
			reason:      "The first create should be announced, too.",
			annotations: ends(at1, "", ""),
			want:        want{Phase: Announced, Announcement: at1, Since: at1, Incomplete: true, MayExist: true},
		},
		"NoTimestamp": {
			reason:      "An announcement that upstream cannot read should not count.",
			annotations: ends("soon", "", ""),
			want:        want{},
		},
		"Refused": {
			reason:      "An external resource of that name should be refused.",
			annotations: ends(at1, "", at2, AnnotationKeyRefused, "n", meta.AnnotationKeyExternalName, "n"),
			want:        want{Phase: Refused, Name: "n", Announcement: at1, Since: at1, Ended: at2},
		},
		"RefusedByUID": {
			reason:      "An external resource without a name should be refused by the UID.",
			annotations: ends("", "", "", AnnotationKeyRefused, "uid"),
			want:        want{Phase: Refused},
		},
		"RefusedOther": {
			reason:      "The refusal of another name should not count.",
			annotations: ends(at1, "", at2, AnnotationKeyRefused, "m", meta.AnnotationKeyExternalName, "n"),
			want:        want{Phase: Failed, Name: "n", Announcement: at1, Since: at1, Ended: at2},
		},
		"RefusedCreated": {
			reason:      "A create that succeeded since should end the refusal.",
			annotations: ends(at1, at2, "", AnnotationKeyRefused, "n", meta.AnnotationKeyExternalName, "n"),
			want: want{
				Phase:        Created,
				Name:         "n",
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Confirmed:    true,
				MayExist:     true,
			},
		},
		"Running": {
			reason:      "A record should say that its create runs.",
			annotations: ends(at1, "", "", record(recordRunning)...),
			want: want{
				Phase:        Running,
				Announcement: at1,
				Since:        at1,
				Recorded:     true,
				HasRecord:    true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"RecordFailedLate": {
			reason:      "The record of a failed create should stay although upstream's annotations say that it ended.",
			annotations: ends("", "", at3, record(recordFailed)...),
			want:        want{Phase: Failed, Since: at1, Ended: at2, Recorded: true, HasRecord: true},
		},
		"RecordFailedAlone": {
			reason:      "A record should say that its create failed although upstream's annotations don't.",
			annotations: ends(at1, "", "", record(recordFailed)...),
			want: want{
				Phase:        Failed,
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Recorded:     true,
				HasRecord:    true,
			},
		},
		"RecordExists": {
			reason: "A create that failed because the external resource of an earlier create exists should have confirmed it.",
			annotations: ends(
				at1, at2, "",
				record(strings.Replace(recordFailed, `"error":"error"`, `"error":"error","exists":true`, 1))...,
			),
			want: want{
				Phase:        Created,
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Confirmed:    true,
				Recorded:     true,
				HasRecord:    true,
				MayExist:     true,
			},
		},
		"RecordNamed": {
			reason: "A create that stored a name and failed should have an unknown outcome.",
			annotations: ends(at1, "", at2, append(
				record(strings.Replace(recordFailed, `"error":"error"`, `"error":"error","name":"n"`, 1)),
				meta.AnnotationKeyExternalName, "n",
			)...),
			want: want{
				Phase:        Unknown,
				Name:         "n",
				Named:        true,
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Recorded:     true,
				HasRecord:    true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"RecordUnknown": {
			reason:      "The name of an unknown create should say nothing once another writer has replaced it.",
			annotations: ends(at1, "", "", record(recordUnknown)...),
			want: want{
				Phase:        Unknown,
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Recorded:     true,
				HasRecord:    true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"Superseded": {
			reason:      "A record should say nothing about a create that was announced later.",
			annotations: ends(at3, "", "", record(recordRunning)...),
			want: want{
				Phase:        Announced,
				Announcement: at3,
				Since:        at3,
				Recorded:     true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"SupersededEnded": {
			reason:      "A record should say nothing about a create that was announced after its own had ended.",
			annotations: ends(at3, "", at2, record(recordRunning)...),
			want: want{
				Phase:        Announced,
				Announcement: at3,
				Since:        at3,
				Recorded:     true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"ClockBehind": {
			reason: "A later create should count that a clock which is behind announced.",
			annotations: ends(
				at1, "", at3,
				record(strings.NewReplacer(
					`"pending":"2026-01-02T03:04:01Z"`, `"pending":"2026-01-02T03:04:02Z"`, `"announced":{}`,
					`"announced":{"failed":"2026-01-02T03:04:03Z"}`,
				).Replace(recordRunning))...,
			),
			want: want{
				Phase:        Announced,
				Announcement: at1,
				Since:        at1,
				Ended:        at3,
				Recorded:     true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"SettledSuccess": {
			reason:      "Another writer should settle a recorded create with upstream's annotations.",
			annotations: ends(at1, at2, "", record(recordRunning)...),
			want: want{
				Phase:        Created,
				Announcement: at1,
				Since:        at1,
				Ended:        at2,
				Confirmed:    true,
				Recorded:     true,
				Settled:      true,
				MayExist:     true,
			},
		},
		"SettledRemoved": {
			reason:      "A person should settle a recorded create by removing the announcement.",
			annotations: ends("", "", "", record(recordRunning)...),
			want:        want{Recorded: true, Settled: true},
		},
		"NotSettledUnannounced": {
			reason: "A record without an announcement of its own should not be settled by the lack of one.",
			annotations: ends(
				"", "", "", record(strings.Replace(recordRunning, `"pending":"2026-01-02T03:04:01Z",`, ``, 1))...,
			),
			want: want{Phase: Running, Since: at1, Recorded: true, HasRecord: true, Incomplete: true, MayExist: true},
		},
		"NotSettled": {
			reason: "Ends that were there when the record was made should not settle its create.",
			annotations: ends(
				at1, "", at2,
				record(strings.Replace(
					recordRunning, `"announced":{}`, `"announced":{"failed":"2026-01-02T03:04:02Z"}`, 1,
				))...,
			),
			want: want{
				Phase:        Running,
				Announcement: at1,
				Since:        at1,
				Recorded:     true,
				HasRecord:    true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"WithoutEnds": {
			reason:      "If upstream records a success at once, only a later create should settle the recorded one.",
			annotations: ends(at1, at1, "", record(strings.Replace(recordRunning, `"announced":{},`, ``, 1))...),
			want: want{
				Phase:        Running,
				Announcement: at1,
				Since:        at1,
				Confirmed:    true,
				Recorded:     true,
				HasRecord:    true,
				Incomplete:   true,
				MayExist:     true,
			},
		},
		"WithoutEndsNew": {
			reason:      "If upstream records a success at once, a later create should settle the recorded one.",
			annotations: ends(at2, at2, "", record(strings.Replace(recordRunning, `"announced":{},`, ``, 1))...),
			want: want{
				Phase:        Created,
				Announcement: at2,
				Since:        at2,
				Ended:        at2,
				Confirmed:    true,
				Recorded:     true,
				Settled:      true,
				MayExist:     true,
			},
		},
		"Update": {
			reason:      "The record of an update should mean that the external resource exists.",
			annotations: ends(at1, "", "", record(recordUpdate)...),
			want:        want{Phase: Created, Announcement: at1, Since: at1, Recorded: true, HasRecord: true},
		},
		"Delete": {
			reason:      "The record of a delete should mean that the external resource exists.",
			annotations: ends(at1, "", "", record(strings.Replace(recordUpdate, `"update"`, `"delete"`, 1))...),
			want:        want{Phase: Created, Announcement: at1, Since: at1, Recorded: true, HasRecord: true},
		},
		"SettledAfterAnotherAnnouncement": {
			reason:      "A create that another writer announced and ended should settle the recorded one.",
			annotations: ends(at2, at3, "", record(recordRunning)...),
			want: want{
				Phase: Created, Announcement: at2, Since: at2, Ended: at3, Confirmed: true, MayExist: true,
				Recorded: true, Settled: true,
			},
		},
		"Unusable": {
			reason:      "A create with an unusable record should have an unknown outcome.",
			annotations: ends("", "", "", AnnotationKeyRecord, "{}"),
			want:        want{Phase: Unknown, Recorded: true, Incomplete: true, MayExist: true, Errors: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Of(objectWith(tc.annotations))
			got := want{
				Phase:        s.Phase,
				Name:         s.Name,
				Announcement: s.Announcement,
				Since:        stamp(s.Since), Ended: stamp(s.Ended), OpenUntil: stamp(s.OpenUntil),
				Named: s.Named, Confirmed: s.Confirmed,
				Recorded:   s.Recorded,
				Settled:    s.Settled,
				HasRecord:  s.Record != nil,
				Incomplete: s.Incomplete(), MayExist: s.MayExist(), Errors: errors.Is(err, ErrRecord),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nOf(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOf_WithoutIdentity(t *testing.T) {
	s, err := Of(&metav1.PartialObjectMetadata{})
	if err != nil || s.Phase != None {
		t.Errorf("An object without a UID should not be refused: got %s, %v", s.Phase, err)
	}
}

func at(s string) time.Time {
	v, _ := time.Parse(time.RFC3339, s)
	return v
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// TestRecord_Compatible shows that versions of Graft read each other's records: a record is
// written byte for byte as it was read.
func TestRecord_Compatible(t *testing.T) {
	for name, text := range map[string]string{
		"Running": recordRunning,
		"Failed":  recordFailed,
		"Unknown": recordUnknown,
		"Update":  recordUpdate,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := RecordOf(objectWith(map[string]string{AnnotationKeyRecord: text}))
			if err != nil {
				t.Fatalf("A record of an earlier version should be usable: %v", err)
			}
			if diff := cmp.Diff(text, r.Text()); diff != "" {
				t.Errorf("Text(): -want, +got:\n%s", diff)
			}
		})
	}
}

func TestRecord_WithFailure(t *testing.T) {
	cases := map[string]struct {
		reason  string
		record  Record
		failure Failure
		want    RecordPhase
		dropped bool // the handle

		abandoned bool
	}{
		"Unknown": {
			reason:  "A create without an answer should have an unknown outcome.",
			record:  Record{Type: Create},
			failure: Failure{Unknown: true},
			want:    RecordUnknown,
		},
		"UnknownUpdate": {
			reason:  "An update should be observed again after any error.",
			record:  Record{Type: Update},
			failure: Failure{Unknown: true},
			want:    RecordFailed,
		},
		"Repeated": {
			reason: "A failed repetition should say nothing about the first attempt.",
			record: Record{Type: Create, Repeated: true},
			want:   RecordUnknown,
		},
		"NamedUpdate": {
			reason: "The name that an update stored should not matter.",
			record: Record{Type: Update, Name: "n"},
			want:   RecordFailed,
		},
		"Resumable": {
			reason:  "An operation that only the end of the process interrupted should be resumed.",
			record:  Record{Type: Delete, Handle: "h"},
			failure: Failure{Resumable: true},
			want:    RecordUnknown,
		},
		"WithoutHandle": {
			reason:  "An operation without a handle cannot be resumed.",
			record:  Record{Type: Delete},
			failure: Failure{Resumable: true},
			want:    RecordFailed,
		},
		"FailedResumed": {
			reason: "A failed operation with a handle should not be resumed.",
			record: Record{Type: Create, Handle: "h"},
			want:   RecordFailed,
		},
		"ExistedBefore": {
			reason: "An earlier version may have resumed a create that had failed because the external resource exists.",
			record: Record{Type: Create, Handle: "h", Exists: true},
			want:   RecordFailed,
		},
		"NamedFailed": {
			reason: "A failed create with a name should be observed by it, and absence should prove nothing while it may be in progress.",
			record: Record{
				Type: Create, Handle: "h", Name: "n", Started: metav1.Unix(1, 0), Deadline: metav1.Unix(7, 0),
			},
			want: RecordUnknown, dropped: true, abandoned: true,
		},
		"NamedFailedForLong": {
			reason: "The absence of a failed create should count when it has had its time.",
			record: Record{
				Type: Create, Handle: "h", Name: "n", Started: metav1.Unix(1, 0), Deadline: metav1.Unix(6, 0),
			},
			want: RecordUnknown, dropped: true,
		},
		"RepeatedFailed": {
			reason: "A failed repetition should be repeated, and not resumed.",
			record: Record{
				Type: Create, Handle: "h", Repeated: true, Started: metav1.Unix(1, 0), Deadline: metav1.Unix(7, 0),
			},
			want: RecordUnknown, dropped: true,
		},
		"RepeatedNamedFailed": {
			reason: "A failed repetition should be observed by its name for as long as a first attempt.",
			record: Record{
				Type: Create, Handle: "h", Repeated: true, Name: "n", Started: metav1.Unix(1, 0),
				RepeatedAt: &metav1.Time{Time: time.Unix(5, 0)}, Deadline: metav1.Unix(7, 0),
			},
			want: RecordUnknown, dropped: true, abandoned: true,
		},
		"Accepted": {
			reason: "Absence should prove nothing while an operation without an answer may be in progress.",
			record: Record{
				Type: Create, Handle: "h", Started: metav1.Unix(1, 0), Deadline: metav1.Unix(7, 0),
			},
			failure: Failure{Unknown: true},
			want:    RecordUnknown, abandoned: true,
		},
		"AcceptedRepetition": {
			reason: "The time of a repetition should count from its own start.",
			record: Record{
				Type: Create, Handle: "h", Repeated: true, Started: metav1.Unix(1, 0),
				RepeatedAt: &metav1.Time{Time: time.Unix(5, 0)}, Deadline: metav1.Unix(7, 0),
			},
			failure: Failure{Unknown: true},
			want:    RecordUnknown, abandoned: true,
		},
		"AcceptedLongAgo": {
			reason: "A handle should be kept for as long as the operation gives no result.",
			record: Record{
				Type: Create, Handle: "h", Started: metav1.Unix(1, 0), Deadline: metav1.Unix(6, 0),
			},
			failure: Failure{Unknown: true},
			want:    RecordUnknown,
		},
		"RepeatedResumable": {
			reason:  "The handle of a repetition should be kept if only the end of the process interrupted it.",
			record:  Record{Type: Create, Handle: "h", Repeated: true},
			failure: Failure{Resumable: true},
			want:    RecordUnknown,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.record.Failures, tc.record.Abandoned = 1, true
			tc.failure.At, tc.failure.Class = time.Unix(7, 0), "class"
			got := tc.record.WithFailure(tc.failure)
			want := tc.record
			want.Phase, want.Failures, want.Error, want.Ended, want.Abandoned = tc.want, 2, "class", &metav1.Time{
				Time: time.Unix(7, 0),
			}, tc.abandoned
			want.Exists = false
			if tc.dropped {
				want.Handle = ""
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Errorf("\n%s\nWithFailure(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRecordOf_Unusable(t *testing.T) {
	cases := map[string]struct {
		reason   string
		old, new string
		want     string
	}{
		"NotJSON": {
			reason: "The error should quote the JSON error.",
			old:    recordRunning,
			new:    "{",
			want:   "annotation graft.crossplane.io/async-operation: unexpected end of JSON input",
		},
		"Version": {
			reason: "The record of a later version should not be guessed at.",
			old:    `"version":1`,
			new:    `"version":2`,
			want:   `field "version": it is 2, and this version of the provider reads only 1`,
		},
		"NotAString": {
			reason: "The error should name the field.",
			old:    `"token":"t"`,
			new:    `"token":1`,
			want:   `field "token": cannot be a number`,
		},
		"NotATime": {
			reason: "The error should name a field that is not a time.",
			old:    `"started":"2026-01-02T03:04:01Z"`,
			new:    `"started":"soon"`,
			want:   `field "started": "soon" is not a valid timestamp`,
		},
		"UID": {
			reason: "The record of another object should not be used.",
			old:    `"uid":"uid"`,
			new:    `"uid":"other"`,
			want:   `field "uid": it belongs to another object, "other": this object is a copy, or was restored from a backup`,
		},
		"Type": {
			reason: "The type should be known.",
			old:    `"type":"create"`,
			new:    `"type":"move"`,
			want:   `field "type": "move" is not create, update or delete`,
		},
		"Phase": {
			reason: "The phase should be known.",
			old:    `"phase":"running"`,
			new:    `"phase":"p\u0007"`,
			want:   `field "phase": "p " is not running, failed or unknown`,
		},
		"Attempt": {
			reason: "Attempts should count from one.",
			old:    `"attempt":1`,
			new:    `"attempt":0`,
			want:   `field "attempt": 0 is less than 1`,
		},
		"Token": {
			reason: "A record should have a token.",
			old:    `"token":"t"`,
			new:    `"token":""`,
			want:   `field "token": it is empty`,
		},
		"Holder": {
			reason: "A record should have a holder.",
			old:    `"holder":"h"`,
			new:    `"holder":""`,
			want:   `field "holder": it is empty`,
		},
		"Started": {
			reason: "A record should have a start.",
			old:    `"started":"2026-01-02T03:04:01Z",`,
			want:   `field "started": it is missing`,
		},
		"Deadline": {
			reason: "A deadline should not be before the start.",
			old:    `"deadline":"2026-01-02T04:04:01Z"`,
			new:    `"deadline":"2026-01-02T03:04:00Z"`,
			want:   `field "deadline": it is before the start`,
		},
		"Ended": {
			reason: "An operation that failed should have an end.",
			old:    `"phase":"running"`,
			new:    `"phase":"failed"`,
			want:   `field "ended": it is missing`,
		},
		"Failures": {
			reason: "Failures should count from zero.",
			old:    `"generation":1`,
			new:    `"failures":-1`,
			want:   `field "failures": -1 is less than 0`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := RecordOf(objectWith(map[string]string{
				AnnotationKeyRecord: strings.Replace(recordRunning, tc.old, tc.new, 1),
			}))
			if !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nRecordOf(...): got %v, want an ErrRecord with %s", tc.reason, err, tc.want)
			}
		})
	}
}

func TestClean(t *testing.T) {
	cases := map[string]struct {
		reason  string
		s       string
		longest int
		want    string
	}{
		"Short":   {reason: "A text that fits should stay.", s: "abc", longest: 3, want: "abc"},
		"Long":    {reason: "A long text should be cut.", s: "abcdef", longest: 5, want: "ab…"},
		"Rune":    {reason: "A character should not be cut in the middle.", s: "aäädef", longest: 5, want: "a…"},
		"Control": {reason: "A message should have no control characters.", s: "a\nb", longest: 9, want: "a b"},
		"Invalid": {reason: "A message should be UTF-8.", s: "a\xff", longest: 9, want: "a?"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Clean(tc.s, tc.longest)); diff != "" {
				t.Errorf("\n%s\nClean(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

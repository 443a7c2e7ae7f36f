package asyncstate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A record that can't be used stops the object, and is left as it is.
func TestUnusableRecord(t *testing.T) {
	good := map[string]string{
		"version": `1`, "uid": `"uid-1"`, "type": `"create"`, "phase": `"unknown"`, "attempt": `1`, "token": `"t"`, "holder": `"h"`,
		"started": `"2000-01-01T00:00:00Z"`, "deadline": `"2000-01-01T01:00:00Z"`, "ended": `"2000-01-01T00:30:00Z"`,
	}
	with := func(k, v string) string {
		var fields []string

		for f, val := range good {
			if f == k {
				val = v
			}

			if val != "" {
				fields = append(fields, `"`+f+`":`+val)
			}
		}

		if _, ok := good[k]; !ok {
			fields = append(fields, `"`+k+`":`+v)
		}

		return "{" + strings.Join(fields, ",") + "}"
	}

	cases := map[string]struct {
		reason string
		record string
		want   string
	}{
		"Empty":            {reason: "It is no JSON.", record: "", want: asyncstate.AnnotationKeyOperation},
		"Text":             {reason: "As above.", record: "running\x00", want: asyncstate.AnnotationKeyOperation},
		"List":             {reason: "It is no object.", record: "[]", want: asyncstate.AnnotationKeyOperation},
		"Null":             {reason: "It has no version.", record: "null", want: `"version"`},
		"Newer":            {reason: "What a newer version means is unknown.", record: with("version", "2"), want: `"version": it is 2`},
		"NoVersion":        {reason: "As above.", record: with("version", ""), want: `"version"`},
		"VersionIsText":    {reason: "As above.", record: with("version", `"1"`), want: `"version"`},
		"AnotherUID":       {reason: "The object was restored, or copied.", record: with("uid", `"uid-9"`), want: `"uid": it is that of another object, "uid-9"`},
		"UIDIsNumber":      {reason: "It is no UID.", record: with("uid", `1`), want: `"uid"`},
		"UnknownType":      {reason: "What it does is unknown.", record: with("type", `"repair"`), want: `"type": "repair"`},
		"UnknownPhase":     {reason: "What it means is unknown.", record: with("phase", `"asleep"`), want: `"phase": "asleep"`},
		"NoAttempt":        {reason: "They count from 1.", record: with("attempt", `0`), want: `"attempt": 0`},
		"AttemptIsText":    {reason: "It is no number.", record: with("attempt", `"one"`), want: `"attempt"`},
		"NoToken":          {reason: "It is needed.", record: with("token", `""`), want: `"token"`},
		"NoHolder":         {reason: "It is needed.", record: with("holder", ``), want: `"holder"`},
		"NoStart":          {reason: "It is needed.", record: with("started", ``), want: `"started"`},
		"StartIsNoTime":    {reason: "It is no time.", record: with("started", `"yesterday"`), want: `"started"`},
		"StartIsNumber":    {reason: "It is no time.", record: with("started", `12`), want: `"started"`},
		"DeadlineIsNoTime": {reason: "It is no time.", record: with("deadline", `"soon"`), want: `"deadline"`},
		"NoDeadline":       {reason: "It is needed.", record: with("deadline", ``), want: `"deadline"`},
		"DeadlineFirst":    {reason: "That can't be.", record: with("deadline", `"1999-01-01T00:00:00Z"`), want: `"deadline"`},
		"NoEnd":            {reason: "It has ended at an unknown time.", record: with("ended", ``), want: `"ended"`},
		"EndIsNoTime":      {reason: "It is no time.", record: with("ended", `"never"`), want: `"ended"`},
		"NegativeFailures": {reason: "That can't be.", record: with("failures", `-1`), want: `"failures": -1`},
		"HandleIsNumber":   {reason: "It is no text.", record: with("handle", `1`), want: `"handle"`},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			w.edit("b", func(b *v1alpha1.Bucket) {
				b.SetFinalizers([]string{"finalizer.managedresource.crossplane.io"})
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: tc.record})
				meta.SetExternalCreatePending(b, time.Now())
			})

			p := w.start()

			check := func(when string) {
				t.Helper()

				b := w.get("b")
				contains(t, tc.reason+" "+when+": OperationRunning", condition(b, asyncstate.TypeOperation), "RecordUnusable", tc.want)
				contains(t, tc.reason+" "+when+": Synced", condition(b, xpv2.TypeSynced), "ReconcileError", tc.want)

				if got := record(b); got != tc.record {
					t.Errorf("\n%s\n%s: the record is %q, and was %q", tc.reason, when, got, tc.record)
				}

				if len(w.cloud.calls)+len(w.cloud.Counts()) > 0 {
					t.Errorf("\n%s\n%s: the cloud was asked for something: %v", tc.reason, when, w.cloud.Counts())
				}
			}

			pass(3 * time.Hour)
			check("at rest")

			if n := p.reconciles.Load(); n > 40 {
				t.Errorf("\n%s\n%d reconciles in 3 hours", tc.reason, n)
			}

			w.delete("b")
			pass(3 * time.Hour)
			check("while it is deleted")
			contains(t, "Deleting", condition(w.get("b"), reconciler.TypeDeleting), "True CreateResultUnknown", tc.want)

			w.edit("b", func(b *v1alpha1.Bucket) {
				meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation, meta.AnnotationKeyExternalCreatePending)
			})
			pass(time.Minute)

			if !w.gone() {
				t.Errorf("\n%s\nThe record was removed by hand: %s", tc.reason, describe(w.get("b")))
			}
		})
	}
}

// A record by a clock that is ahead holds up nothing, and numbers that are far out do
// no harm.
func TestStrangeRecord(t *testing.T) {
	cases := map[string]string{
		"EndedInTheFuture": `{"version":1,"uid":"uid-1","type":"create","phase":"failed","attempt":1,"token":"t","holder":"h","started":"2000-01-01T00:00:00Z","deadline":"2000-01-01T01:00:00Z","ended":"2030-01-01T00:30:00Z","failures":1,"error":"quota"}`,
		"VeryManyFailures": `{"version":1,"uid":"uid-1","type":"create","phase":"failed","attempt":9223372036854775806,"token":"t","holder":"h","started":"2000-01-01T00:00:00Z","deadline":"2000-01-01T01:00:00Z","ended":"2000-01-01T00:30:00Z","failures":9223372036854775806,"error":"quota"}`,
		"UnknownField":     `{"version":1,"uid":"uid-1","type":"create","phase":"failed","attempt":1,"token":"t","holder":"h","started":"2000-01-01T00:00:00Z","deadline":"2000-01-01T01:00:00Z","ended":"2000-01-01T00:30:00Z","failures":1,"error":"quota","more":{}}`,
	}

	for name, text := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.options = []asyncstate.TrackerOption{asyncstate.WithBackoff(time.Second, 1<<63-1)}

			if name != "VeryManyFailures" {
				w.options = nil
			}

			w.edit("b", func(b *v1alpha1.Bucket) {
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: text})
				b.SetFinalizers([]string{"finalizer.managedresource.crossplane.io"})
			})
			w.start()

			pass(5 * time.Hour)

			// Of the second, a change of the spec is the way out.
			w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
			pass(time.Hour)

			if b := w.get("b"); meta.GetExternalName(b) != "id-0001" || record(b) != "" {
				t.Error(describe(b))
			}
		})
	}
}

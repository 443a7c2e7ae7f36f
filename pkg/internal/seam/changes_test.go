package seam

import (
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

func TestCreateEnded(t *testing.T) {
	const key = meta.AnnotationKeyExternalCreateSucceeded

	now := time.Date(2026, 1, 2, 3, 4, 5, 700_000_000, time.UTC)

	cases := map[string]struct {
		reason      string
		annotations map[string]string
		want        Change
	}{
		"NeverAnnounced": {reason: "There is nothing that it could be before.", want: Change{Key: key, Value: "2026-01-02T03:04:05Z"}},
		"After": {
			reason:      "Later is later, and what was there is known.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:04Z", key: "2025-01-02T03:04:04Z"},
			want:        Change{Key: key, Value: "2026-01-02T03:04:05Z", Was: "2025-01-02T03:04:04Z", Existed: true},
		},
		"SameSecond": {
			reason:      "That is not before, to upstream.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:05Z"},
			want:        Change{Key: key, Value: "2026-01-02T03:04:05Z"},
		},
		"FractionOfTheSecond": {
			reason:      "What is rounded down may not get before what isn't.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:05.2Z"},
			want:        Change{Key: key, Value: "2026-01-02T03:04:05.2Z"},
		},
		"ByAClockThatIsAhead": {
			reason:      "Who announced it has a clock that is ahead of ours.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T05:04:05+01:00"},
			want:        Change{Key: key, Value: "2026-01-02T05:04:05+01:00"},
		},
		"AnnouncedAtNoTime": {
			reason:      "Upstream takes what it can't read for never.",
			annotations: map[string]string{meta.AnnotationKeyExternalCreatePending: "soon"},
			want:        Change{Key: key, Value: "2026-01-02T03:04:05Z"},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.Bucket{}
			b.SetAnnotations(tc.annotations)

			got := CreateEnded(b, key, now)
			wants(t, tc.reason, "", tc.want, got)

			Changes{got}.Apply(b)

			if meta.ExternalCreateIncomplete(b) {
				t.Errorf("\n%s\nUpstream takes the create for one that hasn't ended: %v", tc.reason, b.GetAnnotations())
			}
		})
	}
}

func TestCheckText(t *testing.T) {
	cases := map[string]struct {
		reason, text, want string
	}{
		"Good":     {reason: "Any letters will do.", text: "projects/é/databases/1"},
		"Longest":  {reason: "As many as there may be.", text: strings.Repeat("a", 32)},
		"TooLong":  {reason: "And not one more.", text: strings.Repeat("a", 33), want: "it has 33 bytes, and 32 is the most"},
		"Empty":    {reason: "Nothing is no text.", want: "it is empty"},
		"Bytes":    {reason: "The API server takes text.", text: "a\xff", want: "it is not UTF-8"},
		"Control":  {reason: "A control character can't be typed.", text: "a\tb", want: "it has control characters"},
		"Control1": {reason: "Nor can one of the second range of control characters.", text: "a\u0085b", want: "it has control characters"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckText(tc.text, 32); err != nil {
				got = err.Error()
			}

			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

package asyncstate

import (
	"context"
	"fmt"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A resolution determines the outcome of the last create of a managed resource.
type resolution struct {
	*asyncClient

	mg resource.Managed
	creation.Question
}

// run does what creation.Next says.
func (r *resolution) run(ctx context.Context) (continuation, error) {
	var (
		name     string
		findErr  error
		observed upstream.ExternalObservation
	)

	for {
		switch step := creation.Next(r.Question); step.Action {
		case creation.Proceed:
			return continuation{record: r.Record}, nil
		case creation.Resume:
			if findErr != nil {
				r.cannotLookUp(findErr)
			}
			if wait := r.tracker.config.backoff.until(r.Record); step.Reason != "" && wait > 0 {
				return failing(r.stop(ctx, r.mg, ReasonOutcomeUnknown, wait, r.unknown(step.Reason)))
			}
			return r.resumeOperation(ctx, r.mg, r.Record)
		case creation.LookUp:
			r.Now = time.Now()
			r.Lookup, name, findErr = r.lookUp(ctx)
		case creation.Observe:
			r.Now = time.Now()

			// Before a create is repeated, too: some clients plan in Observe the
			// request that they make in Create.
			var err error
			if observed, err = r.observeExternal(ctx, r.mg, basis.createChanged); err != nil {
				return returning(observed, err)
			}
			r.Observed = creation.ObservedAs(observed.ResourceExists)
		case creation.Adopt:
			return r.adopt(ctx, name)
		case creation.Confirm:
			return r.confirm(ctx, observed)
		case creation.Repeat:
			return r.repeat(ctx)
		case creation.BelieveAbsent:
			return r.believeAbsent(ctx)
		case creation.Wait:
			return failing(r.wait(ctx, step, findErr))
		case creation.Stop:
			return failing(r.stop(ctx, r.mg, ReasonOutcomeUnknown, personInterval, r.unknown(step.Reason)))
		}
	}
}

// lookUp the external resource with the Finder.
func (r *resolution) lookUp(ctx context.Context) (creation.Answer, string, error) {
	f, err := limit.Call(seam.From(ctx).Meter(), func() (Finding, error) {
		return r.find(ctx, copyOf(r.mg), attemptOfCreate(r.State))
	})
	return creation.AnswerOf(f.Known, f.ExternalName, err)
}

// cannotLookUp reports that the Finder failed.
func (r *resolution) cannotLookUp(err error) {
	err = errors.Wrap(err, "cannot look up the result of the interrupted create")
	r.tracker.config.events.warn(r.mg, reasonCannotFind, err)
}

// unknown returns an error that names the create whose outcome is unknown, the reason,
// and the steps that a person can take.
func (r *resolution) unknown(why creation.Reason) error {
	token, hint := "", ""
	if r.hint != nil {
		hint = r.hint(copyOf(r.mg), attemptOfCreate(r.State))
	}
	if r.Record != nil {
		token = " with token " + r.Record.Token
	}
	if hint != "" {
		hint = " (" + creation.Clean(hint, maxHint) + ")"
	}
	return withUnknownOutcome{errors.New(r.withLastError(fmt.Sprintf(
		messageUnknown, seam.Stamp(r.Since), token, reasonClause(why), hint, creation.SettleAfter(r.mg, r.Since),
	)))}
}

// withLastError returns a message about the create, with the error that it ended with, if any.
func (r *resolution) withLastError(message string) string {
	if r.Phase != creation.Unknown || r.Record == nil {
		return message
	}
	text, stored := r.tracker.objects.failure(r.mg, r.Record).text, r.mg.GetCondition(TypeOperation).Message
	if full := creation.WithLastError(message, text, stored, r.Since); full != message {
		return full
	}
	return creation.WithLastError(message, r.Record.Error, "", r.Since)
}

// wait stops the reconcile until the outcome may be known, or until absence is believed.
func (r *resolution) wait(ctx context.Context, step creation.Step, findErr error) error {
	switch step.Reason {
	case creation.MayBeInProgress:
		message := fmt.Sprintf(messageWaiting, seam.Stamp(r.Since), seam.Stamp(step.Until))
		return r.stop(ctx, r.mg, ReasonInterrupted, step.Delay, errors.New(r.withLastError(message)))
	case creation.OtherMayBeInProgress:
		return r.stop(
			ctx, r.mg, ReasonInterrupted, step.Delay,
			errors.Errorf(messageRepeated, seam.Stamp(r.Since), seam.Stamp(step.Until)),
		)
	case creation.LookUpFailed:
		r.cannotLookUp(findErr)
	}

	// After some minutes, ask a person.
	reason := ReasonInterrupted
	if step.Delay >= creation.LastDelayUnknown {
		reason = ReasonOutcomeUnknown
	}
	return r.stop(ctx, r.mg, reason, step.Delay, r.unknown(step.Reason))
}

// confirm a create whose external resource was observed.
func (r *resolution) confirm(ctx context.Context, o upstream.ExternalObservation) (continuation, error) {
	if err := r.tracker.persist(ctx, r.mg, creation.On(r.mg).Found(r.Question, time.Now())); err != nil {
		return failing(err)
	}
	r.tracker.config.metrics.observeResolution(Create, interruptedFound)
	return continuation{observed: &o}, nil
}

// adopt the external resource that the Finder found.
func (r *resolution) adopt(ctx context.Context, name string) (continuation, error) {
	had := r.Name
	if err := r.tracker.persist(
		ctx, r.mg, creation.On(r.mg).Found(r.Question, time.Now()).Named(name),
	); err != nil {
		return failing(err)
	}
	r.tracker.config.metrics.observeResolution(Create, interruptedFound)
	if had != "" && had != name && had != r.mg.GetName() {
		r.tracker.config.events.overwrote(r.mg, seam.Change{Key: meta.AnnotationKeyExternalName, Was: had, Value: name})
	}
	r.tracker.config.events.record.Event(
		r.mg, event.Normal(reasonFound, fmt.Sprintf("Found the external resource of the interrupted create: %q", name)),
	)

	// The client was connected without this name, so it may not find the external resource.
	return failing(seam.Conflict(r.mg, "the external name was stored after the provider was connected"))
}

// believeAbsent stores that the create created nothing.
func (r *resolution) believeAbsent(ctx context.Context) (continuation, error) {
	t, had, cs := r.tracker, r.Record, creation.On(r.mg)

	switch {
	case had == nil:
		cs = cs.Absent().WithoutRecord()
	case had.Phase == creation.RecordRunning:
		// The backoff begins now.
		cs = cs.AbsentWith(failedRecord(had, errInterrupted, "", r.BelievedFrom()))
	default:
		cs = cs.AbsentWith(had)
	}

	if err := t.persist(ctx, r.mg, cs); err != nil {
		return failing(err)
	}
	t.config.metrics.observeResolution(Create, interruptedAbsent)
	t.config.events.record.Event(
		r.mg, event.Normal(reasonAbsent, "The interrupted create made no external resource"),
	)
	t.objects.firstSeen.Forget(&t.objects.Store, r.mg)
	now, err := creation.RecordOf(r.mg)
	return r.continuing(r.mg, now), err
}

// repeat an attempt. The external system carries it out once.
func (r *resolution) repeat(ctx context.Context) (continuation, error) {
	records, had := r.tracker.records, r.Record
	if had == nil {
		// Another writer announced the create, and its token is not known.
		had = records.next(r.mg, Create, nil)
	}
	again := records.repeated(had, r.BelievedFrom().Add(-r.Limits.Grace))
	return r.beginAgain(ctx, r.mg, had, again, interruptedRepeated, nil)
}

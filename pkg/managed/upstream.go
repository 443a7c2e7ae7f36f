package managed

import (
	"reflect"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
)

// Upstream returns an option that applies options of upstream's own type, such as options
// from a library that does not use Graft. They are applied at the position of Upstream among
// the other options. A recorder or logger among them is used by upstream only: Graft's own
// events and messages go to WithRecorder and WithLogger of this package.
//
// NewReconciler panics if one of them sets a part that Graft wraps: the external connector,
// the finalizer, the initializers or the critical annotation updater. Graft can't read such a
// part from the option, so it can neither wrap the part nor ignore the option safely. Pass the
// part to the option of this package with the same name. Upstream panics if an option is nil.
func Upstream(o ...upstream.ReconcilerOption) ReconcilerOption {
	is.MustHaveNoNil(o, "managed.Upstream", 1)
	return func(r *Reconciler) {
		for _, uo := range o {
			r.config.upstream = append(r.config.upstream, mustNotReplace(uo))
		}
	}
}

// WithDeterministicExternalName is upstream's option. It continues after a create whose
// outcome is unknown. Together with asyncstate.With, it does so only if the create has no record;
// the options of the tracker decide about a create that has a record.
func WithDeterministicExternalName(b bool) ReconcilerOption {
	return fromUpstream(upstream.WithDeterministicExternalName(b))
}

// mustNotReplace returns an option that panics if o replaces a part of upstream's reconciler
// that Graft wraps. These parts have upstream's defaults until Graft's options are applied.
func mustNotReplace(o upstream.ReconcilerOption) upstream.ReconcilerOption {
	return func(r *upstream.Reconciler) {
		before := map[string]uintptr{}
		for field := range decorated() {
			before[field] = mustHave(r, field, reflect.Interface).Elem().Pointer()
		}

		o(r)

		for field, option := range decorated() {
			if is := mustHave(r, field, reflect.Interface).Elem(); is.Kind() != reflect.Pointer ||
				is.Pointer() != before[field] {
				panic(errors.Errorf(
					"managed.Upstream was given an option that sets %s: use %s of Graft's package managed, which wraps it",
					field, option,
				))
			}
		}
	}
}

// decorated returns the fields of upstream's reconciler that Graft wraps, with the option that
// sets each.
func decorated() map[string]string {
	return map[string]string{
		"external.ExternalConnectDisconnector": "WithExternalConnector, or one of its siblings,",
		"managed.Finalizer":                    "WithFinalizer",
		"managed.Initializer":                  "WithInitializers",
		"managed.CriticalAnnotationUpdater":    "WithCriticalAnnotationUpdater",
	}
}

// pollOf returns the function that returns the time between two polls of a managed resource, as upstream does.
func pollOf(up *upstream.Reconciler) func(mg client.Object) time.Duration {
	every := time.Duration(mustHave(up, "pollInterval", reflect.Int64).Int())
	least := time.Duration(mustHave(up, "minPollInterval", reflect.Int64).Int())
	hook := (*upstream.PollIntervalHook)(mustHave(up, "pollIntervalHook", reflect.Func).Addr().UnsafePointer())
	return func(o client.Object) time.Duration {
		d := every
		if annotated, ok := meta.GetPollInterval(o); ok {
			d = max(annotated, least)
		}
		if mg, ok := o.(resource.Managed); ok {
			d = (*hook)(mg, d)
		}
		return d
	}
}

// settingsOf returns the settings that layers depend on. It reads them from upstream's
// reconciler, because options of upstream's own type may have set them.
func (c *config) settingsOf(up *upstream.Reconciler) layer.Settings {
	features := mustHave(up, "features.enabled", reflect.Map)
	s := layer.Settings{
		Timeout:                   time.Duration(mustHave(up, "timeout", reflect.Int64).Int()),
		Grace:                     time.Duration(mustHave(up, "creationGracePeriod", reflect.Int64).Int()),
		Poll:                      pollOf(up),
		DeterministicExternalName: mustHave(up, "deterministicExternalName", reflect.Bool).Bool(),
		Policies:                  features.MapIndex(reflect.ValueOf(feature.EnableBetaManagementPolicies)).IsValid(),
		Disconnects:               c.connector != nil && c.connector.disconnects,
		Finalizer:                 finalizerName(c.finalizer),
		Critical:                  c.criticalAnnotation,
		Persist:                   c.persists,
		Reports:                   c.reports,
	}
	for _, o := range c.options {
		if o.Set != nil {
			o.Set(&s)
		}
	}
	return s
}

// mustWork panics if an option set a part of upstream's reconciler to nil that every
// reconcile calls.
func mustWork(r *upstream.Reconciler) {
	for field, option := range map[string]string{
		"log":                         "WithLogger",
		"record":                      "WithRecorder",
		"change":                      "WithChangeLogger",
		"metricRecorder":              "WithMetricRecorder",
		"managed.ReferenceResolver":   "WithReferenceResolver",
		"managed.ConnectionPublisher": "a connection publisher",
	} {
		v := mustHave(r, field, reflect.Interface)
		if !v.IsNil() {
			v = v.Elem()
		}

		switch v.Kind() { //nolint:exhaustive // Other kinds can't be nil.
		case reflect.Interface, reflect.Pointer, reflect.Func:
			if v.IsNil() {
				panic(errors.Errorf("managed.%s was given nil: leave the option out to get the default", option))
			}
		}
	}

	if mustHave(r, "pollIntervalHook", reflect.Func).IsNil() {
		panic(errors.New("managed.WithPollIntervalHook was given nil: leave the option out to get the default"))
	}
}

// finalizerName returns the name of the finalizer that f adds, or an empty string if f is the
// provider's own implementation.
func finalizerName(f resource.Finalizer) string {
	api, ok := f.(*resource.APIFinalizer)
	switch {
	case f == nil:
		return FinalizerName
	case !ok:
		return ""
	}
	return mustHave(api, "finalizer", reflect.String).String()
}

// mustHave returns a private field of upstream's. It panics if this version of upstream has no
// such field. Nothing else in Graft depends on private fields of upstream.
func mustHave(of any, field string, kind reflect.Kind) reflect.Value {
	v := reflect.ValueOf(of).Elem()

	for _, name := range strings.Split(field, ".") {
		if v = v.FieldByName(name); !v.IsValid() {
			break
		}
	}

	if v.Kind() != kind {
		panic(errors.Errorf(
			"managed does not support this version of crossplane-runtime (no field %s of %T): use the version that Graft requires",
			field, of,
		))
	}
	return v
}

package managed

import (
	"reflect"
	"strings"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"
)

// reserved returns the parts of upstream's reconciler that Graft has to wrap: the
// path of the field, and the option that sets it.
func reserved() [][2]string {
	return [][2]string{
		{"external.ExternalConnectDisconnector", "WithExternalConnector, or one of its siblings,"},
		{"managed.Finalizer", "WithFinalizer"},
		{"managed.Initializer", "WithInitializers"},
		{"managed.CriticalAnnotationUpdater", "WithCriticalAnnotationUpdater"},
	}
}

// Upstream returns an option that applies options of upstream's own type, for
// those who are handed them by a library that knows nothing of Graft. They are
// applied where Upstream stands among the other options. A recorder or logger
// among them is upstream's alone: Graft's own events and messages go to those of
// WithRecorder and WithLogger of this package.
//
// It panics if one of them sets what Graft must see to do its work: the external
// connector, the finalizer, the initializers or the critical annotation updater.
// Pass these to the options of this package.
func Upstream(o ...upstream.ReconcilerOption) ReconcilerOption {
	probe := &upstream.Reconciler{}

	for _, ro := range o {
		if ro == nil {
			panic(errors.New("managed.Upstream was given a nil option: leave it out"))
		}

		ro(probe)
	}

	for _, r := range reserved() {
		field, option := r[0], r[1]

		v := reflect.ValueOf(probe).Elem()
		for _, name := range strings.Split(field, ".") {
			v = v.FieldByName(name)
			if !v.IsValid() {
				panic(errors.Errorf("managed.Upstream can't look into this version of crossplane-runtime (no field %s): use the version that Graft requires", field))
			}
		}

		if !v.IsNil() {
			panic(errors.Errorf("managed.Upstream was given an option that sets %s: use %s of Graft's package managed, which wraps it", field, option))
		}
	}

	return func(r *Reconciler) { r.config.upstream = append(r.config.upstream, o...) }
}

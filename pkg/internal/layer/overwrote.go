package layer

import (
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const reasonOverwroteAnnotation event.Reason = "OverwroteAnnotation"

// Overwrote reports that the result of a create replaced another writer's value.
func Overwrote(log logging.Logger, record event.Recorder, o client.Object, key, theirs, ours string) {
	msg := "the result of creating the external resource replaced another value of the annotation " + key
	if key == meta.AnnotationKeyExternalName {
		msg += fmt.Sprintf(": %q, not %q, is its external name", ours, theirs)
	}
	log.Info("Overwrote an annotation", "annotation", key, "uid", o.GetUID())
	record.Event(o, event.Warning(reasonOverwroteAnnotation, errors.New(msg)))
}

package creation

import "github.com/crossplane/crossplane-runtime/v2/pkg/meta"

// MessageSettle has the steps by which a person resolves a create whose outcome is unknown.
const MessageSettle = "Look for it in the external system. If it exists, set the annotation " +
	meta.AnnotationKeyExternalName +
	" to its name. Then remove the annotation " + AnnotationKeyPending +
	", and set " + meta.AnnotationKeyReconcileRequestedAt +
	" to a new value: removing the annotation alone does not trigger a reconcile."

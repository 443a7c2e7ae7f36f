package contested

import (
	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// TypeConflictingWrites is the type of the condition that says whether this controller and
// another writer change a field of spec, labels or annotations back and forth. The message
// names the field and the other field manager. A managed resource without such a field does
// not have the condition.
const TypeConflictingWrites xpv2.ConditionType = "ConflictingWrites"

// Reasons of the ConflictingWrites condition.
const (
	// ReasonChangedBack means that another writer has changed the field back five times.
	ReasonChangedBack xpv2.ConditionReason = "ChangedBack"

	// ReasonWritesAgree means that neither has changed the field for 15 minutes.
	ReasonWritesAgree xpv2.ConditionReason = "WritesAgree"
)

// Event reasons.
const (
	reasonConflictingWrites event.Reason = "ConflictingWrites"
)

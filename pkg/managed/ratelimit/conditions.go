package ratelimit

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
)

// Reasons of the Synced condition, beside upstream's.
const (
	// ReasonThrottled means that the external system throttles the calls of the account. The
	// message says until when.
	ReasonThrottled xpv2.ConditionReason = "Throttled"

	// ReasonTerminal means that the last call failed with an error that a retry would not
	// resolve. The message says when the call is repeated.
	ReasonTerminal xpv2.ConditionReason = "Terminal"
)

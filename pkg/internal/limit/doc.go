// Package limit limits the calls of an external system, account by account.
//
// Accounts has one token bucket for each account of the external system. A reconcile asks
// its Account for a token before it starts, and is told how long to wait if there is none.
// A Meter charges the calls of one reconcile, and of the operations that it began, to the
// account, and closes the account when the external system throttles a call.
package limit

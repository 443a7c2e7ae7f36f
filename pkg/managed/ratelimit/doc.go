// Package ratelimit limits the calls of an external system by account.
//
// Use it if the external system limits calls. After a restart, or when it throttles, a provider without limits uses up
// the account's calls with polls, and deletions and changed specs wait behind them.
//
//	limits := ratelimit.New(10, 20)
//	metrics.Registry.MustRegister(limits)
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), ratelimit.With(limits))
//
// It costs no request: accounts are in memory. It writes Synced with the reason Throttled or Terminal, and the Deleting
// condition of a managed resource that waits. An external client states with Throttled and Terminal what its errors
// mean if they have no status.
//
// Limits count in one process. Two providers with one account each need a part of its limit.
package ratelimit

// Package crashtest proves a provider with go test. It runs scenarios of a managed
// resource many times in simulated time, with a fault at each request, and reports runs
// that end badly.
//
// A request is one to the API server, which is in memory, or a call to the external
// system through [Process.Transport], [Process.Step] or [Connector]. A fault is a crash, a
// graceful stop, a failover while the old process continues, a lost answer, an error, a
// time-out, an API server that is away, a stale cache, or an external system that lists
// late. A scenario is data: see [Scenario] and [Scenarios].
//
// [Run] makes each run without a fault first, to number its requests. Then it makes one run for
// each request and fault, and some with a second fault that the seed picks. Each finding is a
// subtest whose name replays that run alone:
//
//	go test -run 'TestCrashes/create/crash-after/7' -v
//
// Every run is in a bubble of testing/synctest: timers fire as soon as nothing else
// can happen, and one request at a time reaches the API server and the external system. The same
// seed makes the same run and prints the same timeline. A run ends when each managed resource has
// been as the user wants it for five minutes and three polls, and at the latest an hour after the
// last act or fault.
//
// # How it is made
//
// Four parts don't know each other. Package simulation has the clock, the processes, the API
// server and the network. Package fault is a table. A scenario is a list of acts of a user. Package
// oracle judges the history of a run and its final state.
//
// # Rules for providers
//
// The reconciler and everything below it must be created in Start, because a run ends
// with its process. A package-level variable survives a simulated crash, which hides
// faults. A goroutine has to end with its context, and must use no socket and no real
// clock.
//
// # Limits
//
// The API server validates only metadata. It has no admission, no authorization, no
// server-side apply and no namespaces that terminate. It garbage-collects the dependents that the
// provider created. The manager has no cache with informers: a process reads its managed
// resources from a cache that a fault makes stale, and its work queue gets the events that
// resource.DesiredStateChanged selects.
package crashtest

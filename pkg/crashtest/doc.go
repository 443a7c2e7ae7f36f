// Package crashtest proves a provider with go test. It leads the life of a managed
// resource many times in simulated time, with a fault before and after each step, and
// reports lives that end badly.
//
// A step is a request to the API server, which is in memory, or a call to the external
// system through [Process.Transport], [Process.Step] or [Connector]. A fault is a crash, a
// graceful stop, a failover while the old process continues, a lost answer, an error, a
// time-out, an API server that is away, a stale cache, or an external system that lists
// late. A life is data: see [Life] and [Lives].
//
// [Run] leads each life undisturbed to number its steps. Then it leads one life for each
// step and fault, and some with a second fault that the seed picks. Each finding is a
// subtest whose name replays that life alone:
//
//	go test -run 'TestCrashes/create/crash-after/7' -v
//
// Every life runs in a bubble of testing/synctest: timers fire as soon as nothing else
// can happen, and one goroutine at a time passes the gate before the API server and the
// external system. The same seed leads the same life and prints the same timeline.
//
// # Rules for providers
//
// The reconciler and everything below it must be created in Start, because a life ends
// with its process. A package-level variable survives a simulated crash, which hides
// faults. A goroutine has to end with its context, and must use no socket and no real
// clock. A test that finds a goroutine, lock or timer that outlives its process reports it
// with its stack.
//
// # Limits
//
// The API server validates only metadata. It has no admission, no authorization, no
// server-side apply and no namespaces that terminate. Of an owner that no longer exists,
// it collects the dependents that the provider created. The manager has no cache with
// informers: a process reads its managed resources from a cache that a fault makes stale,
// and its work queue gets the events that resource.DesiredStateChanged selects.
package crashtest

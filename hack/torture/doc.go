// Command torture kills a provider at every step of a managed resource's life, and
// counts the external resources and names that are lost: with crossplane-runtime's
// reconciler, and with Graft around the same provider.
//
// A life is led once undisturbed, to count its steps: every request to the API
// server and every call of the cloud. Then it is led again for each step and each
// fault that suits it. A crash takes the whole process: nothing of its memory is
// left, and none of its goroutines ever reaches the API server or the cloud again.
// What the cloud accepted is carried out. A new process then takes over. Some of these
// lives, which a seed picks, are led once more with a second fault at a later step.
//
// Every life is led in a bubble of testing/synctest, so that time is simulated for
// all code alike, and one goroutine at a time gets past the gate that is before
// the API server and the cloud. A seed decides which one. The same seed leads the
// same life.
//
// What the files hold, from the outside in: main.go the command, table.go what it
// prints, sweep.go all lives of a run, point.go how one of them is named, story.go
// the lives, fault.go what happens to them, verdict.go what their result must be,
// columns.go whose code is tested, client.go the provider's client, world.go the
// API server, the cloud and the user, process.go a provider, gate.go where its
// goroutines wait, schedule.go which one is next.
package main

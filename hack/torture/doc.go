// Command torture crashes a provider at every step of a managed resource's life, and
// counts the external resources and names that are lost: with crossplane-runtime's
// reconciler, and with Graft around the same provider.
//
// It is a user of pkg/crashtest, which has the API server, the processes, the schedule, the
// faults and the verdicts. This command adds the sample provider with six kinds of clients,
// synchronous and asynchronous, a cloud that can be late or throttle, and the table.
//
// The same seed leads the same lives.
package main

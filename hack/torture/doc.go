// Package torture crashes a provider at every request, and counts the external resources and names that are lost: with
// crossplane-runtime's reconciler, and with Graft around the same provider.
//
// It has only tests. They use pkg/crashtest, which has the API server, the processes, the faults and the
// verdicts, and add the sample provider with six kinds of clients, synchronous and asynchronous, a cloud that
// can be late or throttle, and a table. The test with the build tag torture makes all runs. The same seed
// makes the same runs, and a pattern of -run selects rows, sides and runs by their names.
package torture

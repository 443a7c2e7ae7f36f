// Command kubectl-graft is a plugin of kubectl for operators of Crossplane. It says why an
// object is not ready or not deleted, and repairs it:
//
//	go install github.com/crossplane-graft/graft/hack/kubectl-graft@latest
//	kubectl graft why bucket/photos
//
// It works on objects of providers with Graft, and on those of plain crossplane-runtime as
// far as they tell; what it concludes instead of reading it is marked as a guess. It reads
// and writes as the user of the kubeconfig: what that user may not read is not shown.
//
// Each write names the UID and the resource version of what was read, is shown before,
// and made after a question, or with --yes.
//
// # Exit status
//
// 0 when there is nothing to do, or it was done. 1 when there is something to look at: why,
// of an object that is not ready; stuck and reservations --conflicts, if they list
// anything; names --check, if a name is lost or changed. 2 when it failed, was refused, or
// could not read all that it would have to.
package main

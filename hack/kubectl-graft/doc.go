// Command kubectl-graft is a plugin of kubectl for operators of Crossplane. It says why an object is not ready or not
// deleted, and repairs it:
//
//	go install github.com/crossplane-graft/graft/hack/kubectl-graft@latest
//	kubectl graft why bucket/photos
//
// It works with providers that use Graft, and with other providers as far as their objects tell. A conclusion is marked
// as a guess. The plugin reads and writes as the user of the kubeconfig, and shows nothing that this user may not read.
//
// Each write names the UID and the resource version that were read. It is shown first, and made after a question, or
// with --yes. Only reconcile without a pause to end writes at once, and reads and writes again after a conflict: it
// requests a reconcile, and removes the record of an asynchronous delete that failed.
//
// # Exit status
//
// 0 when there is nothing to do, or it was done. 1 when there is something to look at: why, of an object that is not
// ready; stuck and reservations --conflicts, if they list anything; names --check, if a name is lost or changed. 2 when
// it failed, was refused, or could not read all that it would have to.
package main

// Package controlplane builds and runs a real Kubernetes control plane: etcd,
// kube-apiserver, and kube-controller-manager with nothing but the garbage
// collector and the namespace controller.
//
// The programs are built with the go command from the module kubernetes/ beside this
// file. It is a module of its own so that the control plane's requirements don't decide
// the library's versions. The kube-controller-manager is kubernetes/controllers, which has no other
// controllers: that saves a quarter of the build. It requires the versions of
// hack/go.mod, so that Go's build cache has half of the packages after make demo:
// the first build takes 11 minutes on two busy cores then, else up to 14. Built programs
// are kept in graft/controlplane of the user's cache folder.
// kube-apiserver can't be trimmed: Kubernetes' generic control plane, which serves
// no pods, has 3 packages fewer of 2,000, because its registry includes them all.
//
// KUBEBUILDER_ASSETS, the variable that controller-runtime's envtest knows, names a
// folder with etcd and kube-apiserver to use instead.
//
// No program of a control plane outlives the program that started it, even
// if that is killed: see guard.go. The package needs Linux or macOS.
package controlplane

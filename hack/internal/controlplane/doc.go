// Package controlplane builds and runs a real Kubernetes control plane: etcd,
// kube-apiserver, and kube-controller-manager with nothing but the garbage
// collector and the namespace controller.
//
// [Binaries] finds or builds the three programs and [Start] runs them:
//
//	plane, err := controlplane.Start(ctx, controlplane.Options{CRDs: crds})
//	if err != nil {
//		return err
//	}
//	defer plane.Stop()
//	c, err := client.New(plane.Config(), client.Options{})
//
// # Where the programs come from
//
// They are built with the go command from the modules kubernetes/ and etcd/
// beside this file. Those are modules of their own because what a control
// plane requires must not decide what a library requires. The first build takes
// about ten minutes on two idle cores, twenty on busy ones; a later one finds the
// result in a cache whose key is everything that decides what comes out.
//
// Two environment variables matter. KUBEBUILDER_ASSETS, the variable that
// controller-runtime's envtest knows, names a folder with programs to use
// instead. GRAFT_CONTROLPLANE_CACHE names the folder to keep built programs in;
// by default it is graft/controlplane in the user's cache folder.
//
// # What happens to the processes
//
// Nothing that this package starts outlives the program that started it, even
// if that is killed: see guard.go.
//
// The package needs a Unix-like system: it is used on Linux and macOS.
package controlplane

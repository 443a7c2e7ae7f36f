// Package usage keeps provider configs while managed resources need them.
//
// Use the trackers if managed resources are deleted together with their namespace: upstream's tracker can't create a
// usage there, and the managed resource stays for ever. Use WithProtection if provider configs can be deleted in one
// go with the managed resources that use them.
//
//	usage.NewProviderConfigUsageTracker(mgr.GetClient(), &v1.ProviderConfigUsage{})
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), usage.WithProtection(usageKind))
//
// WithProtection costs one write for each managed resource, and one when it is removed. It writes a finalizer to the
// ProviderConfigUsage, which a Releaser removes if the reconciler can't.
package usage

// Package sample is a provider as provider authors write them by hand: two kinds
// of managed resources and external clients for the simulated cloud of
// pkg/internal/fake/cloud.
//
// Database is cluster scoped and has a deletion policy, the legacy shape. Bucket
// is namespaced, the modern shape. Their Go types, CRDs and scheme are in v1alpha1.
//
// The connectors come in two styles. Sync does everything while it is called.
// Async has the shape of providers generated with upjet: Create and Delete return
// at once, the operation ends later in memory, and the next Observe returns its
// result. Both serve as managed.ExternalConnector and, typed, as
// managed.TypedExternalConnector.
//
// The package knows only the interfaces of crossplane-runtime. The very same code
// runs under crossplane-runtime's managed reconciler and under Graft's.
//
// A connector is a process: what it remembers is lost with it. To restart the
// provider make a new one.
//
// ProviderConfig, ClusterProviderConfig and ProviderConfigUsage are there for
// connectors of Buckets that are made WithProviderConfigs. Other connectors are
// given the cloud's token when they are made, and read no provider config.
package sample

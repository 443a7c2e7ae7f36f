// Package upjet gives Graft to providers that upjet generates: their external
// names are stored, and their operations outlive the process.
//
// A provider needs one line, in its configuration:
//
//	config.WithControllerTemplate(upjet.ControllerTemplate(templates.ControllerTemplate))
//
// and, for resources whose names the external system assigns, a [Finder]: without
// one, a create that was interrupted stops for a person.
//
// # How it works
//
// upjet's asynchronous connectors run an operation in a goroutine and keep its
// result in memory. Here upjet's synchronous connectors do the Terraform work, and
// package asyncstate runs it in the background and records it on the API server.
// [NewConnector] adapts the two to each other:
//
//   - Terraform returns an ID together with an error. The name is stored, and the
//     create counts as one whose outcome is unknown, so that the next Observe
//     decides by that name.
//   - Terraform's errors are text. Those that tell of a time-out or of a lost
//     connection mean that the outcome is unknown, not that the create failed.
//   - An update that upjet refuses before any request, because it would replace the external
//     resource, is a terminal error: see ratelimit.Terminal.
//   - A client of the plugin SDK deletes with the diff of its Observe, which may create the
//     external resource again, or name another one. So only switches are left in it.
//   - A client of upjet's has the external name that the managed resource had when
//     it was connected, and shares a state with all others of that managed
//     resource. So it is connected as late as possible, again when the name is
//     known, and never while an operation runs.
//
// Resources that upjet reconciles with the Terraform CLI get package managed alone.
//
// In a checkout of Graft, go build fails in this folder, because no release of upjet is on crossplane-runtime v2.3 or
// later. Run make line RUNTIME=v2.2.1, and build in bin/line/v2.2.1/pkg/upjet.
package upjet

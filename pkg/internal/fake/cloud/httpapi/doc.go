// Package httpapi serves a simulated cloud over HTTP, so that a provider can run in
// another process than its cloud, and die without it.
//
// A request that has arrived is carried out even if the client has disconnected.
// Errors keep their identity: errors.Is works for a client as in the server.
package httpapi

// Package httpapi serves a simulated cloud over HTTP, so that a provider can run in
// another process than its cloud, and die without it.
//
// What has arrived is carried out, also if whoever asked is gone by then. Errors
// keep their identity: errors.Is tells them apart on either side.
package httpapi

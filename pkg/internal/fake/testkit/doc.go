// Package testkit is an embedded.Server as the tests of Graft's packages use it: the
// reads of its controllers can lag, and each of their requests can be counted and made
// to fail.
package testkit

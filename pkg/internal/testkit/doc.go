// Package testkit is what the tests of Graft's packages share: two managed
// resources, and an API server made of controller-runtime's fake client whose
// reads can lag and whose every request can be counted and made to fail.
package testkit

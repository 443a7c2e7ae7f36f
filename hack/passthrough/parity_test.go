package main

import (
	"testing"
)

const (
	oursDir  = "../../pkg/managed"
	oursPath = "github.com/crossplane-graft/graft/pkg/managed"
)

// TestParity holds Graft's pkg/managed against upstream's package, at the version that
// go.mod selects.
func TestParity(t *testing.T) {
	pkgs, err := load(oursDir, upstreamPath, oursPath)
	must(t, err)
	for _, d := range Compare(pkgs[upstreamPath].Types, pkgs[oursPath].Types) {
		t.Errorf("%s: run make generate, or declare it by hand", d)
	}
}

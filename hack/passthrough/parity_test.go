package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	oursDir  = "../../pkg/managed"
	oursPath = "github.com/crossplane-graft/graft/pkg/managed"
)

// TestParity holds Graft's pkg/managed against upstream's package, at the version that
// go.mod selects.
func TestParity(t *testing.T) {
	pkgs, err := load(oursDir, upstreamPath, oursPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Compare(pkgs[upstreamPath].Types, pkgs[oursPath].Types) {
		t.Errorf("%s: run make generate, or declare it by hand", d)
	}
}

// TestGeneratedFileIsCurrent fails if the generated file differs from what make
// generate writes.
func TestGeneratedFileIsCurrent(t *testing.T) {
	up, err := upstreamOf(oursDir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generateFor(oursDir, up)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(oursDir, generatedFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is out of date, run make generate: -want, +got:\n%s", generatedFile, cmp.Diff(string(want), string(got)))
	}
}

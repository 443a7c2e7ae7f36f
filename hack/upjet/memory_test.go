//go:build upjet && !integration

package upjet_test

import "testing"

// realCells runs nothing without a real control plane.
func realCells(*testing.T, func(t *testing.T, k kind, p provider, row, got string)) {}

// Package crdschema stands in for the package that upjet's conversions read reports of changed CRDs with. The test
// provider has no such report, and so the tests need nothing that the real module requires.
package crdschema

// The types of changes.
const (
	ChangeTypeFieldAdded   = "field_added"
	ChangeTypeFieldDeleted = "field_deleted"
	ChangeTypeTypeChanged  = "type_changed"
)

// ChangeReport has the changes of a CRD by version.
type ChangeReport struct{ Versions map[string]VersionChanges }

// VersionChanges are the changes between two versions.
type VersionChanges struct {
	OldVersion, NewVersion string
	Changes                []SchemaChange
}

// SchemaChange is the change of a field.
type SchemaChange struct {
	Path, ChangeType  string
	TypeChangeDetails *TypeChangeDetails
}

// TypeChangeDetails has both types of a field.
type TypeChangeDetails struct{ Deleted, Added Type }

// Type is the type of a field.
type Type string

// Is reports whether t is a type.
func (t Type) Is(name string) bool { return string(t) == name }

// IsOfType reports whether t is a type. It is upjet v2.4's spelling of Is.
func IsOfType(t Type, name string) bool { return t.Is(name) }

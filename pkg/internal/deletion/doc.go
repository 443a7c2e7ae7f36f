// Package deletion has the parts of a deletion's report that managed resources and other
// objects share: texts, the deadline, and force orphan.
package deletion

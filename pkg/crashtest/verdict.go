package crashtest

import "github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"

// A Verdict names a fault that a run shows.
type Verdict = oracle.Verdict

const (
	// SecondResource says that the provider created more external resources than the user asked for.
	SecondResource = oracle.SecondResource

	// SharedResource says that two managed resources are ready with the same external resource.
	SharedResource = oracle.SharedResource

	// Leak says that an external resource exists that no managed resource stands for.
	Leak = oracle.Leak

	// LostName says that the managed resource does not have the name of its external
	// resource.
	LostName = oracle.LostName

	// LostUpdate says that the external resource is not as the spec says.
	LostUpdate = oracle.LostUpdate

	// LostSecret says that the connection secret does not have the values that the external system gave last.
	LostSecret = oracle.LostSecret

	// NeverReady says that a managed resource doesn't become ready.
	NeverReady = oracle.NeverReady

	// NeverDeleted says that a managed resource that was deleted still exists, and so does
	// its external resource.
	NeverDeleted = oracle.NeverDeleted

	// FinalizerLeft says that a managed resource that was deleted still exists, although
	// its external resource does not.
	FinalizerLeft = oracle.FinalizerLeft

	// ForeignFinalizer says that the provider removed a finalizer that another controller had added.
	ForeignFinalizer = oracle.ForeignFinalizer

	// Stopped says that the provider waits until a person determines the outcome of a
	// create.
	Stopped = oracle.Stopped

	// ActsOnAnothers says that the provider changed or deleted an external resource of
	// another owner, or one that the user wants to keep.
	ActsOnAnothers = oracle.ActsOnAnothers

	// ActsWhilePaused says that the provider changed the external system for a managed
	// resource that is paused.
	ActsWhilePaused = oracle.ActsWhilePaused

	// HotLoop says that the provider reconciles, calls or writes at a rate that nothing asks for.
	HotLoop = oracle.HotLoop

	// Panicked says that a reconcile panicked, or a call.
	Panicked = oracle.Panicked

	// Escaped says that a goroutine, lock, timer or wait of the provider outlives its process.
	Escaped = oracle.Escaped

	// InvariantBroken says that [Provider.Invariant] returned an error.
	InvariantBroken = oracle.InvariantBroken
)

// A Violation is one thing that is wrong with a run: a verdict, and a text for the author.
type Violation = oracle.Violation

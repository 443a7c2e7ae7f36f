// Package oracle judges runs: each verdict is a pure function of a history and the final state.
package oracle

// A Verdict names a fault that a run shows.
type Verdict string

// Verdicts. Package crashtest documents them.
const (
	SecondResource   Verdict = "second external resource"
	SharedResource   Verdict = "shared external resource"
	Leak             Verdict = "leak"
	LostName         Verdict = "lost name"
	LostUpdate       Verdict = "lost update"
	LostSecret       Verdict = "lost connection secret"
	NeverReady       Verdict = "never ready"
	NeverDeleted     Verdict = "never deleted"
	FinalizerLeft    Verdict = "finalizer left"
	ForeignFinalizer Verdict = "removes another's finalizer"
	Stopped          Verdict = "stopped"
	ActsOnAnothers   Verdict = "acts on another's"
	ActsWhilePaused  Verdict = "acts while paused"
	HotLoop          Verdict = "hot loop"
	Panicked         Verdict = "panic"
	Escaped          Verdict = "escape"
	InvariantBroken  Verdict = "invariant broken"
)

// Verdicts returns all verdicts, the worst first.
func Verdicts() []Verdict {
	return []Verdict{
		SecondResource, SharedResource, Leak, LostName, LostUpdate, LostSecret, NeverReady, NeverDeleted, FinalizerLeft,
		ForeignFinalizer, Stopped, ActsOnAnothers, ActsWhilePaused, HotLoop, Panicked, Escaped, InvariantBroken,
	}
}

// A Violation is one thing that is wrong with a run.
type Violation struct {
	Verdict Verdict
	Text    string
}

// Has reports whether one of the violations has a verdict.
func Has(vs []Violation, verdict Verdict) bool {
	for _, v := range vs {
		if v.Verdict == verdict {
			return true
		}
	}
	return false
}

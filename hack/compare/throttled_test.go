package main

import (
	"testing"
	"time"
)

func TestThrottledRestart(t *testing.T) {
	const resources = 750
	limited := restart(t, "graft-limits", resources, false)
	t.Logf(
		"refused %.2f %%, used %.1f %%, drained after %v, p99 %v", limited.refused, limited.used,
		limited.drained, limited.p99,
	)
	if got := limited.refused; got > 1 {
		t.Errorf("At most 1 %% of the calls should be refused: got %.2f %%", got)
	}
	if got := limited.used; got < 95 {
		t.Errorf("95 %% of the rate should be used until the backlog is drained: got %.1f %%", got)
	}
	if got := limited.p99; got > 2*time.Second {
		t.Errorf("New and deleted managed resources should come first: the first answer took %v at p99", got)
	}

	denied := restart(t, "graft-limits", resources, true)
	if got, most := denied.p99, limited.p99*12/10; got > most {
		t.Errorf(
			"An account that is refused should not delay the others: the first answer took %v at p99, want at most %v",
			got, most,
		)
	}

	if got := restart(t, "upstream", resources, false).refused; got <= limited.refused {
		t.Errorf("The cloud should throttle without limits: got %.2f %%", got)
	}
}

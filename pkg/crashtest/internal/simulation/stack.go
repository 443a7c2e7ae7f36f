package simulation

import (
	"fmt"
	"runtime"
	"strings"
)

// Stack returns the frames of the goroutine that panics, without those of this package and of the runtime.
func Stack() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	panicking := false

	for {
		f, more := frames.Next()
		panicking = panicking || f.Function == "runtime.gopanic"
		if panicking && !strings.HasPrefix(f.Function, "runtime.") &&
			(!strings.Contains(f.Function, "/pkg/crashtest") || strings.HasSuffix(f.File, "_test.go")) {
			fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

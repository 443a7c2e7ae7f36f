package crashtest

import (
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// bubbleID returns how a stack names the bubble of the goroutine that calls it.
func bubbleID() string { return bubbleName.FindString(string(debug.Stack())) }

// stacksOf returns the stacks of some goroutines in a bubble, without those of this package, and first those that wait
// for a lock. Nothing is decided from them.
func stacksOf(bubble string) string {
	const most = 3
	b := make([]byte, 4<<20)
	b = b[:runtime.Stack(b, true)]
	var locks, others []string
	for _, s := range strings.Split(string(b), "\n\n") {
		header, _, _ := strings.Cut(s, "\n")
		switch {
		case !strings.Contains(header, bubble+"]"), strings.Contains(s, "testing.tRunner"),
			strings.Contains(s, "synctest.Run("), strings.Contains(s, "network).forever"):
		case strings.Contains(header, "[sync."):
			locks = append(locks, s)
		default:
			others = append(others, s)
		}
	}
	locks = append(locks, others...)
	return strings.Join(locks[:min(most, len(locks))], "\n\n")
}

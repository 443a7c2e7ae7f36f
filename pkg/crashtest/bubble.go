package crashtest

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
)

// How long, in real time, nothing may happen in a life whose goroutines are all blocked,
// and in one that still runs.
const (
	blockedFor = 5 * time.Second
	busyFor    = time.Minute
)

// errHung says that a life can't be ended.
var errHung = errors.New("crashtest: a goroutine is stuck")

// lead a life in a bubble of its own, and return its finding. A life that hangs is left
// behind, because a goroutine can't be ended from outside.
func lead(t *testing.T, s *subject, p point, seed uint64, calm *finding, tl *timeline) finding {
	var (
		beats  atomic.Int64
		bubble atomic.Pointer[string]
	)
	done := make(chan finding, 1)

	go func() {
		f := finding{err: errors.New("crashtest: the life ended without a result")}
		defer func() {
			if v := recover(); v != nil {
				f.err = nil
				f.add(Escaped, "%v\n%s", v, strings.Join(stacksOf(*bubble.Load()), "\n\n"))
			}
			done <- f
		}()
		synctest.Test(t, func(*testing.T) {
			id := bubbleID()
			bubble.Store(&id)
			f = leadInBubble(s, p, seed, calm, &beats, tl)
		})
	}()

	look := time.NewTicker(time.Second)
	defer look.Stop()
	last, since := int64(-1), time.Now()

	for {
		select {
		case f := <-done:
			return f
		case <-look.C:
		}
		if n := beats.Load(); n != last {
			last, since = n, time.Now()
			continue
		}
		id := bubble.Load()
		if id == nil || time.Since(since) < blockedFor {
			continue
		}
		stacks := stacksOf(*id)
		if stuck := stuckIn(stacks); stuck != "" || time.Since(since) > busyFor {
			f := finding{err: errHung}
			if stuck == "" {
				stuck = strings.Join(stacks, "\n\n")
			}
			f.add(Escaped, "a goroutine waits or loops for ever, so that no simulated time passes:\n%s", stuck)
			return f
		}
	}
}

// leadInBubble leads a life, and judges it.
func leadInBubble(s *subject, p point, seed uint64, calm *finding, beats *atomic.Int64, tl *timeline) (f finding) {
	defer func() {
		if v := recover(); v != nil {
			f = finding{err: errors.Errorf(
				"crashtest: the fake of the external system or a function of Provider panicked: %v\n%s", v, stack(),
			)}
		}
	}()
	w, err := newWorld(s, plan{at: p.at}, seed, beats, tl)
	if err != nil {
		return finding{err: err}
	}
	defer w.end()
	w.calm = calm
	if err := w.lead(p.life); err != nil {
		return finding{err: err}
	}
	f = w.judge(p.life)
	if len(p.at) > 0 && len(f.struck) == 0 && len(f.violations) == 0 {
		f.err = errors.Errorf(
			"crashtest: life %q has fewer than %d steps, or none that suits the fault: it did not strike",
			p.name(),
			p.at[0].step,
		)
	}
	return f
}

var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// bubbleID returns how a stack names the bubble of the goroutine that calls it.
func bubbleID() string {
	b := make([]byte, 256)
	header, _, _ := strings.Cut(string(b[:runtime.Stack(b, false)]), "\n")
	return bubbleName.FindString(header)
}

// stacksOf returns the stacks of the goroutines in a bubble, without this package's.
func stacksOf(bubble string) []string {
	b := make([]byte, 1<<20)
	for n := runtime.Stack(b, true); n == len(b); n = runtime.Stack(b, true) {
		b = make([]byte, 2*len(b))
	}
	var out []string
	for _, s := range strings.Split(string(bytes.TrimRight(b, "\x00")), "\n\n") {
		header, _, _ := strings.Cut(s, "\n")
		if strings.Contains(header, bubble+"]") && !strings.Contains(s, "testing.tRunner") &&
			!strings.Contains(s, "synctest.Run(") {
			out = append(out, s)
		}
	}
	return out
}

// stuckIn returns the stacks of the goroutines that wait for a lock, if all goroutines are
// blocked.
func stuckIn(stacks []string) string {
	var out []string
	for _, s := range stacks {
		header, _, _ := strings.Cut(s, "\n")
		for _, busy := range []string{"[running", "[runnable", "[syscall", "[IO wait"} {
			if strings.Contains(header, busy) {
				return ""
			}
		}
		if strings.Contains(header, "[sync.") || strings.Contains(header, "[semacquire") ||
			!strings.Contains(header, "(durable)") {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n\n")
}

// stack returns the stack of a panic, without this package's part of it.
func stack() string {
	s := string(debug.Stack())
	if _, after, ok := strings.Cut(s, "panic("); ok {
		if i := strings.Index(after, "\n"); i >= 0 {
			s = after[i+1:]
		}
	}
	return fmt.Sprint(s)
}

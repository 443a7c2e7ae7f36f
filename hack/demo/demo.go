package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A report has the results of stories, and how many of them aren't as they should be.
type report struct {
	took    time.Duration
	failed  int
	stories []result
}

// A result of a story.
type result struct {
	story

	upstream, graft column

	// problems say what isn't as it should be. There are none in a good run.
	problems []string
}

// A column is a story as one side plays it.
type column struct {
	title    string
	findings []finding
	timeline []entry
}

// perform plays the stories at once.
func perform(ctx context.Context, t *testing.T, ss []story, sd sides) (report, error) {
	began := time.Now()
	out := report{stories: make([]result, len(ss))}
	var all sync.WaitGroup
	for i, s := range ss {
		all.Go(func() { out.stories[i] = tell(ctx, t, s, sd) })
	}
	all.Wait()
	for _, r := range out.stories {
		if len(r.problems) > 0 {
			out.failed++
		}
	}
	out.took = time.Since(began)
	return out, context.Cause(ctx)
}

// tell a story on both sides at once. They share nothing.
func tell(ctx context.Context, t *testing.T, s story, sd sides) result {
	out := result{
		story: s, upstream: column{title: cmp.Or(s.baseline, sd.upstream.title)}, graft: column{title: sd.graft.title},
	}
	var upErr, graftErr error
	up := func() { upErr = play(ctx, s, sd.upstream, &out.upstream) }
	graft := func() { graftErr = play(ctx, s, sd.graft, &out.graft) }
	if s.simulated {
		// The stories beside it use ctx, too. Its channel is made by the first waiter: one that is made in a
		// bubble can't be used outside.
		ctx = context.WithoutCancel(ctx)
		synctest.Test(t, func(*testing.T) { up() })
		synctest.Test(t, func(*testing.T) { graft() })
	} else {
		var both sync.WaitGroup
		both.Go(up)
		both.Go(graft)
		both.Wait()
	}
	if err := errors.Join(upErr, graftErr); err != nil {
		out.problems = []string{err.Error()}
	} else {
		out.problems = judge(out.upstream.findings, out.graft.findings)
	}
	return out
}

// play a story on one side.
func play(ctx context.Context, s story, sd side, c *column) error {
	timeout := 2 * time.Minute // A story takes a few seconds on a slow machine.
	if s.simulated {
		timeout += time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := newRecorder()
	st, err := try(func() stage { return newStage(r) })
	if err != nil {
		return fmt.Errorf("%s: cannot set the stage: %w", c.title, err)
	}
	sc := newScene(ctx, sd, st, r, s)
	findings, err := try(func() []finding { return s.play(sc) })
	c.timeline = r.read()
	if err = errors.Join(err, sc.end()); err != nil {
		return fmt.Errorf("%s: the story doesn't come to its end: %w", c.title, err)
	}
	c.findings = findings
	return nil
}

// judge returns what isn't as it should be. Upstream's failures should be there:
// a story about upstream must be true.
func judge(upstream, graft []finding) (out []string) {
	if len(upstream) != len(graft) {
		return []string{fmt.Sprintf(
			"the story found %d things with upstream and %d with Graft", len(upstream), len(graft))}
	}
	for i, u := range upstream {
		if g := graft[i]; !g.good {
			out = append(out, fmt.Sprintf("Graft fails at %s", g))
		}
		switch {
		case u.broken && u.good:
			out = append(out, fmt.Sprintf("Upstream fixed this: update the story at %s", u))
		case !u.broken && !u.good:
			out = append(out, fmt.Sprintf("Upstream fails where it didn't: update the story at %s", u))
		}
	}
	return out
}

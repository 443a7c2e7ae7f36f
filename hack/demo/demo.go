package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// tellingTimeout is how long one telling of a story may take. It takes a few
// seconds on a slow machine.
const tellingTimeout = 2 * time.Minute

// errFailed says that a story was not what it should be. What was wrong has been
// printed.
var errFailed = errors.New("the demo has failed")

// A demo tells stories.
type demo struct {
	env     environment
	sides   sides
	out     printer
	verbose bool
}

// run tells the stories. It returns errFailed if one of them isn't what it should
// be, on whichever side.
func (d *demo) run(ctx context.Context, ss []story) error {
	began, failed := time.Now(), 0

	d.out.text("", "The same provider twice: the columns differ in one import. On "+d.env.describe()+".")
	fmt.Fprintln(d.out.w)

	for _, s := range ss {
		complaints, err := d.story(ctx, s)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		if err != nil {
			complaints = append(complaints, err.Error())
		}

		d.verdict(s, complaints)

		if len(complaints) > 0 {
			failed++
		}
	}

	took := time.Since(began).Round(100 * time.Millisecond)

	if failed > 0 {
		d.out.marked(false, bold, fmt.Sprintf("Not as it should be: %d of %s. (%s)", failed, plurals(len(ss), "story", "stories"), took))
		return errFailed
	}

	d.out.marked(true, bold, fmt.Sprintf("%s: upstream fails, Graft holds. (%s)", plurals(len(ss), "story", "stories"), took))

	return nil
}

func (d *demo) verdict(s story, complaints []string) {
	if len(complaints) == 0 {
		d.out.marked(true, bold, s.moral)
	}

	for _, c := range complaints {
		d.out.marked(false, "", c)
	}

	fmt.Fprintln(d.out.w)
}

// story tells a story on both sides, prints what was found, and returns what is
// wrong with it.
func (d *demo) story(ctx context.Context, s story) ([]string, error) {
	d.out.line(d.out.style.paint(bold, s.name))
	d.out.text("", s.about)
	fmt.Fprintln(d.out.w)

	upstream, graft, err := d.tellBoth(ctx, s)
	if err != nil {
		return nil, err
	}

	if len(upstream) != len(graft) {
		return nil, fmt.Errorf("the story found %d things with upstream and %d with Graft", len(upstream), len(graft))
	}

	d.out.head(d.sides.upstream.title, d.sides.graft.title)

	for i := range upstream {
		d.out.row(upstream[i], graft[i])
	}

	fmt.Fprintln(d.out.w)

	return judge(upstream, graft), nil
}

// tellBoth tells a story on both sides at once. They share nothing but what the
// API server of the environment does for both.
func (d *demo) tellBoth(ctx context.Context, s story) (upstream, graft []finding, err error) {
	var (
		both             sync.WaitGroup
		upErr, graftErr  error
		upSteps, grSteps = newRecorder(), newRecorder()
	)

	both.Go(func() { upstream, upErr = d.tell(ctx, s, d.sides.upstream, upSteps) })
	both.Go(func() { graft, graftErr = d.tell(ctx, s, d.sides.graft, grSteps) })
	both.Wait()

	if d.verbose {
		d.out.entries("What happened with "+d.sides.upstream.title+", to the first managed resource:", upSteps.journal.read())
		d.out.entries("What happened with "+d.sides.graft.title+", to the first managed resource:", grSteps.journal.read())
	}

	return upstream, graft, errors.Join(upErr, graftErr)
}

// tell a story on one side.
func (d *demo) tell(ctx context.Context, s story, sd side, r *recorder) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, tellingTimeout)
	defer cancel()

	st, err := d.env.stage(strings.ReplaceAll(s.name, "/", "-")+"-"+sd.key, r)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot set the stage: %w", sd.title, err)
	}

	sc := newScene(sd, d.env, st, r, s.cloud)

	findings, err := s.tell(ctx, sc)
	err = errors.Join(err, sc.end())
	if err != nil {
		return nil, fmt.Errorf("%s: the story doesn't come to its end: %w", sd.title, err)
	}

	return findings, nil
}

// judge returns what isn't as it should be. Upstream's failures should be there:
// a story that is told of upstream must be true.
func judge(upstream, graft []finding) []string {
	var out []string

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

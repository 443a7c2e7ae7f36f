package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A demo plays stories.
type demo struct {
	env   environment
	sides sides
}

// A report has the results of stories, and how many of them aren't as they should be.
type report struct {
	Environment string   `json:"environment"`
	Seconds     float64  `json:"seconds"`
	Failed      int      `json:"failed"`
	Stories     []result `json:"stories"`
}

// A result of a story.
type result struct {
	Name       string `json:"name"`
	About      string `json:"about"`
	Difference string `json:"difference"`

	Upstream column `json:"upstream"`
	Graft    column `json:"graft"`

	// Problems say what isn't as it should be. There are none in a good run.
	Problems []string `json:"problems"`
}

// A column is a story as one side plays it.
type column struct {
	Title    string    `json:"title"`
	Findings []finding `json:"findings"`
	Timeline []entry   `json:"timeline"`
}

// perform plays the stories in an environment that is started for them, as many at a time as the environment allows.
func perform(ctx context.Context, start func() environment, ss []story, sd sides) (report, error) {
	began := time.Now()
	env, err := try(start)
	if err != nil {
		return report{}, err
	}
	d, out := &demo{env: env, sides: sd}, report{Environment: env.title, Stories: make([]result, len(ss))}
	var all errgroup.Group
	all.SetLimit(env.parallel)
	for i, s := range ss {
		all.Go(func() error {
			if ctx.Err() == nil {
				out.Stories[i] = d.story(ctx, s)
			}
			return context.Cause(ctx)
		})
	}
	err = errors.Join(all.Wait(), env.close())
	for _, r := range out.Stories {
		if len(r.Problems) > 0 {
			out.Failed++
		}
	}
	out.Seconds = time.Since(began).Seconds()
	return out, err
}

// story plays a story on both sides at once. They share nothing but the API server
// of the environment.
func (d *demo) story(ctx context.Context, s story) result {
	out := result{
		Name: s.name, About: s.about, Difference: s.difference, Problems: []string{},
		Upstream: column{Title: cmp.Or(s.baseline, d.sides.upstream.title)}, Graft: column{Title: d.sides.graft.title},
	}
	var upErr, graftErr error
	up := func() { upErr = d.play(ctx, s, d.sides.upstream, &out.Upstream) }
	graft := func() { graftErr = d.play(ctx, s, d.sides.graft, &out.Graft) }
	if s.simulated = s.simulated && d.env.simulate != nil; s.simulated {
		// The stories beside it use ctx, too. Its channel is made by the first waiter: one that is made in a
		// bubble can't be used outside.
		ctx = context.WithoutCancel(ctx)
		d.env.simulate(up)
		d.env.simulate(graft)
	} else {
		var both sync.WaitGroup
		both.Go(up)
		both.Go(graft)
		both.Wait()
	}
	if err := errors.Join(upErr, graftErr); err != nil {
		out.Problems = append(out.Problems, err.Error())
	} else {
		out.Problems = append(out.Problems, judge(out.Upstream.Findings, out.Graft.Findings)...)
	}
	return out
}

// play a story on one side.
func (d *demo) play(ctx context.Context, s story, sd side, c *column) error {
	timeout := 2 * time.Minute // A story takes a few seconds on a slow machine.
	if s.simulated {
		timeout += time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := newRecorder()
	st, err := try(func() stage { return d.env.stage(strings.ReplaceAll(s.name, "/", "-")+"-"+sd.key, r) })
	if err != nil {
		return fmt.Errorf("%s: cannot set the stage: %w", c.Title, err)
	}
	sc := newScene(ctx, sd, st, r, s, d.env.replicas)
	findings, err := try(func() []finding { return s.play(sc) })
	c.Timeline = r.read()
	if err = errors.Join(err, sc.end()); err != nil {
		return fmt.Errorf("%s: the story doesn't come to its end: %w", c.Title, err)
	}
	c.Findings = findings
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
		if g := graft[i]; !g.Good {
			out = append(out, fmt.Sprintf("Graft fails at %s", g))
		}
		switch {
		case u.Broken && u.Good:
			out = append(out, fmt.Sprintf("Upstream fixed this: update the story at %s", u))
		case !u.Broken && !u.Good:
			out = append(out, fmt.Sprintf("Upstream fails where it didn't: update the story at %s", u))
		}
	}
	return out
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// columnTimeout is how long a story may take on one side. It takes a few seconds
	// on a slow machine.
	columnTimeout = 2 * time.Minute

	// simulatedTime is how long a story in simulated time takes at most.
	simulatedTime = time.Hour
)

// A demo plays stories.
type demo struct {
	env   environment
	sides sides
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

	// shape means that upstream's column only has the shape of upstream's code.
	shape bool
}

// A column is a story as one side plays it.
type column struct {
	Title    string    `json:"title"`
	Findings []finding `json:"findings"`
	Timeline []entry   `json:"timeline"`
}

// run plays the stories, as many at a time as the environment allows.
func (d *demo) run(ctx context.Context, ss []story) ([]result, error) {
	out := make([]result, len(ss))
	var all errgroup.Group
	all.SetLimit(d.env.parallel)
	for i, s := range ss {
		all.Go(func() error {
			if ctx.Err() == nil {
				out[i] = d.story(ctx, s)
			}
			return nil
		})
	}
	return out, errors.Join(all.Wait(), context.Cause(ctx))
}

// story plays a story on both sides at once. They share nothing but the API server
// of the environment.
func (d *demo) story(ctx context.Context, s story) result {
	out := result{
		Name: s.name, About: s.about, Difference: s.difference, Problems: []string{}, shape: s.baseline != "",
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
	timeout := columnTimeout
	if s.simulated {
		timeout += simulatedTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := newRecorder()
	var sc *scene
	err := try(func() {
		sc = newScene(ctx, sd, d.env.stage(strings.ReplaceAll(s.name, "/", "-")+"-"+sd.key, r), r, s, d.env.replicas)
	})
	if err != nil {
		return fmt.Errorf("%s: cannot set the stage: %w", c.Title, err)
	}
	var findings []finding
	err = try(func() { findings = s.play(sc) })
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

// failed counts the results that aren't as they should be.
func failed(rs []result) (n int) {
	for _, r := range rs {
		if len(r.Problems) > 0 {
			n++
		}
	}
	return n
}

// asJSON prints results for programs.
func asJSON(w io.Writer, where string, rs []result, took time.Duration) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Environment string   `json:"environment"`
		Seconds     float64  `json:"seconds"`
		Failed      int      `json:"failed"`
		Stories     []result `json:"stories"`
	}{where, took.Seconds(), failed(rs), rs})
}

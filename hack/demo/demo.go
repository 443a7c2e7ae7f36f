package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// columnTimeout is how long a story may take on one side. It takes a few seconds
// on a slow machine.
const columnTimeout = 2 * time.Minute

// simulatedTime is how long a story in simulated time takes at most.
const simulatedTime = time.Hour

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
	slots := make(chan struct{}, d.env.parallel)
	var all sync.WaitGroup
	for i, s := range ss {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() == nil {
				out[i] = d.story(ctx, s)
			}
		})
	}
	all.Wait()
	return out, context.Cause(ctx)
}

// story plays a story on both sides at once. They share nothing but the API server
// of the environment.
func (d *demo) story(ctx context.Context, s story) result {
	out := result{
		Name: s.name, About: s.about, Difference: s.difference, Problems: []string{}, shape: s.baseline != "",
		Upstream: column{Title: d.sides.upstream.title}, Graft: column{Title: d.sides.graft.title},
	}
	if out.shape {
		out.Upstream.Title = s.baseline
	}
	s.simulated = s.simulated && d.env.simulate != nil
	if s.simulated {
		// The stories beside it use ctx, too. Its channel is made by the first waiter: one that is made in a
		// bubble can't be used outside.
		ctx = context.WithoutCancel(ctx)
	}

	var upErr, graftErr error
	up := func() { upErr = d.play(ctx, s, d.sides.upstream, &out.Upstream) }
	graft := func() { graftErr = d.play(ctx, s, d.sides.graft, &out.Graft) }
	if s.simulated {
		d.env.simulate(up)
		d.env.simulate(graft)
	} else {
		var both sync.WaitGroup
		both.Go(up)
		both.Go(graft)
		both.Wait()
	}

	switch err := errors.Join(upErr, graftErr); {
	case err != nil:
		out.Problems = append(out.Problems, err.Error())
	case len(out.Upstream.Findings) != len(out.Graft.Findings):
		out.Problems = append(out.Problems, fmt.Sprintf("the story found %d things with upstream and %d with Graft",
			len(out.Upstream.Findings), len(out.Graft.Findings)))
	default:
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
	if err := try(func() {
		st := d.env.stage(strings.ReplaceAll(s.name, "/", "-")+"-"+sd.key, r)
		sc = newScene(ctx, sd, st, r, s, d.env.replicas)
	}); err != nil {
		return fmt.Errorf("%s: cannot set the stage: %w", c.Title, err)
	}
	err := try(func() { c.Findings = s.play(sc) })
	c.Timeline = r.read()
	if err = errors.Join(err, sc.end()); err != nil {
		c.Findings = nil
		return fmt.Errorf("%s: the story doesn't come to its end: %w", c.Title, err)
	}
	return nil
}

// judge returns what isn't as it should be. Upstream's failures should be there:
// a story about upstream must be true.
func judge(upstream, graft []finding) []string {
	var out []string
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

// outcome says in a word or two how a story ended, and whether well.
func (c column) outcome() (short string, good bool) {
	short, good = "failed", len(c.Findings) > 0
	for _, f := range c.Findings {
		good = good && f.Good
		if f.short != "" {
			short = f.short
		}
	}
	return short, good
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

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

// errFailed says that a story was not as it should be. The problems have been
// printed.
var errFailed = errors.New("the demo has failed")

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
	slots := make(chan struct{}, d.env.parallel())
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

	if s.baseline != "" {
		out.Upstream.Title = s.baseline
	}

	var (
		both            sync.WaitGroup
		upErr, graftErr error
	)

	if memory, ok := d.env.(inMemory); ok && s.simulated {
		// The stories beside it use ctx, too. Its channel is made by the first waiter: one that is made in a
		// bubble can't be used outside.
		apart := context.WithoutCancel(ctx)
		upErr = memory.simulate(func() error { return d.play(apart, s, d.sides.upstream, &out.Upstream) })
		graftErr = memory.simulate(func() error { return d.play(apart, s, d.sides.graft, &out.Graft) })
	} else {
		both.Go(func() { upErr = d.play(ctx, s, d.sides.upstream, &out.Upstream) })
		both.Go(func() { graftErr = d.play(ctx, s, d.sides.graft, &out.Graft) })
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
func (d *demo) play(ctx context.Context, s story, sd side, t *column) error {
	timeout := columnTimeout
	if s.simulated {
		timeout += simulatedTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := newRecorder()
	_, memory := d.env.(inMemory)
	st, err := d.env.stage(strings.ReplaceAll(s.name, "/", "-")+"-"+sd.key, r)
	if err != nil {
		return fmt.Errorf("%s: cannot set the stage: %w", t.Title, err)
	}
	sc := newScene(sd, st, r, s, d.env.replicas(), memory && s.simulated)
	findings, err := s.findings(ctx, sc)
	t.Timeline = r.timeline.read()
	if err = errors.Join(err, sc.end()); err != nil {
		return fmt.Errorf("%s: the story doesn't come to its end: %w", t.Title, err)
	}
	t.Findings = findings
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

// overview prints a line for each story.
func (p printer) overview(upstream, where string, rs []result) {
	const nameWidth, cell = 35, (width - indent - 35 - 2*gap) / 2
	p.text("What goes wrong with " + upstream + ", and with Graft. On " + where + ".")
	fmt.Fprintln(p.w)
	p.line(p.style.paint(bold, pad("story", nameWidth)+strings.Repeat(" ", gap+markWidth+1)+pad("upstream", cell)+
		strings.Repeat(" ", gap)+"Graft"))
	p.line(p.style.paint(faint, p.style.rule(width-indent)))
	var shapes []string

	for _, r := range rs {
		name := r.Name
		if r.shape {
			name, shapes = name+" *", append(shapes, r.Name+": "+r.Upstream.Title)
		}
		u, g := wrap(outcome(r.Upstream), cell-markWidth-1)[0], wrap(outcome(r.Graft), cell-markWidth-1)[0]
		p.line(pad(name, nameWidth) + strings.Repeat(" ", gap) +
			p.style.mark(isGood(r.Upstream)) + " " + pad(u, cell-markWidth-1) + strings.Repeat(" ", gap) +
			p.style.mark(isGood(r.Graft)) + " " + g)

		for _, c := range r.Problems {
			p.marked(false, "", c)
		}
	}

	fmt.Fprintln(p.w)

	if len(shapes) > 0 {
		p.text("* Not upstream's own code, which is internal to Crossplane or to clusterctl, but code of its shape. " +
			strings.Join(shapes, ", ") + ".")
		fmt.Fprintln(p.w)
	}
}

// outcome says in a word or two how a story ended.
func outcome(t column) string {
	for _, f := range t.Findings {
		if f.short != "" {
			return f.short
		}
	}
	return "failed"
}

func isGood(t column) bool {
	for _, f := range t.Findings {
		if !f.Good {
			return false
		}
	}
	return len(t.Findings) > 0
}

// detail prints a story: the timeline of a user, and the findings.
func (p printer) detail(r result) {
	p.line(p.style.paint(bold, r.Name))
	p.text(r.About)
	fmt.Fprintln(p.w)
	for _, t := range []column{r.Upstream, r.Graft} {
		p.timeline("What kubectl get shows: "+t.Title, t.Timeline)
	}

	if len(r.Upstream.Findings) == len(r.Graft.Findings) && len(r.Graft.Findings) > 0 {
		p.head(r.Upstream.Title, r.Graft.Title)
		for i := range r.Upstream.Findings {
			p.row(r.Upstream.Findings[i], r.Graft.Findings[i])
		}
		fmt.Fprintln(p.w)
	}

	if len(r.Problems) == 0 {
		p.marked(true, bold, r.Difference)
	}

	for _, c := range r.Problems {
		p.marked(false, "", c)
	}
	fmt.Fprintln(p.w)
}

// verdict prints whether all stories are as they should be.
func (p printer) verdict(rs []result, took time.Duration) {
	rounded, all := took.Round(100*time.Millisecond), plurals(len(rs), "story", "stories")
	if n := failed(rs); n > 0 {
		p.marked(false, bold, fmt.Sprintf("Not as it should be: %d of %s. (%s)", n, all, rounded))
		return
	}
	p.marked(true, bold, fmt.Sprintf("%s: upstream fails, Graft holds. (%s)", all, rounded))
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

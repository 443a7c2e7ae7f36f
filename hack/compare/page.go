package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/template"
)

//go:embed page.md.tmpl
var pageText string

// page returns the page that shows the results, and the charts on it.
func page(t *testing.T, r *results) (text string, charts []chart) {
	parsed, err := template.New("page").Funcs(template.FuncMap{
		"cell": r.cell, "has": r.has, "label": label, "number": number, "pairs": r.pairs, "words": words,
		"chart": func(file, title, x, y, name string, columns []named, series []string) string {
			c := chart{file, title, x, y, name, columns, series}
			if !c.measured(r) {
				return ""
			}
			charts = append(charts, c)
			return fmt.Sprintf("![%s](%s.svg)\n", title, file)
		},
		"slice": func(s ...string) []string { return s },
		"sides": sides, "watchSides": watchSides,
	}).Parse(pageText)
	must(t, err)
	command := "make compare"
	if len(r.Arguments) > 0 {
		command += " ARGS='" + strings.Join(r.Arguments, " ") + "'"
	}
	var b strings.Builder
	sizes := r.sizes()
	must(t, parsed.Execute(&b, map[string]any{
		"Command": command, "Machine": r.Machine, "Poll": r.Poll, "Torture": number(float64(r.Torture)),
		"Sizes": columns(sizes, label), "Most": slices.Max(r.Sizes), "Latencies": columns(latencies(), label),
		"ModelSizes":     columns(append(sizes, fmt.Sprint(modelResources)), label),
		"TortureColumns": tortureColumns(), "TortureEnds": columns(tortureColumns()[1:6], words),
		"ReadTroubles": []named{
			{"Nothing", "is fine"}, {"NeverSyncs", "never syncs"}, {"IsLookedUpSlowly", "is looked up slowly"},
		},
		"StopTroubles": []named{
			{"Healthy", "healthy"},
			{"Refusing", "refuses"},
			{"Hanging", "hangs"},
			{"HangingWhileOneMoreIsStarted", "hangs for 500 ms while one more is started"},
		},
		"Throttled": map[string]any{
			"Resources": number(throttledResources), "Accounts": throttledAccounts, "Poll": throttledPoll,
			"Rate": throttledRate, "Urgent": throttledUrgent, "Limit": throttledRate - 0.5,
			"Reconcilers": throttledReconcilers(),
			"Delays": []named{
				{"drained", "until each was observed"},
				{"urgent-p99", "until the first call for\na new or deleted one, p99"},
			},
		},
	}))
	return b.String(), charts
}

// A named thing has a name in figures and a label in pages.
type named struct{ Name, Label string }

func columns(names []string, label func(string) string) []named {
	var out []named
	for _, n := range names {
		out = append(out, named{n, label(n)})
	}
	return out
}

// pairs writes a table with a pair of figures in each cell. A row is a label, an equals
// sign, and the name of its figures, of a column and a side. It leaves out rows whose figures are all zero, except
// the first.
func (r *results) pairs(head string, columns []named, rows ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", head)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.Label)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))

	for i, row := range rows {
		title, name, _ := strings.Cut(row, " = ")
		line, some := "| "+title+" |", i == 0
		for _, c := range columns {
			line += fmt.Sprintf(" %s : %s |", r.cell(name, c.Name, upstreamSide), r.cell(name, c.Name, graftSide))
			for _, side := range sides() {
				f := r.figure(fmt.Sprintf(name, c.Name, side))
				some = some || f != nil && f.high() > 0
			}
		}
		if some {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// words writes a name with spaces.
func words(name string) string { return strings.ReplaceAll(name, "-", " ") }

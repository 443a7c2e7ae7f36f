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

// page returns the page that shows the results.
func page(t *testing.T, r *results) string {
	parsed, err := template.New("page").Funcs(template.FuncMap{
		"cell": r.cell, "has": r.has, "images": r.images, "label": label, "number": number, "pairs": r.pairs,
		"slice": func(s ...string) []string { return s }, "words": words,
		"readTroubles": readTroubles, "stopTroubles": stopTroubles, "watchSides": watchSides,
	}).Parse(pageText)
	must(t, err)
	command := "make compare"
	if len(r.Arguments) > 0 {
		command += " ARGS='" + strings.Join(r.Arguments, " ") + "'"
	}
	var b strings.Builder
	must(t, parsed.Execute(&b, map[string]any{
		"Command": command, "Machine": r.Machine, "Poll": r.Poll, "Torture": float64(r.Torture),
		"Sizes": r.sizes(), "ModelSizes": append(r.sizes(), fmt.Sprint(modelResources)), "Latencies": latencies(),
		"TortureColumns": tortureColumns(),
		"Throttled": map[string]any{
			"Resources": float64(throttledResources), "Accounts": throttledAccounts, "Poll": throttledPoll,
			"Rate": throttledRate, "Urgent": throttledUrgent, "Limit": throttledRate - 0.5,
			"Reconcilers": throttledReconcilers(),
		},
	}))
	return b.String()
}

// pairs writes a table with a pair of figures in each cell. A row is a label, an equals
// sign, and the name of its figures, of a column and a side. It leaves out rows whose figures are all zero, except
// the first.
func (r *results) pairs(head string, columns []string, rows ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", head)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", label(c))
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))

	for i, row := range rows {
		title, name, _ := strings.Cut(row, " = ")
		line, some := "| "+title+" |", i == 0
		for _, c := range columns {
			line += fmt.Sprintf(" %s : %s |", r.cell(name, c, upstreamSide), r.cell(name, c, graftSide))
			for _, side := range sides() {
				f := r.figure(fmt.Sprintf(name, c, side))
				some = some || f != nil && f.high() > 0
			}
		}
		if some {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// images returns the charts that have figures.
func (r *results) images(files ...string) string {
	out := ""
	for _, c := range charts(r) {
		if slices.Contains(files, c.file) {
			out += fmt.Sprintf("![%s](%s.svg)\n", c.title, c.file)
		}
	}
	return out
}

// words writes a name with spaces.
func words(name string) string { return strings.ReplaceAll(name, "-", " ") }

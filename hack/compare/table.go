package main

import (
	"fmt"
	"slices"
	"strings"
)

// table returns the page that shows the results.
func table(r *results) string {
	var b strings.Builder

	fmt.Fprintf(&b, `# Upstream beside Graft

Written by %s on %s.

Each figure is upstream : Graft, the median of all rounds, and the least and the most of
them in brackets if they differ. All of them are in [figures.json](figures.json).
`, "`"+strings.TrimSpace("make compare "+arguments(r.Arguments))+"`", r.Machine)

	steadyTable(&b, r)
	modelTable(&b, r)
	restartTable(&b, r)
	deletionTable(&b, r)
	tortureTable(&b, r)
	watchTables(&b, r)
	return b.String()
}

func arguments(a []string) string {
	if len(a) == 0 {
		return ""
	}
	return "ARGS='" + strings.Join(a, " ") + "'"
}

func steadyTable(b *strings.Builder, r *results) {
	fmt.Fprintf(b, `
## Steady state

Nothing changes. Each managed resource is polled once while it is measured, every %s: the sample
provider logs in to its cloud and looks at one external resource. The provider, the cloud and
etcd with the API server are processes of their own on the same machine.

`, r.Poll)

	rows := []row{{"writes of status", "steady/%s/%s/status-writes"}, {"requests", "steady/%s/%s/requests"}}
	for _, verb := range verbs() {
		rows = append(rows, row{"requests: " + verb, "steady/%s/%s/requests/" + verb})
	}

	rows = append(
		rows,
		row{"reconciles", "steady/%s/%s/reconciles"},
		row{"seconds measured", "steady/%s/%s/seconds"},
		row{"provider CPU, seconds", "steady/%s/%s/provider-cpu"},
		row{"provider CPU a reconcile, ms", "steady/%s/%s/provider-cpu-per-reconcile"},
		row{"API server CPU, seconds", "steady/%s/%s/api-server-cpu"},
		row{"heap of the provider, MB", "steady/%s/%s/heap"},
	)

	pairTable(b, r, "managed resources", r.sizes(), rows)
	images(b, r, "steady-status-writes", "steady-provider-cpu", "steady-api-server-cpu", "steady-heap")
}

func modelTable(b *strings.Builder, r *results) {
	if !r.has("model/") {
		return
	}
	fmt.Fprintf(b, `
### The model

A straight line through the smallest and the largest number, for those in between, which were
measured too, and for many more: [scale.md](../scale.md).

`)

	pairTable(b, r, "managed resources", append(r.sizes(), fmt.Sprint(modelResources)), []row{
		{"provider CPU, seconds", "model/%s/%s/provider-cpu"},
		{"API server CPU, seconds", "model/%s/%s/api-server-cpu"},
		{"heap of the provider, MB", "model/%s/%s/heap"},
	})

	fmt.Fprintf(b, "\nA controller that has nothing to do takes %s : %s KB, with ten workers and without its informer.\n",
		r.cell("controller/upstream/memory"), r.cell("controller/graft/memory"))
}

func restartTable(b *strings.Builder, r *results) {
	if !r.has("restart/") {
		return
	}
	fmt.Fprint(b, `
## Restart

A provider with ten workers, and no limit on its requests, is started. It is at rest when it has
reconciled each managed resource once.

`)
	pairTable(b, r, "managed resources", r.sizes(), []row{
		{"seconds until rest", "restart/%s/%s/seconds"},
		{"requests until rest", "restart/%s/%s/requests"},
		{"of them writes of status", "restart/%s/%s/status-writes"},
		{"requests a second", "restart/%s/%s/requests-per-second"},
		{"external calls until rest", "restart/%s/%s/external-calls"},
		{"external calls a second", "restart/%s/%s/external-calls-per-second"},
	})
	images(b, r, "restart-requests", "restart-external-calls")
}

func deletionTable(b *strings.Builder, r *results) {
	if !r.has("deletion/") {
		return
	}
	fmt.Fprint(b, `
## Deletion

From the call that deletes a managed resource until a watch shows Ready=False/Deleting, in seconds.
The provider makes three external calls: it logs in, looks, and deletes.

`)

	var columns []string
	for _, l := range latencies() {
		columns = append(columns, l.String())
	}
	pairTable(b, r, "an external call takes", columns, []row{{"seconds until it is shown", "deletion/%s/%s/seconds"}})
	images(b, r, "deletion")
}

func tortureTable(b *strings.Builder, r *results) {
	if !r.has("torture/") {
		return
	}
	fmt.Fprintf(b, `
## Torture

A sample of %s of torture's points; `+"`make torture`"+` tries all. A provider is killed, or a
request fails, at one step of a managed resource's life, or at two. The columns are explained by
that command.

`, number(float64(r.Torture)))

	columns := tortureColumns()
	fmt.Fprintf(b, "| %s |\n|%s\n|", strings.ReplaceAll(strings.Join(columns, " | "), "-", " "), strings.Repeat("---|", len(columns)))
	for _, c := range columns {
		fmt.Fprintf(b, " %s : %s |", r.cell("torture/upstream/"+c), r.cell("torture/graft/"+c))
	}
	fmt.Fprintln(b)
	images(b, r, "torture")
}

func watchTables(b *strings.Builder, r *results) {
	if !r.has("bench/ReadWhileAnotherKind") {
		return
	}
	fmt.Fprint(b, `
## Reads beside a sick kind

How many times that of quiet the p99 of a cached read takes while another kind is in trouble, and
the part of the time in which a read waits for more than 5 ms. [watch.md](../watch.md#what-it-costs)
says what the baseline is.

| read | the other kind | controller-runtime | baseline | Graft |
|---|---|---|---|---|
`)

	for _, op := range []string{"Get", "List"} {
		for _, trouble := range readTroubles() {
			fmt.Fprintf(b, "| %s | %s |", op, trouble.label)

			for _, side := range watchSides() {
				name := fmt.Sprintf("bench/ReadWhileAnotherKind/%s/%s/%s/", op, trouble.name, side)
				fmt.Fprintf(b, " %s; %s %% |", r.cell(name+"x-quiet"), r.cell(name+"waiting-%"))
			}

			fmt.Fprintln(b)
		}
	}

	images(b, r, "watch-reads")

	fmt.Fprint(b, `
## Stop of watches

How long it takes to stop a controller with so many watches, in milliseconds: p50, and the longest.
The baseline does not wait for what runs, Graft does.

| watches | API server | baseline | Graft |
|---|---|---|---|
`)

	for _, n := range []int{1, 100, 200, 1000} {
		for _, trouble := range stopTroubles() {
			name := fmt.Sprintf("bench/Stop/Watches=%d/%s/", n, trouble.name)
			fmt.Fprintf(b, "| %s | %s | %s; %s | %s; %s |\n", number(float64(n)), trouble.label,
				r.cell(name+"Baseline-p50-ms"), r.cell(name+"Baseline-max-ms"), r.cell(name+"Graft-p50-ms"), r.cell(name+"Graft-max-ms"))
		}
	}

	images(b, r, "watch-stop")
}

// A named thing is called so by a benchmark, and is shown by its label.
type named struct{ name, label string }

func readTroubles() []named {
	return []named{{"Nothing", "is fine"}, {"NeverSyncs", "never syncs"}, {"IsLookedUpSlowly", "is looked up slowly"}}
}

func stopTroubles() []named {
	return []named{
		{"Healthy", "healthy"},
		{"Refusing", "refuses"},
		{"Hanging", "hangs"},
		{"HangingWhileOneMoreIsStarted", "hangs for 500 ms while one more is started"},
	}
}

func watchSides() []string { return []string{"ControllerRuntime", "Baseline", "Graft"} }

// A row has a label, and the names of its figures: of a column and a side.
type row struct{ label, name string }

// pairTable has a pair of figures in each cell. Rows without any other figure than
// zero are left out, except the first.
func pairTable(b *strings.Builder, r *results, head string, columns []string, rows []row) {
	fmt.Fprintf(b, "| %s |", head)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", label(c))
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))

	for i, row := range rows {
		line, some := "| "+row.label+" |", i == 0

		for _, c := range columns {
			u, g := fmt.Sprintf(row.name, c, upstreamSide), fmt.Sprintf(row.name, c, graftSide)
			line += fmt.Sprintf(" %s : %s |", r.cell(u), r.cell(g))
			for _, f := range []*figure{r.figure(u), r.figure(g)} {
				some = some || f != nil && f.high() > 0
			}
		}

		if some {
			fmt.Fprintln(b, line)
		}
	}
}

// label writes a size with its thousands.
func label(column string) string {
	if strings.Trim(column, "0123456789") == "" {
		return thousands(column)
	}
	return column
}

// images of the charts that there are.
func images(b *strings.Builder, r *results, files ...string) {
	fmt.Fprintln(b)
	for _, c := range charts(r) {
		if slices.Contains(files, c.file) {
			fmt.Fprintf(b, "![%s](%s.svg)\n", c.title, c.file)
		}
	}
}

// cell shows a figure: its median, and its spread if it has one.
func (r *results) cell(name string) string {
	f := r.figure(name)
	if f == nil {
		return "-"
	}
	low, median, high := number(f.low()), number(f.median()), number(f.high())
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

func (r *results) sizes() []string {
	out := make([]string, len(r.Sizes))
	for i, n := range r.Sizes {
		out[i] = fmt.Sprint(n)
	}
	return out
}

// has reports whether there is a figure whose name begins so.
func (r *results) has(prefix string) bool {
	for _, f := range r.Figures {
		if strings.HasPrefix(f.Name, prefix) {
			return true
		}
	}
	return false
}

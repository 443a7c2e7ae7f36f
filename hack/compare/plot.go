package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A chart has a group of bars for each column and in it a bar for each series, or a line for
// each series.
type chart struct {
	file, title, x, y string

	columns []named
	series  []string // names of sides, or of ways to reconcile

	// name of the figure of a column and a series, or of the course of a series.
	name string

	// bars are the figures of each series, lines its course.
	bars  [][]*figure
	lines []*course
}

// charts returns the charts whose figures exist.
func charts(r *results) []chart {
	sizes, calls, ends := columns(r.sizes(), label), columns(latencies(), label), columns(tortureColumns()[1:6], words)
	delays := []named{
		{"drained", "until each was observed"}, {"urgent-p99", "until the first call for\na new or deleted one, p99"},
	}
	stops := stopTroubles()
	for i := range stops {
		stops[i].Label = strings.Replace(stops[i].Label, " while ", "\nwhile ", 1)
	}
	most, watches := slices.Max(r.Sizes), watchSides()
	restarted, restart := number(float64(most))+" managed resources", fmt.Sprintf("restart/%d/", most)

	const count, start, steady = "managed resources", "seconds since the start", "Steady state: "
	all := []chart{
		{
			file: "steady-status-writes", title: steady + "writes of status in a poll interval", x: count, y: "writes",
			columns: sizes, series: sides(), name: "steady/%s/%s/status-writes",
		},
		{
			file: "steady-provider-cpu", title: steady + "provider CPU time in a poll interval", x: count, y: "seconds",
			columns: sizes, series: sides(), name: "steady/%s/%s/provider-cpu",
		},
		{
			file: "steady-api-server-cpu", title: steady + "API server CPU time in a poll interval", x: count,
			y: "seconds", columns: sizes, series: sides(), name: "steady/%s/%s/api-server-cpu",
		},
		{
			file: "steady-heap", title: steady + "heap of the provider", x: count, y: "MB",
			columns: sizes, series: sides(), name: "steady/%s/%s/heap",
		},
		{
			file: "restart-requests", title: "Requests after a restart with " + restarted, x: start,
			y: "requests so far", series: sides(), name: restart + "%s/requests",
		},
		{
			file: "restart-external-calls", title: "External calls after a restart with " + restarted, x: start,
			y: "calls so far", series: sides(), name: restart + "%s/external-calls",
		},
		{
			file: "deletion", title: "From a deletion until Ready=False/Deleting is shown", x: "an external call takes",
			y: "seconds", columns: calls, series: sides(), name: "deletion/%s/%s/seconds",
		},
		{
			file: "torture", y: "lives", columns: ends, series: sides(), name: "torture/%[2]s/%[1]s",
			title: fmt.Sprintf("Torture: how lives ended, of a sample of %s faults", number(float64(r.Torture))),
		},
		{
			file: "throttled", title: "Restart with a cloud that throttles, 10,000 managed resources", y: "seconds",
			columns: delays, series: throttledReconcilers(), name: "throttled/%[2]s/%[1]s",
		},
		{
			file: "watch-reads", title: "Cached reads beside a sick kind: time spent waiting", x: "the other kind",
			y: "% of the time", columns: readTroubles(), series: watches,
			name: "bench/ReadWhileAnotherKind/Get/%s/%s/waiting-%%",
		},
		{
			file: "watch-stop", title: "Stop of a controller with 200 watches: p50", x: "the API server", y: "ms",
			columns: stops, series: watches[1:], name: "bench/Stop/Watches=200/%s/%s-p50-ms",
		},
	}
	var out []chart
	for _, c := range all {
		if c.find(r) {
			out = append(out, c)
		}
	}
	return out
}

func columns(names []string, label func(string) string) []named {
	var out []named
	for _, n := range names {
		out = append(out, named{n, label(n)})
	}
	return out
}

// find the figures or courses, and report whether all were measured.
func (c *chart) find(r *results) bool {
	for _, series := range c.series {
		if c.columns == nil {
			name := fmt.Sprintf(c.name, series)
			i := slices.IndexFunc(r.Courses, func(c *course) bool { return c.Name == name })
			if i < 0 {
				return false
			}
			c.lines = append(c.lines, r.Courses[i])
			continue
		}
		var bars []*figure
		for _, column := range c.columns {
			bars = append(bars, r.figure(fmt.Sprintf(c.name, column.Name, series)))
		}
		if slices.Contains(bars, nil) {
			return false
		}
		c.bars = append(c.bars, bars)
	}
	return true
}

// sideLabel writes the name of a side, or of a way to reconcile, as the documentation does.
func sideLabel(side string) string {
	switch side {
	case "ControllerRuntime":
		return "controller-runtime"
	case graftSide, "Graft":
		return "Graft"
	case "graft-limits":
		return "Graft, WithRateLimits"
	default:
		return strings.ToLower(side)
	}
}

// colour of a series: upstream's is the first and Graft's the last.
func (c chart) colour(series int) color.Color {
	switch {
	case series == 0:
		return color.RGBA{R: 0xc4, G: 0x6a, B: 0x3a, A: 0xff}
	case series < len(c.series)-1:
		return color.RGBA{R: 0x9a, G: 0x9a, B: 0x9a, A: 0xff}
	default:
		return color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}
	}
}

const (
	textSize = font.Length(11)

	// Where there is no font of these widths, text is longer than was measured.
	margin       = vg.Centimeter
	fontFamily   = "font-family:Liberation Serif;"
	fontFamilies = "font-family:Liberation Serif,Times New Roman,Times,serif;"
)

// save the chart as a picture.
func (c chart) save(t *testing.T, dir string) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.TextStyle.Font.Size, p.Title.Padding = textSize*1.1, vg.Points(8)
	p.BackgroundColor = color.White
	for _, s := range []*draw.TextStyle{
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font.Size = textSize
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	p.Y.Min = 0
	if c.lines != nil {
		c.addLines(t, p)
	} else {
		c.addBars(t, p)
	}

	canvas, err := draw.NewFormattedCanvas(17*vg.Centimeter, 9*vg.Centimeter, "svg")
	must(t, err)
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 0, 0))
	var picture bytes.Buffer
	_, err = canvas.WriteTo(&picture)
	must(t, err)
	text := bytes.ReplaceAll(picture.Bytes(), []byte(fontFamily), []byte(fontFamilies))
	must(t, os.WriteFile(filepath.Join(dir, c.file+".svg"), text, 0o644))
}

func (c chart) addLines(t *testing.T, p *plot.Plot) {
	for i, l := range c.lines {
		points := make(plotter.XYs, len(l.Seconds))
		for j := range points {
			points[j] = plotter.XY{X: l.Seconds[j], Y: l.Values[j]}
		}
		drawn, err := plotter.NewLine(points)
		must(t, err)
		drawn.Width, drawn.Color = vg.Points(2), c.colour(i)
		p.Add(drawn)
		p.Legend.Add(sideLabel(c.series[i]), drawn)
	}
	p.X.Min, p.X.Max, p.Y.Max = 0, p.X.Max*1.03, p.Y.Max*1.05
}

// addBars draws the medians, with the number above each bar.
func (c chart) addBars(t *testing.T, p *plot.Plot) {
	width := vg.Points(240 / float64(len(c.columns)*len(c.series)))
	most := 1e-3
	for i, figures := range c.bars {
		values, labels := plotter.Values{}, plotter.XYLabels{}
		for j, f := range figures {
			values = append(values, f.median())
			labels.XYs = append(labels.XYs, plotter.XY{X: float64(j), Y: values[j]})
			labels.Labels = append(labels.Labels, short(values[j]))
		}
		most = max(most, slices.Max(values))
		bars, err := plotter.NewBarChart(values, width)
		must(t, err)
		above, err := plotter.NewLabels(labels)
		must(t, err)
		bars.Offset = width * vg.Length(float64(i)-float64(len(c.series)-1)/2)
		bars.Color, bars.LineStyle.Width = c.colour(i), 0
		above.Offset = vg.Point{X: bars.Offset, Y: vg.Points(2)}
		for j := range above.TextStyle {
			above.TextStyle[j].XAlign, above.TextStyle[j].Font.Size = draw.XCenter, textSize*0.85
		}
		p.Add(bars, above)
		p.Legend.Add(sideLabel(c.series[i]), bars)
	}

	var names []string
	for _, column := range c.columns {
		names = append(names, column.Label)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Max = most * 1.3 // Room for the legend.
}

// short writes a number with two significant digits, for which there is room.
func short(v float64) string {
	if v >= 100 {
		return number(math.Round(v))
	}
	return number(significant(v, 2))
}

// ticks are the usual ones, with thousands.
func ticks(low, high float64) []plot.Tick {
	out := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range out {
		if t.Label != "" {
			out[i].Label = number(t.Value)
		}
	}
	return out
}

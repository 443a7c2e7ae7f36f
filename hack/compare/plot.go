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

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A chart has a bar, or a line, for each series.
type chart struct {
	file, title, x, y string

	// groups of bars, and the figure of each series. Nil is not measured.
	groups []string
	series []series

	// lines over time, in place of bars.
	lines []line
}

type series struct {
	label string
	bars  []*figure
}

type line struct {
	label string
	*course
}

// charts returns the charts whose figures exist.
func charts(r *results) []chart {
	var sizes, calls, ends []named
	for _, n := range r.sizes() {
		sizes = append(sizes, named{n, label(n)})
	}
	for _, l := range latencies() {
		calls = append(calls, named{l.String(), l.String()})
	}
	for _, c := range tortureColumns()[1:6] {
		ends = append(ends, named{c, words(c)})
	}
	delays := []named{
		{"drained", "until each was observed"}, {"urgent-p99", "until the first call for\na new or deleted one, p99"},
	}
	stops := stopTroubles()
	for i := range stops {
		stops[i].Label = strings.Replace(stops[i].Label, " while ", "\nwhile ", 1)
	}

	n := slices.Max(r.Sizes)
	out := []chart{
		{
			file: "steady-status-writes", title: "Steady state: writes of status in a poll interval",
			x: "managed resources", y: "writes",
		},
		{
			file: "steady-provider-cpu", title: "Steady state: provider CPU time in a poll interval",
			x: "managed resources", y: "seconds",
		},
		{
			file: "steady-api-server-cpu", title: "Steady state: API server CPU time in a poll interval",
			x: "managed resources", y: "seconds",
		},
		{file: "steady-heap", title: "Steady state: heap of the provider", x: "managed resources", y: "MB"},
		{
			file: "restart-requests", title: "Requests after a restart with %s managed resources",
			x: "seconds since the start", y: "requests so far",
		},
		{
			file: "restart-external-calls", title: "External calls after a restart with %s managed resources",
			x: "seconds since the start", y: "calls so far",
		},
	}
	for i := range out {
		c := &out[i]
		if measure, ok := strings.CutPrefix(c.file, "steady-"); ok {
			*c = c.bars(r, sizes, sides(), "steady/%[1]s/%[2]s/"+measure)
			continue
		}
		c.title = fmt.Sprintf(c.title, number(float64(n)))
		for _, side := range sides() {
			name := fmt.Sprintf("restart/%d/%s/%s", n, side, strings.TrimPrefix(c.file, "restart-"))
			if j := slices.IndexFunc(r.Courses, func(c *course) bool { return c.Name == name }); j >= 0 {
				c.lines = append(c.lines, line{sideLabel(side), r.Courses[j]})
			}
		}
	}

	out = append(out,
		chart{
			file: "deletion", title: "From a deletion until Ready=False/Deleting is shown",
			x: "an external call takes", y: "seconds",
		}.bars(r, calls, sides(), "deletion/%[1]s/%[2]s/seconds"),
		chart{
			file:  "torture",
			title: fmt.Sprintf("Torture: how lives ended, of a sample of %s faults", number(float64(r.Torture))),
			y:     "lives",
		}.bars(r, ends, sides(), "torture/%[2]s/%[1]s"),
		chart{
			file: "throttled", title: "Restart with a cloud that throttles, 10,000 managed resources", y: "seconds",
		}.bars(r, delays, throttledReconcilers(), "throttled/%[2]s/%[1]s"),
		chart{
			file: "watch-reads", title: "Cached reads beside a sick kind: time spent waiting",
			x: "the other kind", y: "% of the time",
		}.bars(r, readTroubles(), watchSides(), "bench/ReadWhileAnotherKind/Get/%[1]s/%[2]s/waiting-%%"),
		chart{
			file: "watch-stop", title: "Stop of a controller with 200 watches: p50", x: "the API server", y: "ms",
		}.bars(r, stops, watchSides()[1:], "bench/Stop/Watches=200/%[1]s/%[2]s-p50-ms"),
	)
	return slices.DeleteFunc(out, chart.empty)
}

// bars returns the chart with a group of bars for each column. name is the name of a figure:
// of a column and a series.
func (c chart) bars(r *results, columns []named, sides []string, name string) chart {
	for _, column := range columns {
		c.groups = append(c.groups, column.Label)
	}
	for _, side := range sides {
		s := series{label: sideLabel(side)}
		for _, column := range columns {
			s.bars = append(s.bars, r.figure(fmt.Sprintf(name, column.Name, side)))
		}
		c.series = append(c.series, s)
	}
	return c
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

// empty reports whether a figure is missing.
func (c chart) empty() bool {
	for _, s := range c.series {
		if slices.Contains(s.bars, nil) {
			return true
		}
	}
	return len(c.series)+len(c.lines) == 0
}

// colours of series, upstream's first and Graft's last.
func colours(n int) []color.Color {
	out := []color.Color{
		color.RGBA{R: 0xc4, G: 0x6a, B: 0x3a, A: 0xff},
		color.RGBA{R: 0x9a, G: 0x9a, B: 0x9a, A: 0xff},
		color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff},
	}
	if n == 2 {
		return []color.Color{out[0], out[2]}
	}
	return out
}

const (
	chartWidth  = 17 * vg.Centimeter
	chartHeight = 9 * vg.Centimeter
	textSize    = font.Length(11)

	// Where there is no font of these widths, text is longer than was measured.
	margin       = vg.Centimeter
	fontFamily   = "font-family:Liberation Serif;"
	fontFamilies = "font-family:Liberation Serif,Times New Roman,Times,serif;"
)

// save the chart as a picture. The extension says which format.
func (c chart) save(dir, ext string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.TextStyle.Font.Size = textSize * 1.1
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	for _, s := range []*draw.TextStyle{
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font.Size = textSize
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	p.Y.Min = 0
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}

	if len(c.lines) > 0 {
		if err := c.addLines(p); err != nil {
			return err
		}
	} else if err := c.addBars(p); err != nil {
		return err
	}

	canvas, err := draw.NewFormattedCanvas(chartWidth, chartHeight, strings.TrimPrefix(ext, "."))
	if err != nil {
		return err
	}
	p.Draw(draw.Crop(draw.New(canvas), 0, -margin, 0, 0))
	var picture bytes.Buffer
	if _, err := canvas.WriteTo(&picture); err != nil {
		return err
	}
	text := bytes.ReplaceAll(picture.Bytes(), []byte(fontFamily), []byte(fontFamilies))
	return os.WriteFile(filepath.Join(dir, c.file+ext), text, 0o644)
}

func (c chart) addLines(p *plot.Plot) error {
	for i, l := range c.lines {
		points := make(plotter.XYs, len(l.Seconds))
		for j := range points {
			points[j] = plotter.XY{X: l.Seconds[j], Y: l.Values[j]}
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		drawn.Width, drawn.Color = vg.Points(2), colours(len(c.lines))[i]
		p.Add(drawn)
		p.Legend.Add(l.label, drawn)
	}

	p.X.Min, p.X.Max, p.Y.Max = 0, p.X.Max*1.03, p.Y.Max*1.05
	return nil
}

// addBars draws the medians, with the number above each bar.
func (c chart) addBars(p *plot.Plot) error {
	width := vg.Points(240 / float64(len(c.groups)*len(c.series)))
	most := 0.0

	for i, s := range c.series {
		values, labels := make(plotter.Values, len(s.bars)), plotter.XYLabels{}

		for j, f := range s.bars {
			values[j] = f.median()
			most = max(most, values[j])
			labels.XYs = append(labels.XYs, plotter.XY{X: float64(j), Y: values[j]})
			labels.Labels = append(labels.Labels, short(values[j]))
		}

		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		above, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		bars.Offset = width * vg.Length(float64(i)-float64(len(c.series)-1)/2)
		bars.Color, bars.LineStyle.Width = colours(len(c.series))[i], 0
		above.Offset = vg.Point{X: bars.Offset, Y: vg.Points(2)}

		for j := range above.TextStyle {
			above.TextStyle[j].XAlign = draw.XCenter
			above.TextStyle[j].Font.Size = textSize * 0.85
		}

		p.Add(bars, above)
		p.Legend.Add(s.label, bars)
	}

	p.NominalX(c.groups...)
	p.X.Min, p.X.Max = -0.6, float64(len(c.groups))-0.4
	p.Y.Max = max(most, 1e-3) * 1.3 // Room for the legend.
	return nil
}

// short writes a number with two significant digits, for which there is room.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	scale := math.Pow(10, 1-math.Floor(math.Log10(math.Abs(v))))
	if v >= 100 {
		scale = 1
	}
	return number(math.Round(v*scale) / scale)
}

// ticks are the usual ones, with thousands.
type ticks struct{}

// Ticks of an axis.
func (ticks) Ticks(low, high float64) []plot.Tick {
	out := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range out {
		if t.Label != "" {
			out[i].Label = number(t.Value)
		}
	}
	return out
}

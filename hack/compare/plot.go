package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
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

// A chart has a group of bars for each column and in it a bar for each series, or without
// columns a line over time for each series.
type chart struct {
	file, title, x, y string

	// name of the figure of a column and a series, or of the course of a series.
	name    string
	columns []named
	series  []string // names of sides, or of ways to reconcile
}

// measured reports whether all figures exist.
func (c chart) measured(r *results) bool {
	return !slices.ContainsFunc(c.series, func(series string) bool {
		return c.columns == nil && c.line(r, series) == nil || slices.Contains(c.bars(r, series), nil)
	})
}

// bars returns the figures of a series, nil for each that was not measured.
func (c chart) bars(r *results, series string) []*figure {
	var out []*figure
	for _, column := range c.columns {
		out = append(out, r.figure(fmt.Sprintf(c.name, column.Name, series)))
	}
	return out
}

// line returns the course of a series, or nil.
func (c chart) line(r *results, series string) *course {
	for _, l := range r.Courses {
		if l.Name == fmt.Sprintf(c.name, series) {
			return l
		}
	}
	return nil
}

// sideLabel writes the name of a side, or of a way to reconcile, as the documentation does.
func sideLabel(side string) string {
	return cmp.Or(map[string]string{
		"ControllerRuntime": "controller-runtime",
		graftSide:           "Graft",
		"graft-limits":      "Graft with limits",
		"Graft":             "Graft",
	}[side], strings.ToLower(side))
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
func (c chart) save(t *testing.T, r *results, dir string) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.BackgroundColor = c.title, c.x, c.y, color.White
	p.Title.TextStyle.Font.Size, p.Title.Padding = textSize*1.1, vg.Points(8)
	for _, s := range []*draw.TextStyle{
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font.Size = textSize
	}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding, p.Y.Min = true, true, vg.Points(3), 0
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(""), ticks("     ")
	if c.columns == nil {
		c.addLines(t, p, r)
	} else {
		c.addBars(t, p, r)
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

func (c chart) addLines(t *testing.T, p *plot.Plot, r *results) {
	for i, series := range c.series {
		l := c.line(r, series)
		points := make(plotter.XYs, len(l.Seconds))
		for j := range points {
			points[j] = plotter.XY{X: l.Seconds[j], Y: l.Values[j]}
		}
		drawn, err := plotter.NewLine(points)
		must(t, err)
		drawn.Width, drawn.Color = vg.Points(2), c.colour(i)
		p.Add(drawn)
		p.Legend.Add(sideLabel(series), drawn)
	}
	p.X.Min, p.X.Max, p.Y.Max = 0, p.X.Max*1.03, p.Y.Max*1.25 // Room for the legend.
}

// addBars draws the medians, with the number above each bar.
func (c chart) addBars(t *testing.T, p *plot.Plot, r *results) {
	width := vg.Points(240 / float64(len(c.columns)*len(c.series)))
	most := 1e-3
	for i, series := range c.series {
		values, labels := plotter.Values{}, plotter.XYLabels{}
		for j, f := range c.bars(r, series) {
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
		p.Legend.Add(sideLabel(series), bars)
	}

	var names []string
	for _, column := range c.columns {
		names = append(names, strings.Replace(column.Label, " while ", "\nwhile ", 1))
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	p.Y.Max = most * (1 + 0.15*float64(len(c.series))) // Room for the legend.
}

// short writes a number with two significant digits, for which there is room.
func short(v float64) string {
	if v < 100 {
		v = significant(v, 2)
	}
	return number(v)
}

// ticks are the usual ones, with thousands, and with room after each label.
func ticks(room string) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		out := plot.DefaultTicks{}.Ticks(low, high)
		for i, t := range out {
			if t.Label != "" {
				out[i].Label = number(t.Value) + room
			}
		}
		return out
	}
}

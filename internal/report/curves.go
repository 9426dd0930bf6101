package report

// The page with the training curves: one HTML file, no network, no script.

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/odyssey-rl/odyssey/internal/episode"
)

const (
	plotWidth, plotHeight = 440, 200
	marginLeft            = 52
	marginRight           = 12
	marginTop             = 12
	marginBottom          = 28
)

const style = `:root{color-scheme:light dark;--ink:#1c2024;--soft:#6b7280;--paper:#fbfbfa;--card:#fff;--rule:#e2e4e8;--line:#6d3fc0;--dot:#b9a5e0}
@media (prefers-color-scheme:dark){:root{--ink:#e8e8ea;--soft:#9aa1ad;--paper:#141518;--card:#1c1e22;--rule:#30343b;--line:#b795ff;--dot:#5d4a8c}}
body{margin:0 auto;max-width:960px;padding:24px 16px;font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
h1{font-size:22px;margin:0 0 4px}h2{font-size:15px;margin:0 0 6px}p{color:var(--soft);margin:4px 0 16px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:16px}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px;min-width:0}
svg{width:100%;height:auto;display:block}text{fill:var(--soft);font:11px system-ui,sans-serif}
.axis{stroke:var(--rule);fill:none}.raw{fill:var(--dot)}.mean{stroke:var(--line);stroke-width:2;fill:none;stroke-linejoin:round}
pre{overflow-x:auto;font:13px/1.45 ui-monospace,monospace;margin:0}`

// Curves writes a self-contained page: a curve per measure over the training
// steps (points are single steps, the line a trailing mean of Window steps)
// and the Table below them.
func Curves(w io.Writer, rows []episode.Metric, synthesis *Synthesis, title string) error {
	train, _ := split(rows)
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>")
	b.WriteString(html.EscapeString(title))
	b.WriteString("</title>\n<style>" + style + "</style></head><body>\n<h1>")
	b.WriteString(html.EscapeString(title))
	fmt.Fprintf(&b, "</h1>\n<p>%d optimizer steps. Points are single steps, the line is a trailing mean of %d.</p>\n<div class=\"grid\">\n", len(train), Window)
	for _, q := range measures {
		if len(train) == 0 {
			break
		}
		if _, ok := q.over(train); ok {
			writePlot(&b, q, train)
		}
	}
	b.WriteString("</div>\n<h2 style=\"margin-top:24px\">Figures</h2>\n<div class=\"card\"><pre>")
	var table strings.Builder
	if err := Table(&table, rows, synthesis); err != nil {
		return err
	}
	b.WriteString(html.EscapeString(table.String()))
	b.WriteString("</pre></div>\n</body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writePlot draws one measure. The vertical axis starts at zero, so that the
// height of a change is its size.
func writePlot(b *strings.Builder, q measure, train []episode.Metric) {
	top := 0.0
	for _, m := range train {
		if v, ok := q.value(m); ok {
			top = max(top, v)
		}
	}
	if top == 0 {
		top = 1
	}
	firstStep, lastStep := train[0].Step, train[len(train)-1].Step
	x := func(step int) float64 {
		if lastStep == firstStep {
			return marginLeft
		}
		return marginLeft + float64(step-firstStep)/float64(lastStep-firstStep)*(plotWidth-marginLeft-marginRight)
	}
	y := func(v float64) float64 {
		return plotHeight - marginBottom - v/top*(plotHeight-marginTop-marginBottom)
	}
	fmt.Fprintf(b, "<div class=\"card\"><h2>%s</h2><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s over steps\">\n", html.EscapeString(q.name), plotWidth, plotHeight, html.EscapeString(q.name))
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(b, "<path class=\"axis\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", marginLeft, y(top*part), plotWidth-marginRight, marginLeft-6, y(top*part)+4, axisLabel(top*part))
	}
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\">%d</text><text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">step %d</text>\n", x(firstStep), plotHeight-8, firstStep, x(lastStep), plotHeight-8, lastStep)
	var line strings.Builder
	for i, m := range train {
		if v, ok := q.value(m); ok {
			fmt.Fprintf(b, "<circle class=\"raw\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n", x(m.Step), y(v))
		}
		if v, ok := q.over(train[max(0, i-Window+1) : i+1]); ok {
			verb := "L"
			if line.Len() == 0 {
				verb = "M"
			}
			fmt.Fprintf(&line, "%s%.1f %.1f", verb, x(m.Step), y(v))
		}
	}
	fmt.Fprintf(b, "<path class=\"mean\" d=\"%s\"/>\n</svg></div>\n", line.String())
}

// axisLabel keeps a value short enough for the margin.
func axisLabel(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

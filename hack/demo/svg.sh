#!/usr/bin/env bash
# Usage: make -s demo | hack/demo/svg.sh >docs/figures/demo.svg
#
# Draws the text on stdin, in a UTF-8 locale, as it looks in a terminal.

set -euo pipefail
sed -E -e 's/ \([0-9.]+m?s\)$//' -e 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' \
	-e 's#✗#<tspan fill="\#e5534b">✗</tspan>#g; s#✓#<tspan fill="\#57ab5a">✓</tspan>#g' |
	awk -v title='make demo' '
{ line[NR] = $0 }
END {
	height = 17
	width = 690
	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\">\n",
		width, (NR + 4) * height, width
	printf "<title>What %s prints</title>\n", title
	print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#22272e\"/>"
	print "<g font-family=\"ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace\" font-size=\"13\" fill=\"#d1d7e0\" xml:space=\"preserve\">"
	printf "<text x=\"16\" y=\"%d\" fill=\"#8b949e\">$ %s</text>\n", 2 * height, title
	for (i = 1; i <= NR; i++)
		if (line[i] != "")
			printf "<text x=\"16\" y=\"%d\">%s</text>\n", (i + 2) * height, line[i]
	print "</g>\n</svg>"
}'

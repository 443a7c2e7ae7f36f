package failure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// OfText returns the meaning of the text of an error.
//
// Quoted parts and JSON are not read, because users write them. In the rest, the evidence of the
// highest rank decides, and of the same rank the first: "409 Conflict: rule Many 502 Bad Gateway" is a
// refusal. In a list of errors each may be about a request of its own, so the one decides that leaves most
// open. The first item has the text before the list.
func OfText(text string) Meaning {
	var m Meaning
	from := 0
	for i, at := range grammar()["item"].FindAllStringIndex(text, -1) {
		if i > 0 || strings.Contains(text[at[0]:at[1]], "http") {
			m = m.worse(ofItem(visible(text[from:at[0]])))
			from = at[0]
		}
	}
	return m.worse(ofItem(visible(text[from:])))
}

// ofItem returns the meaning of one error of a list.
func ofItem(text string) Meaning {
	var m Meaning
	sent := grammar()["not sent"].ReplaceAllString(text, "") // A later request may have been sent.
	if sent != text {
		m.Answer = Unserved
	}
	if at := grammar()["rest"].FindStringIndex(sent); at != nil {
		if _, sure := statusIn(sent[:at[0]]); sure {
			sent = sent[:at[0]]
		}
	}
	status, _ := statusIn(sent)
	m.Answer = cmp.Or(ofStatus(status), m.Answer)
	m.Throttled = status == http.StatusTooManyRequests || matches("throttled text", sent) ||
		(status == 0 || status == http.StatusForbidden) && matches("throttled words", sent)
	// Words may be about a part of the external resource. So is all with another status than Conflict.
	whole := grammar()["part exists"].ReplaceAllString(sent, "")
	if matches("exists text", whole) && (status == 0 || status == http.StatusConflict) {
		m.Answer, m.Exists = Refused, true
	}
	if m.Answer == Refused && matches("caller text", sent) {
		m.Answer = Unserved
	}
	if m.Answer != Unsaid || m.Throttled {
		m.Evidence = Text
	}
	return m
}

// statusIn returns the status that decides, or zero. Words for a lost answer mean the same as status 500. sure is false
// for words, and for a status that may be a part of a name: an object's name often stands before a status, and is not
// quoted.
func statusIn(text string) (status int, sure bool) {
	for _, rank := range []string{"keyed", "placed", "word"} {
		sure = rank != "word"
		first, lost := len(text), false
		for _, kind := range []string{"lost", "number", "alone", "known", "explained", "name"} {
			expression := grammar()[rank+" "+kind]
			if expression == nil {
				continue
			}
			for _, at := range expression.FindAllStringSubmatchIndex(text, -1) {
				from, to := at[len(at)-2], at[len(at)-1]
				found := statusOf(kind, text[from:to], text[to:])
				lost = lost || ofStatus(found) == NoAnswer
				if found != 0 && from < first {
					status, first = found, from
				}
			}
		}
		again := status == http.StatusTooManyRequests || status == http.StatusUnauthorized
		if lost && (again || !sure) {
			status = http.StatusInternalServerError // The request was sent again, or may have been.
		}
		if status != 0 {
			return status, sure
		}
	}
	return 0, false
}

// statusOf returns the status that a part of a text gives by its kind and by what follows, or zero.
func statusOf(kind, part, after string) int {
	status, _ := strconv.Atoi(part)
	words := strings.ToLower(http.StatusText(status))
	explained := words != "" && strings.HasPrefix(strings.ToLower(strings.TrimLeft(after, " -:")), words)
	switch {
	case kind == "lost":
		return http.StatusInternalServerError
	case kind == "name":
		return statusNamed(part)
	case matches("longer", after),
		kind != "number" && matches("counted", after) && !matches("verb follows", after),
		!explained && (kind == "explained" || kind == "alone" && !matches("end", after)):
		return 0
	}
	return status
}

// visible returns a text without what is quoted, and with the statuses of the JSON in it instead of the JSON. They
// count as little as a status in a name. JSON that is broken or cut off stays. A quote in a word opens and closes none.
func visible(text string) string {
	text = grammar()["unquoted"].ReplaceAllString(text, "$1$3$5 $2$4$6")
	text = grammar()["quoted answer"].ReplaceAllString(text, `$1 "`)
	for from := 0; ; from++ {
		at := grammar()["json"].FindStringIndex(text[from:])
		if at == nil {
			text = grammar()["double quoted"].ReplaceAllString(text, `""`)
			return grammar()["single quoted"].ReplaceAllString(text, "")
		}
		from += at[0]
		var object map[string]any
		d := json.NewDecoder(strings.NewReader(text[from:]))
		if d.Decode(&object) == nil {
			var r response
			r.take("Response", reflect.ValueOf(object), 0)
			text = fmt.Sprintf("%s (%d).%s", text[:from], max(r.status, r.number), text[from+int(d.InputOffset()):])
		}
	}
}

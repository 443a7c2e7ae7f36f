package failure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
)

// OfText returns the meaning of the text of an error.
//
// Quoted parts and JSON are not read, because users write them. In the rest, the evidence of the
// highest rank decides, and of the same rank the first: "409 Conflict: rule Many 502 Bad Gateway" is a
// refusal. In a list of errors each may be about a request of its own, so the one decides that leaves most
// open.
func OfText(text string) Meaning {
	var m Meaning
	for _, item := range items(text) {
		answer, rest := visible(item)
		if rest != "" && strongest(answer).rank < placed {
			answer += rest
		}
		m = m.worse(ofItem(answer))
	}
	return m
}

// ofItem returns the meaning of one error of a list.
func ofItem(text string) Meaning {
	var m Meaning
	sent := grammar()["unsent"].ReplaceAllString(text, "") // A later request may have been sent.
	if at := grammar()["login"].FindStringIndex(sent); at != nil {
		sent = sent[:at[0]]
	}
	if sent != text {
		m.Answer = Unserved
	}
	e := strongest(sent)
	if e.rank > 0 {
		m.Answer = e.answer
	}
	m.Throttled = e.code == http.StatusTooManyRequests || matches("throttled text", sent) ||
		(e.rank == 0 || e.code == http.StatusForbidden) && matches("throttled words", sent)
	// Words may be about a part of the external resource. So is all with another status than Conflict.
	words := grammar()["exists words"].FindStringSubmatch(sent)
	exists := matches("exists", sent) || len(words) > 1 && !matches("part", words[1])
	if exists && (e.rank == 0 || e.code == http.StatusConflict || e.code == 0 && e.answer == Refused) {
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

// Evidence in a text is a status, a code or a word.
type evidence struct {
	rank   int
	at     int // its position
	answer Answer
	code   int // the HTTP status, if any
}

// The ranks of evidence, by which the grammar calls them. An object's name often stands before a status, and is not
// quoted.
const (
	word     = iota + 1 // also a status that may be a part of a name
	placed              // a status at the begin, after punctuation, or after a verb
	keyed               // a status after a word such as StatusCode
	accepted            // the request was accepted, and the client waited for its result
)

// strongest returns the evidence that decides.
func strongest(text string) evidence {
	var best evidence
	ranks := []string{accepted: "accepted", keyed: "keyed", placed: "placed", word: "word"}
	for rank, name := range slices.Backward(ranks) {
		for _, kind := range []string{"lost", "number", "alone", "known", "explained", "name"} {
			expression := grammar()[name+" "+kind]
			if expression == nil {
				continue
			}
			for _, at := range expression.FindAllStringSubmatchIndex(text, -1) {
				from, to := at[len(at)-2], at[len(at)-1]
				e := evidence{rank: rank, at: from}
				if e.answer, e.code = ofPart(kind, text[from:to], text[to:]); e.beats(best) {
					best = e
				}
			}
		}
	}
	return best
}

// beats reports whether e decides over other, which was found before.
func (e evidence) beats(other evidence) bool {
	again := func(code int) bool { return code == http.StatusTooManyRequests || code == http.StatusUnauthorized }
	lost, wasLost := e.answer == NoAnswer, other.answer == NoAnswer
	switch {
	case e.answer == Unsaid:
		return false
	case other.rank == accepted && e.rank >= placed:
		return e.at < other.at // A refusal quotes what a user wrote, such as a word for waiting.
	case e.rank != other.rank:
		return e.rank > other.rank
	case lost != wasLost && (e.rank == word || again(e.code) || again(other.code)):
		return lost // Nothing says which one is the answer, or the request was sent again.
	default:
		return e.at < other.at
	}
}

// ofPart returns the answer, and the HTTP status if any, that a part of a text gives by its kind and by what follows.
func ofPart(kind, part, after string) (Answer, int) {
	switch kind {
	case "lost":
		return NoAnswer, 0
	case "name":
		return ofName(part, after)
	}
	code, _ := strconv.Atoi(part)
	words := strings.ToLower(http.StatusText(code))
	explained := words != "" && strings.HasPrefix(strings.ToLower(strings.TrimLeft(after, " -:")), words)
	inUse := words != "" || code == 499 || code == 509 || code >= 520 && code <= 530 || code >= 595
	counts := matches("counted", after) && !matches("verb follows", after)
	if matches("longer", after) || kind != "number" && (counts || !inUse) ||
		kind == "alone" && !explained && !matches("end", after) || kind == "explained" && !explained {
		return Unsaid, 0
	}
	return ofStatus(code), code
}

// ofName returns the answer with the name of a gRPC status, of an HTTP status, or of a code.
func ofName(name, message string) (Answer, int) {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return ofCode(c, message), 0
		}
	}
	for code := http.StatusBadRequest; code <= http.StatusNetworkAuthenticationRequired; code++ {
		if http.StatusText(code) == name {
			return ofStatus(code), code
		}
	}
	switch {
	case matches("failed", name):
		return NoAnswer, 0
	case name < "a" && matches("refused", name): // In lower case it is a word.
		return Refused, 0
	}
	return Unsaid, 0
}

// items returns the errors of a list: the items of go-multierror and retry-go, and requests one after another.
// The first item has the text before it.
func items(text string) (list []string) {
	from := 0
	for i, at := range grammar()["item"].FindAllStringIndex(text, -1) {
		if i > 0 || strings.Contains(text[at[0]:at[1]], "http") {
			list = append(list, text[from:at[0]])
			from = at[0]
		}
	}
	return append(list, text[from:])
}

// visible returns a text without what is quoted and without JSON. The rest begins with JSON that is cut off at
// the end of the text: the status of such an answer stands before it.
func visible(text string) (answer, rest string) {
	text = grammar()["quoted code"].ReplaceAllString(text, "$1=$2")
	text = grammar()["quoted status"].ReplaceAllString(text, "$1 $2")
	text = grammar()["quoted answer"].ReplaceAllString(text, `$1 "`)
	for from := 0; ; from++ {
		at := grammar()["json"].FindStringIndex(text[from:])
		if at == nil {
			return unquoted(text), ""
		}
		from += at[0]
		object := map[string]any{}
		d := json.NewDecoder(strings.NewReader(text[from:]))
		switch err := d.Decode(&object); {
		case err == nil:
			// It counts as little as a status in a name.
			text = fmt.Sprintf("%s (%v).%s", text[:from], statusIn(object), text[from+int(d.InputOffset()):])
		case errors.Is(err, io.ErrUnexpectedEOF):
			return unquoted(text[:from]), unquoted(text[from:])
		}
	}
}

// statusIn returns the status that an answer has as a number, or zero. Errors of some SDKs have no other text.
func statusIn(answer map[string]any) (status float64) {
	for key, value := range answer {
		if v, ok := value.(float64); ok && v >= 400 && v < 600 && matches("status key", key) {
			status = max(status, v)
		}
	}
	if inner, ok := answer["error"].(map[string]any); ok {
		status = max(status, statusIn(inner))
	}
	return status
}

// unquoted returns a text without the parts that are quoted. A quote in a word opens and closes none.
func unquoted(text string) string {
	text = grammar()["double quoted"].ReplaceAllString(text, `""`)
	return grammar()["single quoted"].ReplaceAllString(text, "")
}

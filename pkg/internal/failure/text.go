package failure

import (
	_ "embed" // It is for the grammar.
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
		if strongest(answer).rank < placed {
			answer += rest
		}
		m = m.worse(ofItem(answer))
	}
	return m
}

// ofItem returns the meaning of one error of a list.
func ofItem(text string) Meaning {
	var m Meaning
	sent := unsentText.ReplaceAllString(text, "") // A later request may have been sent.
	if at := loginText.FindStringIndex(sent); at != nil {
		sent = sent[:at[0]]
	}
	if sent != text {
		m.Answer = Unserved
	}
	e := strongest(sent)
	if e.rank > 0 {
		m.Answer = e.answer
	}
	m.Throttled = e.code == http.StatusTooManyRequests || throttledText.MatchString(sent) ||
		(e.rank == 0 || e.code == http.StatusForbidden) && throttledWords.MatchString(sent)
	// With another status than Conflict it is a part of the external resource that exists.
	if (e.rank == 0 || e.code == http.StatusConflict || e.code == 0 && e.answer == Refused) && exists(sent) {
		m.Answer, m.Exists = Refused, true
	}
	if m.Answer == Refused && callerText.MatchString(sent) {
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

// The ranks of evidence. An object's name often stands before a status, and is not quoted.
const (
	word     = iota + 1 // also a status that may be a part of a name
	placed              // a status at the begin, after punctuation, or after a verb
	keyed               // a status after a word such as StatusCode
	accepted            // the request was accepted, and the client waited for its result
)

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

// strongest returns the evidence that decides.
func strongest(text string) evidence {
	var best evidence
	for _, r := range rules() {
		for _, at := range r.text.FindAllStringSubmatchIndex(text, -1) {
			from, to := at[len(at)-2], at[len(at)-1]
			e := evidence{rank: r.rank, at: from}
			if e.answer, e.code = r.read(text[from:to], text[to:]); e.beats(best) {
				best = e
			}
		}
	}
	return best
}

// A rule finds evidence of a rank. It reads the last group of its expression, and what follows it.
type rule struct {
	rank int
	text *regexp.Regexp
	read func(match, after string) (Answer, int)
}

func rules() []rule {
	return []rule{
		{accepted, acceptedText, ofWords},
		{keyed, statusForm, ofNumber},
		{keyed, firstForm, ofStrict},
		{keyed, codeForm, ofKnown},
		{keyed, nameForm, ofName},
		{placed, verbForm, ofKnown},
		{placed, lineForm, ofStrict},
		{placed, reasonForm, ofName},
		{word, looseForm, ofOwnWords},
		{word, roundForm, ofKnown},
		{word, lostText, ofWords},
		{word, attemptsText, ofWords},
	}
}

// grammar has the regular expressions: one in a line, with its kind and an example.
//
//go:embed grammar.tsv
var grammar string

// expression returns the alternatives of a kind.
func expression(kind string) string {
	var all []string
	for line := range strings.Lines(grammar) {
		if column := strings.Split(line, "\t"); column[0] == kind {
			all = append(all, column[1])
		}
	}
	return "(?:" + strings.Join(all, "|") + ")"
}

var (
	statusForm = regexp.MustCompile(`(?i)` + expression("status") + `([45]\d\d)`)
	firstForm  = regexp.MustCompile(`^([45]\d\d)`)
	codeForm   = regexp.MustCompile(`(?i)` + expression("code") + `([45]\d\d)`)
	verbForm   = regexp.MustCompile(`(?i)` + expression("verb") + `([45]\d\d)`)
	lineForm   = regexp.MustCompile(expression("line") + `([45]\d\d)`)
	looseForm  = regexp.MustCompile(`\b([45]\d\d)`)
	roundForm  = regexp.MustCompile(`\(([45]\d\d)\)(?:$|[:,.;])`)
	nameForm   = regexp.MustCompile(`(?i)` + expression("name") + `([a-z_][\w.]*)`)
	reasonForm = regexp.MustCompile(`(?:^|: )([A-Z][A-Za-z]+(?:[ -][A-Z][a-z]+){0,3})(?:$|: )`)

	lostText     = regexp.MustCompile(`(?i)` + expression("lost"))
	attemptsText = regexp.MustCompile(`(?i)` + expression("attempts"))
	acceptedText = regexp.MustCompile(`(?i)` + expression("accepted"))
	unsentText   = regexp.MustCompile(expression("unsent"))
	unsentCause  = regexp.MustCompile(`^` + expression("unsent"))
	loginText    = regexp.MustCompile(expression("login"))

	callerText    = regexp.MustCompile(`(?i)\bapi error [\w.]*` + expression("caller"))
	throttledText = regexp.MustCompile(`(?:^|api error |[:=] ?|, |\n)(?:Throttling|` + expression("throttled") +
		`)(?:$|[:,.\n])|(?i:code)=` + expression("throttled") + `\b|\(rate_limit_exceeded\)`)
	throttledWords = regexp.MustCompile(
		`(?i)\btoo many requests\b|\brate ?limit\b[^.]{0,30}exceeded|exceeded\b[^.]{0,20} rate ?limit`)

	existsWords = regexp.MustCompile(`(?i)(\w*)(?: with (?:this|that|the same) \w+)?\W*\balready exists?\b`)
	partText    = regexp.MustCompile(`(?i)` + expression("part") + `$`)
)

func ofWords(string, string) (Answer, int) { return NoAnswer, 0 }

// ofNumber returns the answer with a status, unless the number goes on or has a unit.
func ofNumber(number, after string) (Answer, int) {
	code, err := strconv.Atoi(number)
	if err != nil || goesOn.MatchString(after) {
		return Unsaid, 0
	}
	return ofStatus(code), code
}

// ofKnown returns the answer with a status that is in use, unless something is counted: "got 500 items".
func ofKnown(number, after string) (Answer, int) {
	answer, code := ofNumber(number, after)
	known := http.StatusText(code) != "" || code == 499 || code == 509 || code >= 520 && code <= 530 || code >= 595
	if !known || countedText.MatchString(after) && !verbText.MatchString(after) {
		return Unsaid, 0
	}
	return answer, code
}

// ofStrict returns the answer with a status if its own words follow, or no others.
func ofStrict(number, after string) (Answer, int) {
	if strictText.MatchString(after) {
		return ofKnown(number, after)
	}
	return ofOwnWords(number, after)
}

// ofOwnWords returns the answer with a status if its own words follow: "502 Bad Gateway".
func ofOwnWords(number, after string) (Answer, int) {
	answer, code := ofNumber(number, after)
	words, own := strings.ToLower(strings.TrimLeft(after, " -:")), strings.ToLower(http.StatusText(code))
	if own == "" || !strings.HasPrefix(words, own) {
		return Unsaid, 0
	}
	return answer, code
}

var (
	goesOn      = regexp.MustCompile(`^(?:\w|[.,]\d|[ -]?(?:[KMGTP]i?B|[kMG]?Hz)\b)`)
	countedText = regexp.MustCompile(`^[ -]?(?:of|to|[a-z]+s)\b`)
	verbText    = regexp.MustCompile(`^ (?:does|was|is|has|status|as|this|always|across|errors?|responses?)\b`)
	strictText  = regexp.MustCompile(`^(?:$|\s*$|:|\s*\n|  | \(| - | \{| (?:Server|Client|Proxy|Backend) )`)
)

// ofName returns the answer with the name of a gRPC status, of an HTTP status, or of a code.
func ofName(name, message string) (Answer, int) {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return ofGRPC(status.New(c, message)).Answer, 0
		}
	}
	for code := http.StatusBadRequest; code <= http.StatusNetworkAuthenticationRequired; code++ {
		if http.StatusText(code) == name {
			return ofStatus(code), code
		}
	}
	switch {
	case failedCode.MatchString(name):
		return NoAnswer, 0
	case name < "a" && refusedCode.MatchString(name): // In lower case it is a word.
		return Refused, 0
	}
	return Unsaid, 0
}

// exists reports whether a text says that the external resource exists: with a code, or in words that are
// not about a part of it.
func exists(text string) bool {
	words := existsWords.FindStringSubmatch(text)
	return existsCode.MatchString(text) || len(words) > 1 && !partText.MatchString(words[1])
}

// items returns the errors of a list: the items of go-multierror and retry-go, and requests one after another.
// The first item has the text before it.
func items(text string) (list []string) {
	from := 0
	for i, at := range itemText.FindAllStringIndex(text, -1) {
		if i > 0 || strings.Contains(text[at[0]:at[1]], "http") {
			list = append(list, text[from:at[0]])
			from = at[0]
		}
	}
	return append(list, text[from:])
}

var itemText = regexp.MustCompile(`\n[\t ]*(?:\*|#\d+:) |\battempt #?\d+\b|` +
	`[\n,;] ?(?:(?:POST|PUT|PATCH|DELETE) |(?:Post|Put|Patch|Delete) ")https?://`)

// visible returns a text without what is quoted and without JSON. The rest begins with JSON that is cut off at
// the end of the text: the status of such an answer stands before it.
func visible(text string) (answer, rest string) {
	text = quotedStatus.ReplaceAllString(quotedCode.ReplaceAllString(text, "$1=$2"), "$1 $2")
	text = quotedAnswer.ReplaceAllString(text, `$1 "`)
	for from := 0; ; {
		at := jsonObject.FindStringIndex(text[from:])
		if at == nil {
			return hideQuoted(text), ""
		}
		from += at[0]
		object := map[string]any{}
		d := json.NewDecoder(strings.NewReader(text[from:]))
		switch err := d.Decode(&object); {
		case err == nil:
			// It counts as little as a status in a name.
			text = fmt.Sprintf("%s (%d).%s", text[:from], statusIn(object), text[from+int(d.InputOffset()):])
		case errors.Is(err, io.ErrUnexpectedEOF):
			return hideQuoted(text[:from]), hideQuoted(text[from:])
		default:
			from++ // It is no JSON.
		}
	}
}

// statusIn returns the status that an answer has as a number, or zero. Errors of some SDKs have no other text.
func statusIn(answer map[string]any) (status int) {
	for key, value := range answer {
		switch v := value.(type) {
		case float64:
			if statusKey.MatchString(key) && v >= 400 && v < 600 {
				status = max(status, int(v))
			}
		case map[string]any:
			if key == "error" {
				status = max(status, statusIn(v))
			}
		}
	}
	return status
}

// hideQuoted returns a text without the parts that are quoted. A quote in a word opens and closes none.
func hideQuoted(text string) string {
	return singleQuoted.ReplaceAllString(doubleQuoted.ReplaceAllString(text, `""`), "")
}

var (
	jsonObject = regexp.MustCompile(`\{\s*"`)
	statusKey  = regexp.MustCompile(`(?i)^(?:http_?)?(?:status)?_?(?:code)?$`)

	// A code or a status in quotes stays, as in Code="TooManyRequests" and status "502 Bad Gateway". Terraform's
	// provider for OVH quotes the whole answer.
	quotedCode   = regexp.MustCompile(`\b((?i:error ?code|code))\s?[=:]\s?"([A-Za-z][\w.]*)"`)
	quotedAnswer = regexp.MustCompile(`"(\w+ API error \(status code [45]\d\d\))`)
	quotedStatus = regexp.MustCompile(`(?i)\b(status(?: ?code)?|response)[\s:=]{1,2}"([45]\d\d\b[^"]*)"`)

	doubleQuoted = regexp.MustCompile("\\B\"(?:\\\\.|[^\"\\\\])*\"\\B|\\B`[^`]*`\\B")
	singleQuoted = regexp.MustCompile(`\B'(?:[^']|\b'\b){2,}'\B|\bInvalid value: [^:"]*`) // Kubernetes' has no quotes.
)

package failure

import (
	"encoding/json"
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
// refusal. Of words, a lost answer decides. In a list of errors each may be about a request of its own, so the one decides that leaves most
// open.
func OfText(text string) Meaning {
	var m Meaning
	items := []string{text}
	if list := errorList.FindStringIndex(text); list != nil {
		items = strings.Split(text[list[1]:], "\n\t* ")
	}
	for _, item := range items {
		text, cut := visible(item)
		// The status of an answer stands before its body. What a body that is cut off quotes is no status then.
		if e := strongest(hideQuoted(text[:cut])); e.rank >= placed {
			text = text[:cut]
		}
		m = m.worse(ofItem(hideQuoted(text)))
	}
	return m
}

// errorList matches the begin of the text of package go-multierror.
var errorList = regexp.MustCompile(`\b\d+ errors? occurred:`)

func ofItem(text string) Meaning {
	m := Meaning{}
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
	switch {
	case e.code == http.StatusTooManyRequests, throttleText.MatchString(sent):
		m.Throttled = true
	case e.code == http.StatusForbidden, e.rank == 0:
		m.Throttled = throttleWords.MatchString(sent)
	}
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

// Evidence in a text is a status or a word.
type evidence struct {
	rank   int
	at     int // its position
	answer Answer
	code   int // the HTTP status, if any
}

// The ranks of evidence. An object's name often stands before a status, and is not quoted.
const (
	word     = iota + 1 // also a number with the words of its status
	placed              // a status at the begin, after a colon, or after a verb
	keyed               // a status after a word such as StatusCode
	accepted            // the request was accepted, and its result was waited for
)

// strongest returns the evidence that decides.
func strongest(text string) evidence {
	best := evidence{}
	take := func(e evidence) {
		first := e.at < best.at
		if e.rank == word && (e.answer == NoAnswer) != (best.answer == NoAnswer) {
			first = e.answer == NoAnswer
		}
		if e.answer != Unsaid && (e.rank > best.rank || e.rank == best.rank && first) {
			best = e
		}
	}
	for _, f := range forms() {
		for _, at := range f.text.FindAllStringSubmatchIndex(text, -1) {
			if code, ok := statusAt(text, at[2], at[3], f.strict); ok {
				take(evidence{rank: f.rank, at: at[2], answer: ofStatus(code), code: code})
			}
		}
	}
	for _, at := range grpcText.FindAllStringSubmatchIndex(text, -1) {
		take(evidence{rank: keyed, at: at[0], answer: ofGRPCText(text[at[2]:at[3]], text[at[3]:])})
	}
	for _, at := range urlText.FindAllStringIndex(text, -1) {
		// net/http's error for a request. Without a known cause it may have been sent.
		if cause := text[at[1]:]; !unsentCause.MatchString(cause) && !answeredCause.MatchString(cause) {
			take(evidence{rank: word, at: at[0], answer: NoAnswer})
		}
	}
	if at := lostText.FindStringIndex(text); at != nil {
		take(evidence{rank: word, at: at[0], answer: NoAnswer})
	}
	if at := acceptedText.FindStringIndex(text); at != nil {
		take(evidence{rank: accepted, at: at[0], answer: NoAnswer})
	}
	return best
}

// A form matches the numbers that may be HTTP statuses, by what stands before them. After a number of a
// strict form no other words may follow than those that follow a status.
type form struct {
	rank   int
	strict bool
	text   *regexp.Regexp
}

func forms() []form {
	return []form{
		{keyed, false, statusForm},
		{keyed, false, httpForm},
		{keyed, false, codeForm},
		{keyed, false, urlForm},
		{placed, false, verbForm},
		{placed, false, firstForm},
		{placed, true, lineForm},
		{word, true, reasonForm},
	}
}

var (
	// "StatusCode: 503", "status=409", "HTTP status 429", "unexpected status code got: 502"
	statusForm = regexp.MustCompile(
		`(?i)status(?:[\s_-]*code)?(?:\s(?:was|is|of|got|received|returned))?[\s:=(\[]{0,3}([45]\d\d)`)
	// "HTTP 503", "HTTP/1.1 500", "http error: 503", "HTTP response code 504"
	httpForm = regexp.MustCompile(
		`(?i)\bhttps?(?:/\d(?:\.\d)?)?(?:\s(?:response\s)?(?:error|code|response))?[\s:=(\[]{1,3}([45]\d\d)`)
	// "googleapi: Error 429:", "RESPONSE 503:", "Code: 429", "error code [409]"
	codeForm = regexp.MustCompile(
		`(?i)(?:\b|_)(?:error|err|response|code)(?:[\s_]?code)?[\s:=(\[]{1,3}([45]\d\d)`)
	// "POST https://h/x: 422 Validation Failed", "[POST /vms][409] createVM", "but got 504 instead"
	urlForm = regexp.MustCompile(`(?:(?:https?://[^\s"]+|""): |(?:^|\]|: )\[|\bbut got )([45]\d\d)`)
	// "server returned 502", "request failed with 500", "responded with a 503"
	verbForm = regexp.MustCompile(`(?i)\b(?:got|gave|returned|received|with|failed|answered|responded|replied)` +
		`[\s:(]{1,2}(?:an? )?([45]\d\d)`)
	// "502 \nPOST", "cannot create: 409 Conflict", "name Many 502 Bad Gateway"
	firstForm  = regexp.MustCompile(`^([45]\d\d)`)
	lineForm   = regexp.MustCompile(`(?:: |\n[\t ]*)([45]\d\d)`)
	reasonForm = regexp.MustCompile(`\b([45]\d\d)[ :-]{1,3}[A-Z][a-z]`)
)

// statusAt returns the number in text[from:to] if it is an HTTP status, by what follows it: not a unit and
// nothing that is counted, as in "got 500 items" and "503 GB".
func statusAt(text string, from, to int, strict bool) (int, bool) {
	code, _ := strconv.Atoi(text[from:to])
	reason := http.StatusText(code)
	switch {
	case reason == "" && code != 499 && code != 509 && (code < 520 || code > 530) && code < 595:
		return 0, false
	case numberGoesOn.MatchString(text[to:]), unitText.MatchString(text[to:]) && !verbText.MatchString(text[to:]):
		return 0, false
	case strict:
		after := strings.TrimLeft(text[to:], " -:")
		return code, reason != "" && strings.HasPrefix(strings.ToLower(after), strings.ToLower(reason)) ||
			strictText.MatchString(text[to:])
	}
	return code, true
}

var (
	numberGoesOn = regexp.MustCompile(`^(?:\w|[.,]\d)`)
	unitText     = regexp.MustCompile(`^[ -]?(?:[KMGTP]i?B|[kMG]?Hz|of|to|[a-z]+s)\b`)
	verbText     = regexp.MustCompile(`^ (?:does|was|is|has|status|as|this)\b`)
	strictText   = regexp.MustCompile(`^(?:$|\s*$|:|\s*\n|  | \(| - | \{)`)
)

// lostText matches the texts of time-outs, of lost connections, of servers that failed, and of clients that
// have tried several times: one of the requests may have been carried out.
var lostText = regexp.MustCompile(`(?i)` +
	`context deadline exceeded|context canceled|request canceled|operation was canceled|` +
	`timed out|i/o timeout|timeout awaiting|client\.timeout|request ?timeout|no recent network activity|` +
	`(?:giving|gave) up after \d+ attempt|exceeded maximum number of attempts|retry quota exceeded|` +
	`\bEOF\b|unexpected end of JSON input|malformed (?:http|chunked)|gzip: invalid|flate: corrupt|zlib: invalid|` +
	`closed (?:response )?body|received message(?: after decompression)? larger than max|` +
	`connection reset|connection abort|broken pipe|closed network connection|forcibly closed|server closed|` +
	`connection lost|connection broken|connection force closed|connection error: [A-Z_]+\b|` +
	`\b(?:read|write) tcp\d? \S+: |(?:local|remote) error: tls|` +
	`GOAWAY|stream error|http2: |\bH3_[A-Z]|\bH3 error|application error 0x|stream \d+ cancell?ed by |` +
	`internal server ?error|bad gateway|service ?unavailable|gateway time-?out|internal error occurred|` +
	`server is currently unable to handle the request|in the time allotted|an error on the server .*prevented`)

// acceptedText matches the texts of clients that have waited for the result of a request in vain.
var acceptedText = regexp.MustCompile(
	`(?i)time-?out (?:while )?waiting for|timed out waiting for|exceeded max(?:imum)? wait time|exceeded wait attempts`)

// grpcText matches the text of a gRPC status.
var grpcText = regexp.MustCompile(`\bcode = ([A-Z][A-Za-z]+)\b`)

// ofGRPCText returns the answer of a gRPC status by its name and message.
func ofGRPCText(name, message string) Answer {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return ofGRPC(status.New(c, message)).Answer
		}
	}
	return Unsaid
}

// urlText matches the begin of the text of a url.Error, up to its cause.
var urlText = regexp.MustCompile(`\b(Get|Head|Post|Put|Patch|Delete) "": `)

// unsentCause matches the causes that net/http gives before it sends a request, answeredCause those
// that are no lost answers.
var (
	unsentCause = regexp.MustCompile(`^(unsupported protocol scheme|http: no Host in request URL|http: nil Request|` +
		`net/http: (invalid|nil|TLS handshake timeout)|http: server gave HTTP response to HTTPS client|tls: failed to verify certificate|x509: )`)
	answeredCause = regexp.MustCompile(`^(proxyconnect |4\d\d |\W|$)`)
)

// unsentText matches the text of a connection that was not made, loginText the texts of SDKs that could not
// log in, for any reason: they do not send the request then.
var (
	unsentText = regexp.MustCompile(`dial (tcp|udp)\d?( \S+)?:` +
		`( lookup \S+( on \S+)?:( (dial|read|write) udp\d?( \S+)?:)?)?` +
		` (i/o timeout|operation was canceled|no such host|server misbehaving|connect: [a-z ]+)|` +
		`unsupported protocol scheme|http: no Host in request URL|net/http: TLS handshake timeout|` +
		`http: server gave HTTP response to HTTPS client|tls: failed to verify certificate: [a-z0-9: ]*`)
	loginText = regexp.MustCompile(`\bget (identity|credentials): |failed to refresh cached credentials|` +
		`failed to retrieve (jwt|credentials)|\bNoCredentialProviders\b|` +
		`\b[A-Z]\w+Credential(:| authentication failed)|\boauth2: `)
)

// exists reports whether a text says that the external resource exists: with a code, or in words that are
// not about a part of it.
func exists(text string) bool {
	words := existsWords.FindStringSubmatch(text)
	return existsText.MatchString(text) || len(words) > 1 && !partText.MatchString(words[1])
}

var (
	existsText  = regexp.MustCompile(`\b[A-Za-z]*[aA]lready(?:Exists?|Owned)\w*\b|\bALREADY_EXISTS\b`)
	existsWords = regexp.MustCompile(`(?i)(\w*)(?: with (?:this|that|the same) \w+)?\W*\balready exists?\b`)
	partText    = regexp.MustCompile(`(?i)(rule|permission|member|membership|attachment|binding|association|entry|` +
		`grant|tag|route|statement|link|peering)$`)
)

// callerText matches AWS's codes for refused credentials and for "not found".
var callerText = regexp.MustCompile(`(?i)\bapi error [\w.]*(` + callerCodes + `)`)

// throttleText matches a code of throttling where a code stands, throttleWords words for it.
var (
	throttleText = regexp.MustCompile(`(?:^|api error |[:=] ?|, |\n)(?:Throttling|` + throttleCodes +
		`)(?:$|[:,.\n])|(?i:code)=` + throttleCodes + `\b|\(rate_limit_exceeded\)`)

	throttleWords = regexp.MustCompile(
		`(?i)\btoo many requests\b|\brate ?limit\b[^.]{0,30}exceeded|exceeded\b[^.]{0,20} rate ?limit`)
)

// visible returns a text without complete values of JSON, and the length of what stands before JSON that is cut
// off at its end. A code in quotes, as in Code="TooManyRequests", stays.
func visible(text string) (out string, cut int) {
	text = quotedCode.ReplaceAllString(text, "$1=$2")
	for from := 0; ; {
		at := jsonObject.FindStringIndex(text[from:])
		if at == nil {
			return text, len(text)
		}
		from += at[0]
		var object json.RawMessage
		d := json.NewDecoder(strings.NewReader(text[from:]))
		switch err := d.Decode(&object); {
		case err == nil:
			text = text[:from] + text[from+int(d.InputOffset()):]
		case errors.Is(err, io.ErrUnexpectedEOF):
			return text, from
		default:
			from++ // It is no JSON.
		}
	}
}

// hideQuoted returns a text without the parts that are quoted. A quote in a word opens and closes none.
func hideQuoted(text string) string {
	text = doubleQuoted.ReplaceAllString(text, `""`)
	return singleQuoted.ReplaceAllString(text, "")
}

var (
	quotedCode   = regexp.MustCompile(`\b((?i:error ?code|code))\s?[=:]\s?"([A-Za-z][\w.]*)"`)
	jsonObject   = regexp.MustCompile(`\{\s*"`)
	doubleQuoted = regexp.MustCompile("\\B\"(?:\\\\.|[^\"\\\\])*\"\\B|\\B`[^`]*`\\B")
	singleQuoted = regexp.MustCompile(`\B'(?:[^']|\b'\b)*'\B`)
)

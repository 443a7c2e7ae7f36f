package failure

import (
	"os"
	"strings"
	"testing"
)

// TestOfText reads the texts of testdata/texts.tsv: a meaning, the client that the text is from, the text.
func TestOfText(t *testing.T) {
	corpus, err := os.ReadFile("testdata/texts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(corpus)), "\n") {
		column := strings.SplitN(line, "\t", 3)
		if len(column) != 3 {
			t.Fatalf("testdata/texts.tsv:%d: want a meaning, a client and a text: got %q", i+1, line)
		}
		text := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(column[2])
		if got := nameOf(OfText(text)); got != column[0] {
			t.Errorf(
				"testdata/texts.tsv:%d: %s's error should be %s: got %s for\n%s", i+1, column[1], column[0], got, text,
			)
		}
	}
}

// TestGrammar reads the examples of the grammar.
func TestGrammar(t *testing.T) {
	for i, line := range strings.Split(strings.TrimSpace(grammarText), "\n") {
		column := strings.Split(line, "\t")
		if line == "" || line[0] == '#' {
			continue
		}
		if len(column) != 3 {
			t.Fatalf("grammar.tsv:%d: want a kind, an expression and an example: got %q", i+1, line)
		}
		example := strings.ReplaceAll(strings.ReplaceAll(column[2], `\n`, "\n"), `\t`, "\t")
		if !grammar()[column[0]].MatchString(example) {
			t.Errorf("grammar.tsv:%d: %s should match its example %q", i+1, column[0], example)
		}
	}
}

// nameOf returns the meaning as the corpus names it. A request that was not served was refused for a create,
// and one without a word was not carried out, as in upstream.
func nameOf(m Meaning) string {
	switch {
	case m.Throttled:
		return "throttled"
	case m.Answer == NoAnswer:
		return "noanswer"
	case m.Exists:
		return "exists"
	case m.Answer != Unsaid:
		return "refused"
	default:
		return "none"
	}
}

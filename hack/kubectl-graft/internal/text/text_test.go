package text

import (
	"os/exec"
	"testing"
)

func TestShellQuote(t *testing.T) {
	for _, tc := range []struct{ reason, word, want string }{
		{"A plain word needs no quotes.", "b-1", "b-1"},
		{"An empty word is a word.", "", "''"},
		{"A shell expands nothing.", "a $b;`c`", "'a $b;`c`'"},
		{"A quote is quoted.", "it's", `'it'\''s'`},
		{"What a terminal does not show is escaped.", "b\t1\u202e", `$'b\x091\xe2\x80\xae'`},
		{"So is all else that has a meaning there.", `a'\` + "\n", `$'a\'\\\x0a'`},
		{"A message keeps single spaces only.", "my  ctx", `$'my\x20\x20ctx'`},
	} {
		got := ShellQuote(tc.word)
		if got != tc.want || Clean(got) != got {
			t.Errorf("%s want %s, got %s", tc.reason, tc.want, got)
		}
		bash, err := exec.LookPath("bash")
		if err != nil {
			continue
		}
		if read,
			err := exec.CommandContext(t.Context(), bash, "-c", "printf %s "+got).Output(); string(read) != tc.word {
			t.Errorf("%s bash reads %q as %q, not as %q: %v", tc.reason, got, read, tc.word, err)
		}
	}
}

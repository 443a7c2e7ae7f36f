package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRun(t *testing.T) {
	complete := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if err := os.WriteFile(filepath.Join(complete, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	type want struct {
		code   int
		stdout string
		stderr string // a part of it
	}
	cases := map[string]struct {
		reason string
		assets string
		args   []string
		want   want
	}{
		"UnknownCommand": {
			reason: "An unknown command is named.",
			args:   []string{"biuld"},
			want:   want{code: 2, stderr: `there is no command "biuld"`},
		},
		"Build": {
			reason: "Build prints the folder and nothing else.",
			assets: complete,
			args:   []string{"build"},
			want:   want{stdout: complete + "\n"},
		},
		"BuildFails": {
			reason: "A failure goes to standard error.",
			assets: filepath.Join(complete, "none"),
			args:   []string{"build"},
			want:   want{code: 1, stderr: "no executable etcd"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", tc.assets)
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), tc.args, &stdout, &stderr)
			if diff := cmp.Diff(tc.want.code, code); diff != "" {
				t.Errorf("\n%s\nexit code: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want.stdout, stdout.String()); diff != "" {
				t.Errorf("\n%s\nstdout: -want, +got:\n%s", tc.reason, diff)
			}
			if !strings.Contains(stderr.String(), tc.want.stderr) {
				t.Errorf("\n%s\nstderr: want %q, got:\n%s", tc.reason, tc.want.stderr, &stderr)
			}
		})
	}
}

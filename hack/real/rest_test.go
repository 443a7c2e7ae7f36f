//go:build real

package real

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

const (
	manyRoles = 3000

	restPoll, restFor = time.Minute, 2 * time.Minute // Nothing changes for restFor.

	createsTake = 30 * time.Minute

	// restRate lets a provider reconcile all roles in a poll interval. PostgreSQL accepts
	// 100 connections, and a reconcile takes one.
	restRate = "80"

	pairs = 2
)

type cost struct {
	requests

	reconciles, provider, api float64 // CPU times are seconds.
	memory                    float64 // Of the provider, in bytes.
}

// TestRest measures the cost of many roles at rest. Both sides run at the same time, so
// that other load on the machine slows both.
func TestRest(t *testing.T) {
	var (
		table strings.Builder
		mu    sync.Mutex
	)
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "pair\t\treconciles\trequests\tAPI server CPU\tprovider CPU\ta reconcile\tmemory")
	both := sides(t)
	for pair := range pairs {
		t.Run(fmt.Sprint(pair+1), func(t *testing.T) {
			for _, s := range both {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.begin(t)
					before, after := s.measureRest(t)
					n, cpu := after.reconciles-before.reconciles, after.provider-before.provider
					said := after.requests.since(before.requests)
					row := fmt.Sprintf("%d\t%s\t%.0f\t%s\t%.1f s\t%.1f s\t%.1f ms\t%.0f MB",
						pair+1, s.name, n, said, after.api-before.api, cpu, 1000*cpu/n, after.memory/1e6)
					t.Log(row)
					mu.Lock()
					defer mu.Unlock()
					fmt.Fprintln(w, row)
					if want := float64(restFor/restPoll-1) * manyRoles; n < want {
						t.Errorf("want at least %.0f reconciles, got %.0f", want, n)
					}
					if s.name == graftSide && said != "none" {
						t.Errorf("want no requests while nothing changes, got %s", said)
					}
				})
			}
		})
	}
	_ = w.Flush()
	t.Logf("provider-sql, %d roles, poll interval %s, %s at rest\n%s", manyRoles, restPoll, restFor, &table)
}

func (s *side) measureRest(t *testing.T) (before, after cost) {
	t.Helper()
	s.configure(t)
	for i := range manyRoles {
		s.create(t, object("Role", i, map[string]any{"privileges": map[string]any{"login": true}}))
	}

	// Those that are ready are not observed again while others are created.
	s.start(t, "--poll", createsTake.String(), "--max-reconcile-rate", restRate, "--metrics-bind-address", "0")
	if !within(createsTake, func() bool {
		time.Sleep(time.Second) // To ask takes from what is waited for.
		return s.db.exists(t) == fmt.Sprintf("%d roles, 0 databases, 0 grants", manyRoles) &&
			s.all(t) == fmt.Sprintf("%d ready", manyRoles)
	}) {
		t.Fatalf("not all roles were ready within %s: %s; %s", createsTake, s.db.exists(t), s.all(t))
	}
	s.kill()
	metrics := net.JoinHostPort("127.0.0.1", freePort(t))
	s.start(t, "--poll", restPoll.String(), "--max-reconcile-rate", restRate, "--metrics-bind-address", metrics)
	time.Sleep(2 * restPoll) // Each has been observed twice since.
	before = s.cost(t, metrics)
	time.Sleep(restFor)
	return before, s.cost(t, metrics)
}

func (s *side) cost(t *testing.T, metrics string) cost {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metrics+"/metrics", nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	api, err := s.plane.CPU()
	must(t, err)
	return cost{
		requests: s.requests(t, group), api: api.Seconds(),
		reconciles: sum(string(text), "controller_runtime_reconcile_total"),
		provider:   sum(string(text), "process_cpu_seconds_total"),
		memory:     sum(string(text), "process_resident_memory_bytes"),
	}
}

func sum(metrics, name string) float64 {
	total := 0.0
	for line := range strings.Lines(metrics) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of, _, _ := strings.Cut(series, "{"); of != name {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			total += n
		}
	}
	return total
}

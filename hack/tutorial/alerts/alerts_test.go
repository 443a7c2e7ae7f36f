package alerts

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const file = "../../../docs/examples/provider/deploy/alerts.yaml"

// Prometheus should read the rules. Each alert should fire for its problem, and not for a provider
// without problems.
func TestAlerts(t *testing.T) {
	well := `
graft_async_interrupted_total{type="create",resolution="unknown"} 0x200
graft_async_interrupted_total{type="create",resolution="found"} 0+1x200
graft_async_results_lost_total 0x200
graft_async_results_unstored 0x200
graft_async_operations_total{type="create",outcome="failed"} 0x200
graft_async_operations_total{type="create",outcome="succeeded"} 0+5x200
graft_async_operations_total{type="create",outcome="unknown"} 0x200
graft_async_operations_running{type="create"} 3x200
crossplane_managed_resource_exists{gvk="example.org/v1, Kind=Database"} 5x200
crossplane_managed_resource_synced{gvk="example.org/v1, Kind=Database"} 5x200
graft_throttled_total{provider_config_kind="ProviderConfig"} 0+1x2 2x198
graft_limited_reconciles_total{provider_config_kind="ProviderConfig"} 0+20x10 200x190
graft_limit_tokens{provider_config_kind="ProviderConfig"} 20x200
graft_terminal_errors{gvk="example.org/v1, Kind=Database"} 0x200
`

	// Series a minute that are not well, by alert.
	cases := map[string]string{
		"CreateResultUnknown":          `graft_async_interrupted_total{type="create",resolution="unknown"} 0x115 1x85`,
		"ExternalResourceWithoutOwner": `graft_async_results_lost_total 0x100 1x100`,
		"ResultsUnstored":              `graft_async_results_unstored 2x200`,
		"OperationsFail": `graft_async_operations_total{type="create",outcome="failed"} 0+3x200
graft_async_operations_total{type="create",outcome="succeeded"} 0+1x200`,
		"OutcomeUnknown":  `graft_async_operations_total{type="update",outcome="unknown"} 0+1x200`,
		"OperationsQueue": `graft_async_operations_running{type="create"} 100x200`,
		"NotSynced": `crossplane_managed_resource_exists{gvk="example.org/v1, Kind=Database"} 5x200
crossplane_managed_resource_synced{gvk="example.org/v1, Kind=Database"} 3x200`,
		"AccountThrottled": `graft_throttled_total{provider_config_kind="ProviderConfig"} 0+2x200`,
		"CallsWait": `graft_limit_tokens{provider_config_kind="ProviderConfig"} 5x200
graft_limited_reconciles_total{provider_config_kind="ProviderConfig"} 0+60x200`,
		"TerminalErrors": `graft_terminal_errors{gvk="example.org/v1, Kind=Database"} 2x200`,
	}
	groups, errs := rulefmt.ParseFile(file, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	seen := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			seen++
			t.Run(r.Alert, func(t *testing.T) {
				ill, ok := cases[r.Alert]
				if !ok {
					t.Fatal("nothing raises this alert")
				}
				if r.Annotations["summary"] == "" || r.Annotations["runbook"] == "" || r.Labels["severity"] == "" {
					t.Error("it needs a summary, a runbook and a severity")
				}
				if n := firing(t, well, r.Expr); n != 0 {
					t.Errorf("a provider that is well raises it: %d times", n)
				}
				if n := firing(t, ill, r.Expr); n != 1 {
					t.Errorf("want it raised once, got %d times", n)
				}
			})
		}
	}
	if seen != len(cases) {
		t.Errorf("want %d alerts, got %d", len(cases), seen)
	}
}

// firing returns how many series an expression has two hours after the beginning of
// the series.
func firing(t *testing.T, series, expr string) int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(strings.TrimSpace(series), "\n", "\n  "))
	defer func() { _ = storage.Close() }()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	q, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	v, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(v)
}

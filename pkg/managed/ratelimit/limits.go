package ratelimit

import (
	"context"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/is"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Limits limit the calls of an external system for each account. Create them once, and
// pass them to the reconcilers of all kinds of the provider. By default, each provider config
// is a separate account.
//
// Limits also collect metrics: register them with controller-runtime's metrics.Registry.
// They are safe for concurrent use.
type Limits struct {
	accounts *limit.Accounts
	key      func(ctx context.Context, mg resource.Managed) (string, error)

	mu       sync.Mutex
	terminal map[schema.GroupVersionKind]map[client.ObjectKey]struct{}
}

// A Option configures Limits.
type Option func(*Limits)

// New returns limits of perSecond calls for each account, with bursts of up to burst
// calls. Choose both a little lower than the limits of the external system.
//
// It panics if perSecond is not a finite number greater than 0, or burst is less than 1.
func New(perSecond float64, burst int, o ...Option) *Limits {
	as, err := limit.NewAccounts(perSecond, burst)
	if err != nil {
		panic(errors.Wrap(err, "ratelimit.New was given a limit that cannot work"))
	}
	is.MustHaveNoNil(o, "ratelimit.New", 3)
	l := &Limits{accounts: as}
	for _, ro := range o {
		ro(l)
	}
	return l
}

// WithAccountKey sets the function that returns the account of a managed resource. Managed
// resources with the same key share a limit. fn is called before each reconcile, from
// several goroutines at the same time, and may read the provider config from a cache. If it
// returns an error or an empty key, the provider config is the account. If it panics, the
// managed resource is not reconciled, and Synced reports it.
//
// WithAccountKey panics if fn is nil.
func WithAccountKey(fn func(ctx context.Context, mg resource.Managed) (string, error)) Option {
	is.MustNotBeNil(fn, "ratelimit.WithAccountKey")
	return func(l *Limits) { l.key = fn }
}

// Charge takes n more tokens of the account of the managed resource that ctx belongs to, for a
// call of an external client that makes several requests. It does not wait; later reconciles
// wait. ctx is the context of a call of the external client or its connector. Charge does
// nothing with another context, without With, or if n is less than 1.
func Charge(ctx context.Context, n int) { seam.From(ctx).Meter().ChargeMore(n) }

// limitLabels returns the values of the label provider_config_kind.
func limitLabels() []string {
	return []string{limit.KindProviderConfig, limit.KindClusterProviderConfig, limit.KindOther}
}

// limitDescs returns the descriptions of the metrics.
func limitDescs() (limited, throttled, tokens, terminal *prometheus.Desc) {
	kind := []string{"provider_config_kind"}
	return prometheus.NewDesc(
			"graft_limited_reconciles_total", "Reconciles that had to wait for a token of their account.", kind, nil,
		),
		prometheus.NewDesc(
			"graft_throttled_total", "Calls that the external system refused because it limits calls.", kind, nil,
		),
		prometheus.NewDesc(
			"graft_limit_tokens",
			"Tokens of the account that has fewest. Less than 0: calls that did not wait are paid for by later ones.",
			kind, nil,
		),
		prometheus.NewDesc(
			"graft_terminal_errors",
			"Managed resources that are not created or updated again until something changes.", []string{"gvk"}, nil,
		)
}

// Describe the metrics.
func (l *Limits) Describe(ch chan<- *prometheus.Desc) {
	limited, throttled, tokens, terminal := limitDescs()
	for _, d := range []*prometheus.Desc{limited, throttled, tokens, terminal} {
		ch <- d
	}
}

// Collect the metrics.
func (l *Limits) Collect(ch chan<- prometheus.Metric) {
	limited, throttled, tokens, terminal := limitDescs()
	now := time.Now()
	for _, kind := range limitLabels() {
		c := l.accounts.Counts(kind)
		ch <- prometheus.MustNewConstMetric(limited, prometheus.CounterValue, float64(c.Limited.Load()), kind)
		ch <- prometheus.MustNewConstMetric(throttled, prometheus.CounterValue, float64(c.Throttled.Load()), kind)
		if n, ok := l.accounts.Tokens(kind, now); ok {
			ch <- prometheus.MustNewConstMetric(tokens, prometheus.GaugeValue, n, kind)
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for gvk, of := range l.terminal {
		ch <- prometheus.MustNewConstMetric(terminal, prometheus.GaugeValue, float64(len(of)), gvk.String())
	}
}

// setTerminal records whether a managed resource has a terminal error.
func (l *Limits) setTerminal(gvk schema.GroupVersionKind, key client.ObjectKey, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.terminal == nil {
		l.terminal = map[schema.GroupVersionKind]map[client.ObjectKey]struct{}{}
	}
	if l.terminal[gvk] == nil {
		l.terminal[gvk] = map[client.ObjectKey]struct{}{}
	}
	if is {
		l.terminal[gvk][key] = struct{}{}
	} else {
		delete(l.terminal[gvk], key)
	}
}

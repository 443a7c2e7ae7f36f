package sample

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

type settings struct {
	createTokens       bool
	deterministicNames bool
	background         bool

	configs client.Reader
	tracker resource.ModernTracker

	open func(ctx context.Context, token string) (cloud.Client, error)
}

// An Option configures a connector.
type Option func(*settings)

// WithCreateTokens makes every create carry the managed resource's UID as
// idempotency token.
func WithCreateTokens() Option { return func(s *settings) { s.createTokens = true } }

// WithDeterministicNames makes a create ask for the external name as id, if one
// is set. It is for reconcilers whose initializers set one.
func WithDeterministicNames() Option { return func(s *settings) { s.deterministicNames = true } }

// WithBackground makes an Async connector run its operations in goroutines, which
// Async.Wait waits for. Without it they run in Async.Finish. It does nothing to a
// Sync connector.
func WithBackground() Option { return func(s *settings) { s.background = true } }

// WithSessions makes the connector log in with open, for instance to a cloud in
// another process. The cloud that the connector was given is not used, and may be
// nil.
func WithSessions(open func(ctx context.Context, token string) (cloud.Client, error)) Option {
	return func(s *settings) { s.open = open }
}

func newSettings(o []Option) settings {
	s := settings{}
	for _, fn := range o {
		fn(&s)
	}
	return s
}

// Calls count how often a connector's clients were used. They are safe for concurrent
// use.
type Calls struct{ disconnects atomic.Int64 }

// Disconnects returns how many of the connector's clients were disconnected.
func (c *Calls) Disconnects() int { return int(c.disconnects.Load()) }

// connect logs in and checks that the managed resource is one of ours.
func (s settings) connect(ctx context.Context, c *cloud.Cloud, mg resource.Managed) (cloud.Client, error) {
	if _, err := instance(mg); err != nil {
		return nil, err
	}
	token, err := s.login(ctx, mg)
	if err != nil {
		return nil, err
	}
	open := s.open
	if open == nil {
		open = func(ctx context.Context, token string) (cloud.Client, error) { return c.NewSession(ctx, token) }
	}
	session, err := open(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("cannot log in to the cloud: %w", err)
	}
	return session, nil
}

package watchtest

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A Manager is elected when a test says so, and runs nothing. It has only what is
// below.
type Manager struct {
	manager.Manager

	config  *rest.Config
	scheme  *runtime.Scheme
	once    sync.Once
	elected chan struct{}
}

// NewManager returns a manager that isn't elected.
func NewManager(cfg *rest.Config, s *runtime.Scheme) *Manager {
	return &Manager{config: cfg, scheme: s, elected: make(chan struct{})}
}

// Elect elects the manager. It may be called more than once.
func (m *Manager) Elect() { m.once.Do(func() { close(m.elected) }) }

// Elected is closed by Elect.
func (m *Manager) Elected() <-chan struct{} { return m.elected }

// GetConfig returns the config.
func (m *Manager) GetConfig() *rest.Config { return m.config }

// GetScheme returns the scheme.
func (m *Manager) GetScheme() *runtime.Scheme { return m.scheme }

// GetHTTPClient returns a client made from the config.
func (m *Manager) GetHTTPClient() *http.Client {
	c, err := rest.HTTPClientFor(m.config)
	if err != nil {
		panic(err)
	}
	return c
}

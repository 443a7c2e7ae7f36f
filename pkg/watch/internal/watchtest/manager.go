package watchtest

import (
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// A Manager is elected when a test says so, and runs nothing. What a test
// doesn't set is nil.
type Manager struct {
	manager.Manager

	Config     *rest.Config
	Scheme     *runtime.Scheme
	Mapper     meta.RESTMapper
	HTTPClient *http.Client
	Client     client.Client
	Reader     client.Reader
	Cache      cache.Cache
	Recorder   record.EventRecorder
	Logger     logr.Logger

	once    sync.Once
	elected chan struct{}

	mu    sync.Mutex
	added []manager.Runnable
}

// NewManager returns a manager that isn't elected.
func NewManager(cfg *rest.Config, s *runtime.Scheme) *Manager {
	return &Manager{Config: cfg, Scheme: s, Logger: logr.Discard(), elected: make(chan struct{})}
}

// Elect elects the manager. It may be called more than once.
func (m *Manager) Elect() { m.once.Do(func() { close(m.elected) }) }

// Elected is closed by Elect.
func (m *Manager) Elected() <-chan struct{} { return m.elected }

// Add remembers the runnable. It isn't run.
func (m *Manager) Add(r manager.Runnable) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.added = append(m.added, r)

	return nil
}

// Added returns what was added.
func (m *Manager) Added() []manager.Runnable {
	m.mu.Lock()
	defer m.mu.Unlock()

	return append([]manager.Runnable(nil), m.added...)
}

// GetConfig returns Config.
func (m *Manager) GetConfig() *rest.Config { return m.Config }

// GetScheme returns Scheme.
func (m *Manager) GetScheme() *runtime.Scheme { return m.Scheme }

// GetRESTMapper returns Mapper.
func (m *Manager) GetRESTMapper() meta.RESTMapper { return m.Mapper }

// GetHTTPClient returns HTTPClient.
func (m *Manager) GetHTTPClient() *http.Client { return m.HTTPClient }

// GetClient returns Client.
func (m *Manager) GetClient() client.Client { return m.Client }

// GetAPIReader returns Reader.
func (m *Manager) GetAPIReader() client.Reader { return m.Reader }

// GetCache returns Cache.
func (m *Manager) GetCache() cache.Cache { return m.Cache }

// GetLogger returns Logger.
func (m *Manager) GetLogger() logr.Logger { return m.Logger }

// GetEventRecorderFor returns Recorder.
func (m *Manager) GetEventRecorderFor(string) record.EventRecorder { return m.Recorder }

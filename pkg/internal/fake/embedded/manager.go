package embedded

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Manager returns a manager whose clients and readers are the server's counted
// client. It is for constructors that take a manager and only ask it for things:
// it has no cache, drops events and runs nothing. What it can't do panics.
func (s *Server) Manager() manager.Manager { return s.ManagerFor(s.Client()) }

// ManagerFor returns a manager like Manager's around another client, for instance
// one with an interceptor.
func (s *Server) ManagerFor(c client.Client) manager.Manager {
	return &stubManager{server: s, client: c}
}

type stubManager struct {
	// The methods that aren't below. It is nil.
	manager.Manager

	server *Server
	client client.Client
}

func (m *stubManager) GetClient() client.Client { return m.client }

func (m *stubManager) GetAPIReader() client.Reader { return m.client }

// Add runs nothing: nothing here waits for an orderly shutdown.
func (m *stubManager) Add(manager.Runnable) error { return nil }

func (m *stubManager) GetScheme() *runtime.Scheme { return m.server.objects.scheme }

func (m *stubManager) GetRESTMapper() meta.RESTMapper { return m.server.objects.mapper }

func (m *stubManager) GetLogger() logr.Logger { return logr.Discard() }

func (m *stubManager) GetConfig() *rest.Config { return &rest.Config{} }

func (m *stubManager) GetHTTPClient() *http.Client { return &http.Client{} }

func (m *stubManager) GetControllerOptions() config.Controller { return config.Controller{} }

// Without a channel the recorder drops its events.
func (m *stubManager) GetEventRecorderFor(string) record.EventRecorder { return &record.FakeRecorder{} }

func (m *stubManager) Elected() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

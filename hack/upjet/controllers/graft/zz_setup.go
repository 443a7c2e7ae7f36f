package controller

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/crossplane/upjet/v2/pkg/controller"

	bucket "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/framework/bucket"
	server "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/framework/server"
	bucketsdk "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/sdk/bucket"
	serversdk "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/sdk/server"
)

// Setup creates all controllers with the supplied logger and adds them to
// the supplied manager.
func Setup(mgr ctrl.Manager, o controller.Options) error {
	for _, setup := range []func(ctrl.Manager, controller.Options) error{
		bucket.Setup,
		server.Setup,
		bucketsdk.Setup,
		serversdk.Setup,
	} {
		if err := setup(mgr, o); err != nil {
			return err
		}
	}
	return nil
}

// SetupGated creates all controllers with the supplied logger and adds them to
// the supplied manager gated.
func SetupGated(mgr ctrl.Manager, o controller.Options) error {
	for _, setup := range []func(ctrl.Manager, controller.Options) error{
		bucket.SetupGated,
		server.SetupGated,
		bucketsdk.SetupGated,
		serversdk.SetupGated,
	} {
		if err := setup(mgr, o); err != nil {
			return err
		}
	}
	return nil
}

// SetupWebhookWithManager registers conversion webhooks for all resource kinds in the group.
func SetupWebhookWithManager(mgr ctrl.Manager) error {
	for _, setup := range []func(ctrl.Manager) error{
		bucket.SetupWebhookWithManager,
		server.SetupWebhookWithManager,
		bucketsdk.SetupWebhookWithManager,
		serversdk.SetupWebhookWithManager,
	} {
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

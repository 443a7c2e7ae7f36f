package upjet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	upjetfake "github.com/crossplane/upjet/v2/pkg/resource/fake"
	"github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	tfsdk "github.com/hashicorp/terraform-plugin-sdk/v2/terraform"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// stub is a connector, and a client, of upjet's shape. It notes what is called.
type stub struct {
	calls   []string
	exists  bool
	connect error
	observe error
	create  func(mg xpresource.Managed) error
	during  func() // Update
}

func (s *stub) note(format string, a ...any) { s.calls = append(s.calls, fmt.Sprintf(format, a...)) }

func (s *stub) Connect(_ context.Context, mg xpresource.Managed) (managed.ExternalClient, error) {
	s.note("connect %q", meta.GetExternalName(mg))
	return s, s.connect
}

func (s *stub) Disconnect(context.Context) error {
	s.note("disconnect")
	return nil
}

func (s *stub) Observe(context.Context, xpresource.Managed) (managed.ExternalObservation, error) {
	s.note("observe")
	return managed.ExternalObservation{ResourceExists: s.exists, ResourceUpToDate: s.exists}, s.observe
}

func (s *stub) Create(_ context.Context, mg xpresource.Managed) (managed.ExternalCreation, error) {
	s.note("create")

	if s.create != nil {
		return managed.ExternalCreation{}, s.create(mg)
	}

	return managed.ExternalCreation{}, nil
}

func (s *stub) Update(context.Context, xpresource.Managed) (managed.ExternalUpdate, error) {
	s.note("update")

	if s.during != nil {
		s.during()
	}

	return managed.ExternalUpdate{}, nil
}

func (s *stub) Delete(context.Context, xpresource.Managed) (managed.ExternalDelete, error) {
	s.note("delete")
	return managed.ExternalDelete{}, nil
}

// rig is a connector around a stub.
type rig struct {
	*stub

	managed.ExternalConnector

	states *tjcontroller.OperationTrackerStore
}

// Connect is that of the connector.
func (r *rig) Connect(ctx context.Context, mg xpresource.Managed) (managed.ExternalClient, error) {
	return r.ExternalConnector.Connect(ctx, mg)
}

func newRig(t *testing.T, s *stub, f Finder) *rig {
	t.Helper()

	scheme := runtime.NewScheme()
	must(t, upjetfake.AddToScheme(scheme))

	r := &rig{stub: s, states: tjcontroller.NewOperationStore(logging.NewNopLogger())}
	r.ExternalConnector = NewConnector(s, Terraform{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(),
		Setup: func(context.Context, client.Client, xpresource.Managed) (terraform.Setup, error) {
			return terraform.Setup{Version: "1"}, nil
		},
		States: r.states,
		Finder: f,
		Resource: &config.Resource{ExternalName: config.IdentifierFromProvider, TerraformResource: &schema.Resource{
			Schema: map[string]*schema.Schema{"size": {Type: schema.TypeInt, Optional: true}},
		}},
	})

	return r
}

func instance(name string) *upjetfake.Terraformed {
	mg := upjetfake.NewTerraformed()
	mg.SetUID("u-1")

	if name != "" {
		meta.SetExternalName(mg, name)
	}

	return mg
}

func TestConnector_Calls(t *testing.T) {
	cases := map[string]struct {
		reason string
		stub   *stub
		do     func(ctx context.Context, t *testing.T, c managed.ExternalClient, mg xpresource.Managed) error
		want   []string
		err    string
	}{
		"Nothing": {
			reason: "a reconcile that finds an operation running neither connects nor observes",
			stub:   &stub{},
			do:     func(context.Context, *testing.T, managed.ExternalClient, xpresource.Managed) error { return nil },
		},
		"Create": {
			reason: "the client that has planned the create makes it",
			stub:   &stub{},
			do: func(ctx context.Context, t *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Observe(ctx, mg)
				must(t, err)

				_, err = c.Create(ctx, mg)

				return err
			},
			want: []string{`connect ""`, "observe", "create", "disconnect"},
		},
		"CreateWithoutObserve": {
			reason: "a create that is repeated after a crash needs a plan, too",
			stub:   &stub{},
			do: func(ctx context.Context, _ *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Create(ctx, mg)
				return err
			},
			want: []string{`connect ""`, "observe", "create", "disconnect"},
		},
		"CreateOfWhatExists": {
			reason: "a create that is repeated finds what the interrupted one made",
			stub:   &stub{exists: true},
			do: func(ctx context.Context, _ *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Create(ctx, mg)
				return err
			},
			want: []string{`connect ""`, "observe", "disconnect"},
		},
		"CreateCannotPlan": {
			reason: "a time-out before anything was requested does not make the outcome unknown",
			stub:   &stub{observe: context.DeadlineExceeded},
			do: func(ctx context.Context, t *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Create(ctx, mg)
				if asyncstate.OutcomeUnknown(err) {
					t.Errorf("the outcome is unknown: %v", err)
				}

				return err
			},
			want: []string{`connect ""`, "observe", "disconnect"},
			err:  "cannot plan",
		},
		"NameIsKnown": {
			reason: "a client is of the name that it was connected with",
			stub:   &stub{exists: true},
			do: func(ctx context.Context, t *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Observe(ctx, mg)
				must(t, err)
				meta.SetExternalName(mg, "i-1")

				_, err = c.Observe(ctx, mg)

				return err
			},
			want: []string{`connect ""`, "observe", "disconnect", `connect "i-1"`, "observe", "disconnect"},
		},
		"UpdateOfNothing": {
			reason: "Terraform creates what it is to update, if it does not exist",
			stub:   &stub{},
			do: func(ctx context.Context, _ *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Update(ctx, mg)
				return err
			},
			want: []string{`connect ""`, "observe", "disconnect"},
			err:  "the external resource does not exist",
		},
		"DeleteOfNothing": {
			reason: "there is nothing to delete",
			stub:   &stub{},
			do: func(ctx context.Context, _ *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Delete(ctx, mg)
				return err
			},
			want: []string{`connect ""`, "observe", "disconnect"},
		},
		"CannotConnect": {
			reason: "the error says what failed",
			stub:   &stub{connect: errors.New("no credentials")},
			do: func(ctx context.Context, _ *testing.T, c managed.ExternalClient, mg xpresource.Managed) error {
				_, err := c.Observe(ctx, mg)
				return err
			},
			want: []string{`connect ""`},
			err:  "cannot connect to the provider: no credentials",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := instance("")

			c, err := newRig(t, tc.stub, nil).Connect(t.Context(), mg)
			must(t, err)

			err = tc.do(t.Context(), t, c, mg)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("\n%s\nwant error %q, got %v", tc.reason, tc.err, err)
			}

			must(t, c.Disconnect(t.Context()))

			if diff := cmp.Diff(tc.want, tc.stub.calls); diff != "" {
				t.Errorf("\n%s\ncalls: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConnector_FailedCreate(t *testing.T) {
	type want struct {
		name    string
		unknown bool
	}

	// tells is what Terraform's state says after the create.
	tells := func(id string) *tfsdk.InstanceState {
		return &tfsdk.InstanceState{ID: id, Attributes: map[string]string{"id": id, "size": "1"}}
	}

	cases := map[string]struct {
		reason string
		err    error
		state  *tfsdk.InstanceState
		finder Finder
		want   want
	}{
		"Refused": {
			reason: "nothing was made",
			err:    errors.New("failed to create the resource: [{0 VpcLimitExceeded  []}]"),
		},
		"RefusedWithEmptyState": {
			reason: "a state without an ID tells nothing",
			err:    errors.New("failed to create the resource: [{0 VpcLimitExceeded  []}]"),
			state:  tells(""),
		},
		"ID": {
			reason: "the ID that came with the error is the name, and whether it exists is not known",
			err:    errors.New("failed to create the resource: [{0 cannot tag vpc-1: Forbidden  []}]"),
			state:  tells("vpc-1"),
			want:   want{name: "vpc-1", unknown: true},
		},
		"LostAnswer": {
			reason: "it may have been made",
			err:    errors.New("failed to create the resource: [{0 connection reset by peer  []}]"),
			want:   want{unknown: true},
		},
		"Found": {
			reason: "an error that looks like a refusal was none",
			err:    errors.New("failed to create the resource: [{0 something went wrong  []}]"),
			finder: FinderFn(func(_ context.Context, s Search) (asyncstate.Finding, error) {
				if s.Setup.Version != "1" || s.Managed.GetObjectKind().GroupVersionKind().Kind != "Terraformed" || time.Since(s.Attempt.Started) > time.Minute {
					return asyncstate.Finding{}, errors.New("the Finder lacks what it needs")
				}

				return asyncstate.Found("vpc-1"), nil
			}),
			want: want{name: "vpc-1", unknown: true},
		},
		"Absent": {
			reason: "nothing was made",
			err:    errors.New("failed to create the resource: [{0 something went wrong  []}]"),
			finder: FinderFn(func(context.Context, Search) (asyncstate.Finding, error) { return asyncstate.Absent(), nil }),
		},
		"AbsentAfterLostAnswer": {
			reason: "it may still come up",
			err:    errors.New("failed to create the resource: [{0 EOF  []}]"),
			finder: FinderFn(func(context.Context, Search) (asyncstate.Finding, error) { return asyncstate.Absent(), nil }),
			want:   want{unknown: true},
		},
		"FinderFails": {
			reason: "without an answer the error says what its outcome is",
			err:    errors.New("failed to create the resource: [{0 something went wrong  []}]"),
			finder: FinderFn(func(context.Context, Search) (asyncstate.Finding, error) {
				return asyncstate.Found("vpc-1"), errors.New("throttled")
			}),
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &stub{}
			r := newRig(t, s, tc.finder)
			mg := instance("")

			s.create = func(mg xpresource.Managed) error {
				tr, _ := mg.(resource.Terraformed)
				r.states.Tracker(tr).SetTfState(tc.state)

				return tc.err
			}

			c, err := r.Connect(t.Context(), mg)
			must(t, err)

			_, err = c.Create(t.Context(), mg)
			if !errors.Is(err, tc.err) || err.Error() != tc.err.Error() {
				t.Errorf("\n%s\nCreate(): want error %v, got %v", tc.reason, tc.err, err)
			}

			if diff := cmp.Diff(tc.want, want{name: meta.GetExternalName(mg), unknown: asyncstate.OutcomeUnknown(err)}, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}

			if _, finds := c.(asyncstate.Finder); finds != (tc.finder != nil) {
				t.Errorf("\n%s\nthe client is an asyncstate.Finder: %t", tc.reason, finds)
			}
		})
	}
}

func TestConnector_ObserveDuringUpdate(t *testing.T) {
	s := &stub{exists: true}
	r := newRig(t, s, nil)
	mg := instance("i-1")

	updating, err := r.Connect(t.Context(), mg)
	must(t, err)

	s.during = func() {
		c, err := r.Connect(t.Context(), mg)
		must(t, err)

		o, err := c.Observe(t.Context(), mg)
		if diff := cmp.Diff(managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, o); diff != "" || err != nil {
			t.Errorf("Observe() during an update: %v, -want, +got:\n%s", err, diff)
		}
	}

	_, err = updating.Update(t.Context(), mg)
	must(t, err)

	if diff := cmp.Diff([]string{`connect "i-1"`, "observe", "update"}, s.calls); diff != "" {
		t.Errorf("calls: -want, +got:\n%s", diff)
	}
}

func TestConnector_LastAsyncOperation(t *testing.T) {
	failed := resource.LastAsyncOperationCondition(errors.New("boom"))
	failed.Type, failed.Status = resource.TypeLastAsyncOperation, corev1.ConditionFalse

	cases := map[string]struct {
		reason  string
		had     bool
		stub    *stub
		deleted bool
		want    corev1.ConditionStatus
	}{
		"UpToDate": {"nothing is left of what failed", true, &stub{exists: true}, false, corev1.ConditionTrue},
		"Never":    {"Graft does not add the condition", false, &stub{exists: true}, false, corev1.ConditionUnknown},
		"Absent":   {"what failed is still to be done", true, &stub{}, false, corev1.ConditionFalse},
		"Deleted":  {"what failed may be the delete", true, &stub{exists: true}, true, corev1.ConditionFalse},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := instance("i-1")

			if tc.had {
				mg.SetConditions(failed)
			}

			if tc.deleted {
				now := metav1.Now()
				mg.SetDeletionTimestamp(&now)
			}

			c, err := newRig(t, tc.stub, nil).Connect(t.Context(), mg)
			must(t, err)

			_, err = c.Observe(t.Context(), mg)
			must(t, err)

			if got := mg.GetCondition(resource.TypeLastAsyncOperation).Status; got != tc.want {
				t.Errorf("\n%s\nLastAsyncOperation: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

func TestNewConnectorRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   func()
		want   string
	}{
		"NoConnector":  {"there is nothing to make asynchronous", func() { NewConnector(nil, Terraform{}) }, "was given no connector"},
		"NoClient":     {"it would fail in the queue", func() { NewConnector(&stub{}, Terraform{}) }, "set Client"},
		"NoTagLister":  {"it would fail after a crash", func() { NewTagFinder(nil, namesakes{}) }, "was given nil"},
		"NoNameReader": {"it would fail after a crash", func() { NewTagFinder(&listed{}, nil) }, "was given nil"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, tc.want) {
					t.Errorf("\n%s\nwant a panic with %q, got %s", tc.reason, tc.want, got)
				}
			}()

			tc.call()
		})
	}
}

func TestLongest(t *testing.T) {
	d := func(d time.Duration) *time.Duration { return &d }

	cases := map[string]struct {
		reason string
		r      *config.Resource
		want   time.Duration
	}{
		"Default": {
			reason: "as long as upjet waits",
			r:      &config.Resource{},
			want:   time.Hour,
		},
		"Configured": {
			reason: "a create may take longer than an hour",
			r:      &config.Resource{OperationTimeouts: config.OperationTimeouts{Create: 2 * time.Hour}},
			want:   2 * time.Hour,
		},
		"OthersAreNot": {
			reason: "a short delete does not make creates short",
			r:      &config.Resource{OperationTimeouts: config.OperationTimeouts{Delete: time.Minute}},
			want:   time.Hour,
		},
		"All": {
			reason: "the longest counts",
			r:      &config.Resource{OperationTimeouts: config.OperationTimeouts{Create: 3 * time.Minute, Update: 2 * time.Minute, Delete: time.Minute}},
			want:   3 * time.Minute,
		},
		"OfTerraform": {
			reason: "the configuration counts more than the Terraform resource, and that more than its default",
			r: &config.Resource{
				OperationTimeouts: config.OperationTimeouts{Create: time.Minute},
				TerraformResource: &schema.Resource{Timeouts: &schema.ResourceTimeout{Create: d(time.Hour * 5), Update: d(2 * time.Minute), Default: d(3 * time.Minute)}},
			},
			want: 3 * time.Minute,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := longest(tc.r); got != tc.want {
				t.Errorf("\n%s\nlongest(): want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

// A pointer or a function that is nil is no Finder.
func TestConnector_NilFinder(t *testing.T) {
	for name, f := range map[string]Finder{"Pointer": (*tagFinder)(nil), "Function": FinderFn(nil)} {
		c, err := newRig(t, &stub{}, f).Connect(t.Context(), instance(""))
		must(t, err)

		if _, finds := c.(asyncstate.Finder); finds {
			t.Errorf("%s: the client is an asyncstate.Finder", name)
		}
	}
}

// A name of which a Finder is not sure is not the external resource's.
func TestConnector_FinderCannotTell(t *testing.T) {
	s := &stub{create: func(xpresource.Managed) error { return errors.New("refused") }}
	r := newRig(t, s, FinderFn(func(context.Context, Search) (asyncstate.Finding, error) {
		return asyncstate.Finding{ExternalName: "perhaps"}, nil
	}))
	mg := instance("")

	c, err := r.Connect(t.Context(), mg)
	must(t, err)

	if _, err := c.Create(t.Context(), mg); asyncstate.OutcomeUnknown(err) || meta.GetExternalName(mg) != "" {
		t.Errorf("external name %q, %v", meta.GetExternalName(mg), err)
	}
}

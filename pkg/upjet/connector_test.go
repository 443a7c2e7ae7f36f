package upjet

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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
	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	tfsdk "github.com/hashicorp/terraform-plugin-sdk/v2/terraform"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// stub is a connector, and a client, of upjet's shape. It records its calls.
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

// connectorOf returns a connector around a stub, a managed resource for it, and Terraform's
// states.
func connectorOf(
	t *testing.T,
	s *stub,
	f Finder,
) (managed.ExternalConnector, *upjetfake.Terraformed, *tjcontroller.OperationTrackerStore) {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, upjetfake.AddToScheme(scheme))
	mg, states := upjetfake.NewTerraformed(), tjcontroller.NewOperationStore(logging.NewNopLogger())
	mg.SetUID("u-1")
	return NewConnector(s, Terraform{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(),
		Setup: func(context.Context, client.Client, xpresource.Managed) (terraform.Setup, error) {
			return terraform.Setup{Version: "1"}, nil
		},
		States: states,
		Finder: f,
		Resource: &config.Resource{ExternalName: config.IdentifierFromProvider, TerraformResource: &schema.Resource{
			Schema: map[string]*schema.Schema{
				"size": {Type: schema.TypeInt, Optional: true}, "arn": {Type: schema.TypeString, Computed: true},
			},
		}},
	}), mg, states
}

func TestConnector_Calls(t *testing.T) {
	cases := map[string]struct {
		reason string
		stub   *stub
		do     []string // Those before the last succeed.
		want   []string
		err    string

		// last is LastAsyncOperation in the end, Unknown if it is empty.
		last corev1.ConditionStatus
	}{
		"Nothing": {reason: "a reconcile that finds an operation running neither connects nor observes", stub: &stub{}},
		"Create": {
			reason: "the client that has planned the create makes it", stub: &stub{}, do: []string{"observe", "create"},
			want: []string{`connect ""`, "observe", "create", "disconnect"},
		},
		"CreateWithoutObserve": {
			reason: "a create that is repeated after a crash needs a plan, too", stub: &stub{}, do: []string{"create"},
			want: []string{`connect ""`, "observe", "create", "disconnect"},
		},
		"CreateOfWhatExists": {
			reason: "a repeated create should find the resource of the interrupted one",
			stub:   &stub{exists: true},
			do:     []string{"create"},
			want:   []string{`connect ""`, "observe", "disconnect"},
		},
		"CreateCannotPlan": {
			reason: "a time-out before anything was requested does not make the outcome unknown",
			stub:   &stub{observe: context.DeadlineExceeded},
			do:     []string{"create"},
			want:   []string{`connect ""`, "observe", "disconnect"},
			err:    "cannot plan",
		},
		"NameIsKnown": {
			reason: "a client is of the name that it was connected with",
			stub:   &stub{exists: true},
			do:     []string{"observe", "name", "observe"},
			want:   []string{`connect ""`, "observe", "disconnect", `connect "i-1"`, "observe", "disconnect"},
		},
		"CreateUnderAnotherName": {
			reason: "and so is its plan", stub: &stub{}, do: []string{"observe", "name", "create"},
			want: []string{`connect ""`, "observe", "disconnect", `connect "i-1"`, "observe", "create", "disconnect"},
		},
		"UpdateOfNothing": {
			reason: "Terraform should create a resource that it cannot update because it does not exist",
			stub:   &stub{},
			do:     []string{"update"},
			want:   []string{`connect ""`, "observe", "disconnect"},
			err:    "the external resource does not exist",
		},
		"DeleteOfNothing": {
			reason: "there is nothing to delete",
			stub:   &stub{},
			do:     []string{"delete"},
			want:   []string{`connect ""`, "observe", "disconnect"},
		},
		"Delete": {
			reason: "a client that has observed would replace the resource if its arguments differ",
			stub:   &stub{exists: true},
			do:     []string{"name", "deleted", "observe", "delete"},
			want:   []string{`connect "i-1"`, "observe", "disconnect", `connect "i-1"`, "delete", "disconnect"},
		},
		"CannotConnect": {
			reason: "the error says what failed",
			stub:   &stub{connect: errors.New("no credentials")},
			do:     []string{"observe"},
			want:   []string{`connect ""`},
			err:    "cannot connect to the provider: no credentials",
		},
		"ObserveDuringUpdate": {
			reason: "upjet's state is the update's while that runs",
			stub:   &stub{exists: true},
			do:     []string{"name", "update, observed"},
			want:   []string{`connect "i-1"`, "observe", "update", "disconnect"},
		},
		"FailedUpToDate": {
			reason: "the condition of the failed operation should be cleared",
			stub:   &stub{exists: true},
			do:     []string{"name", "failed", "observe"},
			want:   []string{`connect "i-1"`, "observe", "disconnect"},
			last:   corev1.ConditionTrue,
		},
		"FailedAbsent": {
			reason: "what failed is still to be done", stub: &stub{}, do: []string{"failed", "observe"},
			want: []string{`connect ""`, "observe", "disconnect"}, last: corev1.ConditionFalse,
		},
		"FailedDeleted": {
			reason: "what failed may be the delete",
			stub:   &stub{exists: true},
			do:     []string{"name", "failed", "deleted", "observe"},
			want:   []string{`connect "i-1"`, "observe", "disconnect"},
			last:   corev1.ConditionFalse,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, mg, _ := connectorOf(t, tc.stub, nil)
			c, err := r.Connect(t.Context(), mg)
			for _, do := range tc.do {
				must(t, err)
				switch do {
				case "observe":
					_, err = c.Observe(t.Context(), mg)
				case "create":
					_, err = c.Create(t.Context(), mg)
				case "update":
					_, err = c.Update(t.Context(), mg)
				case "delete":
					_, err = c.Delete(t.Context(), mg)
				case "name":
					meta.SetExternalName(mg, "i-1")
				case "failed":
					failed := resource.LastAsyncOperationCondition(errors.New("boom"))
					failed.Type, failed.Status = resource.TypeLastAsyncOperation, corev1.ConditionFalse
					mg.SetConditions(failed)
				case "deleted":
					mg.SetDeletionTimestamp(ptr(metav1.Now()))
				case "update, observed":
					tc.stub.during = func() {
						c, err := r.Connect(t.Context(), mg)
						must(t, err)
						o, err := c.Observe(t.Context(), mg)
						must(t, err)
						wants(
							t,
							tc.reason,
							"exists, up to date",
							[]bool{true, true},
							[]bool{o.ResourceExists, o.ResourceUpToDate},
						)
					}
					_, err = c.Update(t.Context(), mg)
				}
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) ||
				asyncstate.OutcomeUnknown(err) {
				t.Errorf("\n%s\nwant error %q that says nothing was done, got %v", tc.reason, tc.err, err)
			}
			must(t, c.Disconnect(t.Context()))
			wants(t, tc.reason, "calls", tc.want, tc.stub.calls)
			wants(
				t,
				tc.reason,
				"LastAsyncOperation",
				stdcmp.Or(tc.last, corev1.ConditionUnknown),
				mg.GetCondition(resource.TypeLastAsyncOperation).Status,
			)
		})
	}
}

func TestConnector_FailedCreate(t *testing.T) {
	type want struct {
		Name           string
		Unknown, Finds bool
	}

	// tells is what Terraform's state says after the create.
	tells := func(id string) *tfsdk.InstanceState {
		return &tfsdk.InstanceState{ID: id, Attributes: map[string]string{"id": id, "size": "1"}}
	}
	answers := func(f asyncstate.Finding, err error) Finder {
		return FinderFn(func(_ context.Context, s Search) (asyncstate.Finding, error) {
			if s.Setup.Version != "1" || s.Managed.GetObjectKind().GroupVersionKind().Kind != "Terraformed" ||
				time.Since(s.Attempt.Started) > time.Minute {
				t.Error("the Finder lacks what it needs")
			}
			return f, err
		})
	}
	cases := map[string]struct {
		reason string
		text   string // Of the error.
		state  *tfsdk.InstanceState
		name   config.GetExternalNameFn // That of IdentifierFromProvider if it is nil.
		finder Finder
		want   want
	}{
		"Refused": {reason: "nothing was made", text: "VpcLimitExceeded"},
		"RefusedWithEmptyState": {
			reason: "a state without an ID tells nothing",
			text:   "VpcLimitExceeded",
			state:  tells(""),
		},
		"ID": {
			reason: "the ID that came with the error is the name, and whether it exists is not known",
			text:   "cannot tag vpc-1: Forbidden", state: tells("vpc-1"), want: want{Name: "vpc-1", Unknown: true},
		},
		"IDWithoutName": {
			reason: "Terraform returned an ID, so something was made, although its name is not known",
			text:   "cannot tag vpc-1: Forbidden", state: tells("vpc-1"),
			name: func(state map[string]any) (string, error) {
				if arn, ok := state["arn"]; ok {
					return fmt.Sprint(arn), nil
				}
				return "", errors.New("cannot find arn in tfstate")
			},
			want: want{Unknown: true},
		},
		"IDWithoutNameFound": {
			reason: "the Finder should be asked for the name that the state does not have",
			text:   "cannot tag vpc-1: Forbidden", state: tells("vpc-1"),
			name:   func(map[string]any) (string, error) { return "", errors.New("cannot find arn in tfstate") },
			finder: answers(asyncstate.Found("vpc-1"), nil),
			want:   want{Name: "vpc-1", Unknown: true, Finds: true},
		},
		"LostAnswer": {
			reason: "it may have been made",
			text:   "connection reset by peer",
			want:   want{Unknown: true},
		},
		"Found": {
			reason: "an error that looks like a refusal was none",
			finder: answers(asyncstate.Found("vpc-1"), nil),
			want:   want{Name: "vpc-1", Unknown: true, Finds: true},
		},
		"Absent": {
			reason: "nothing was made",
			finder: answers(asyncstate.Absent(), nil),
			want:   want{Finds: true},
		},
		"AbsentAfterLostAnswer": {
			reason: "it may still come up",
			text:   "EOF",
			finder: answers(asyncstate.Absent(), nil),
			want:   want{Unknown: true, Finds: true},
		},
		"FinderFails": {
			reason: "without an answer the error should decide the outcome",
			finder: answers(asyncstate.Found("vpc-1"), errors.New("throttled")),
			want:   want{Finds: true},
		},
		"FinderCannotTell": {
			reason: "a name that the Finder is not sure of should not be stored",
			finder: answers(asyncstate.Finding{ExternalName: "perhaps"}, nil),
			want:   want{Finds: true},
		},
		"NilPointer":  {reason: "a pointer that is nil is no Finder", finder: (*tagFinder)(nil)},
		"NilFunction": {reason: "nor is a function", finder: FinderFn(nil)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			failure := errors.Errorf("failed to create the resource: [{0 %s  []}]", tc.text)
			s := &stub{}
			r, mg, states := connectorOf(t, s, tc.finder)
			if c, ok := r.(*connector); ok && tc.name != nil {
				c.terraform.Resource.ExternalName.GetExternalNameFn = tc.name
			}
			s.create = func(mg xpresource.Managed) error {
				tr, _ := mg.(resource.Terraformed)
				states.Tracker(tr).SetTfState(tc.state)
				return failure
			}
			c, err := r.Connect(t.Context(), mg)
			must(t, err)
			_, err = c.Create(t.Context(), mg)
			if !errors.Is(err, failure) || err.Error() != failure.Error() {
				t.Errorf("\n%s\nCreate(): want error %v, got %v", tc.reason, failure, err)
			}
			got := want{Name: meta.GetExternalName(mg), Unknown: asyncstate.OutcomeUnknown(err)}
			_, got.Finds = c.(asyncstate.Finder)
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

// sdkConnector returns upjet's connector of a plugin SDK resource, and the Terraform of a connector that wraps it.
func sdkConnector(t *testing.T, r *config.Resource) (managed.ExternalConnector, Terraform) {
	t.Helper()
	r.ExternalName = config.IdentifierFromProvider
	scheme := runtime.NewScheme()
	must(t, upjetfake.AddToScheme(scheme))
	tf := Terraform{
		Client: fake.NewClientBuilder().WithScheme(scheme).Build(),
		Setup: func(context.Context, client.Client, xpresource.Managed) (terraform.Setup, error) {
			return terraform.Setup{}, nil
		},
		States:   tjcontroller.NewOperationStore(logging.NewNopLogger()),
		Resource: r,
	}
	return tjcontroller.NewTerraformPluginSDKConnector(tf.Client, tf.Setup, r, tf.States,
		tjcontroller.WithTerraformPluginSDKLogger(logging.NewNopLogger())), tf
}

// upjet's client of a plugin SDK resource deletes with the diff of its Observe. If that replaces the external
// resource, Terraform deletes it under its new arguments, and creates another one (upjet#420, upjet#723).
func TestConnector_DeleteDoesNotReplace(t *testing.T) {
	type deletion struct {
		ID, Zone, Type, ARN string
		Subnets             []any
		Force               bool
		Timeout             time.Duration
		Creates             int
	}
	subnets := []any{"s-1", "s-2"}
	cases := map[string]struct {
		reason  string
		observe bool

		// deleted says that Observe sees the deletion.
		deleted bool

		// Desired arguments. By default, subnets are as they are.
		zone    string
		kind    string
		subnets []any
		force   bool

		// wrapped says that the connector is not of upjet's own type.
		wrapped   bool
		wantForce bool
	}{
		"NoChange": {
			reason:  "A resource that is up to date should be deleted.",
			observe: true, deleted: true, zone: "a",
		},
		"Replacement": {
			reason:  "A change that requires a replacement should not affect the delete.",
			observe: true, deleted: true, zone: "b",
		},
		"ReplacementBeforeDeletion": {
			reason:  "The diff of an Observe before the deletion should not affect the delete.",
			observe: true, zone: "b",
		},
		"ReplacementAfterRestart": {
			reason: "The Observe that plans a repeated delete should not affect it either.", zone: "b",
		},
		"ReplacementOfSet": {
			reason:  "A set whose change requires a replacement should keep all of its elements.",
			observe: true, deleted: true, zone: "a", subnets: []any{"s-2", "s-3"},
		},
		"Identity": {
			reason:  "An argument that is part of the identity should have the value of the external resource.",
			observe: true, deleted: true, zone: "a", kind: "TXT",
		},
		"IdentityAfterRestart": {
			reason: "A repeated delete should identify it in the same way.", zone: "a", kind: "TXT",
		},
		"Change": {
			reason:  "A changed argument should unblock a delete that has failed.",
			observe: true, deleted: true, zone: "a", force: true, wantForce: true,
		},
		"ChangeAfterRestart": {
			reason: "A repeated delete should have the changed argument, too.", zone: "a", force: true, wantForce: true,
		},
		"Wrapped": {
			reason:  "A connector that wraps upjet's should delete without changes.",
			observe: true, deleted: true, zone: "b", force: true, wrapped: true,
		},
		"ChangeAndReplacement": {
			reason:  "A replacement should not hide another change.",
			observe: true, deleted: true, zone: "b", force: true, wantForce: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got deletion
			read := func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
				return diag.FromErr(d.Set("zone", "a"))
			}
			r := config.DefaultResource("cloud_vpc", &schema.Resource{
				Schema: map[string]*schema.Schema{
					"zone": {Type: schema.TypeString, Optional: true, ForceNew: true},
					"subnets": {
						Type: schema.TypeSet, Optional: true, ForceNew: true,
						Elem: &schema.Schema{Type: schema.TypeString},
					},
					"type":  {Type: schema.TypeString, Optional: true},
					"force": {Type: schema.TypeBool, Optional: true},
					"arn":   {Type: schema.TypeString, Computed: true},
				},
				ReadContext: read,
				CustomizeDiff: func(_ context.Context, d *schema.ResourceDiff, _ any) error {
					if !d.HasChange("force") {
						return nil
					}
					return d.SetNewComputed("arn")
				},
				CreateContext: func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
					got.Creates++
					d.SetId("vpc-2")
					return nil
				},
				UpdateContext: schema.NoopContext,
				DeleteContext: func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
					got.ID, got.Timeout = d.Id(), d.Timeout(schema.TimeoutDelete)
					got.Zone, _ = d.Get("zone").(string)
					got.Type, _ = d.Get("type").(string)
					got.ARN, _ = d.Get("arn").(string)
					got.Force, _ = d.Get("force").(bool)
					s, _ := d.Get("subnets").(*schema.Set)
					got.Subnets = s.List()
					return nil
				},
				Timeouts: &schema.ResourceTimeout{Delete: ptr(7 * time.Minute)},
			}, nil, nil)
			inner, tf := sdkConnector(t, r)
			if tc.wrapped {
				inner = struct{ managed.ExternalConnector }{inner}
			}
			if tc.subnets == nil {
				tc.subnets = subnets
			}
			mg := upjetfake.NewTerraformed(upjetfake.WithParameters(map[string]any{
				"zone": tc.zone, "type": stdcmp.Or(tc.kind, "A"), "subnets": tc.subnets, "force": tc.force,
			}))
			mg.Observation = map[string]any{
				"id": "vpc-1", "zone": "a", "type": "A", "subnets": subnets, "force": false, "arn": "arn:vpc-1",
			}
			mg.SetUID("u-1")
			meta.SetExternalName(mg, "vpc-1")

			e, err := NewConnector(inner, tf).Connect(t.Context(), mg)
			must(t, err)
			if tc.deleted {
				mg.SetDeletionTimestamp(ptr(metav1.Now()))
			}
			if tc.observe {
				o, err := e.Observe(t.Context(), mg)
				must(t, err)
				wants(t, tc.reason, "ResourceExists", true, o.ResourceExists)
			}
			mg.SetDeletionTimestamp(ptr(metav1.Now()))
			_, err = e.Delete(t.Context(), mg)
			must(t, err)
			wants(t, tc.reason, "the delete", deletion{
				ID: "vpc-1", Zone: "a", Type: "A", ARN: "arn:vpc-1", Subnets: subnets, Force: tc.wantForce,
				Timeout: 7 * time.Minute,
			}, got)
		})
	}
}

// vpc returns a managed resource of the plugin SDK that is read by this function, and a function that connects to it.
func vpc(t *testing.T, read schema.ReadContextFunc) (*upjetfake.Terraformed, func() managed.ExternalClient) {
	t.Helper()
	inner, tf := sdkConnector(t, config.DefaultResource("cloud_vpc", &schema.Resource{
		Schema:        map[string]*schema.Schema{"zone": {Type: schema.TypeString, Optional: true}},
		ReadContext:   read,
		CreateContext: schema.NoopContext,
		DeleteContext: schema.NoopContext,
	}, nil, nil))
	mg := upjetfake.NewTerraformed(upjetfake.WithParameters(map[string]any{"zone": "a"}))
	mg.Observation = map[string]any{}
	mg.SetUID("u-1")
	meta.SetExternalName(mg, "vpc-1")
	return mg, func() managed.ExternalClient {
		e, err := NewConnector(inner, tf).Connect(t.Context(), mg)
		must(t, err)
		return e
	}
}

// After a delete upjet's clients report absence without a look, although another create may be carried out later.
func TestConnector_ObservesAfterDelete(t *testing.T) {
	cases := map[string]struct {
		reason    string
		openFor   time.Duration
		wantReads int
	}{
		"OneCreate": {reason: "Without another create, upjet's answer should stand."},
		"OtherOpen": {
			reason:  "The external resource should be read if another create may have been carried out since.",
			openFor: time.Minute, wantReads: 1,
		},
		"OtherOver": {
			reason:  "A delete should stand if the other create was over: Terraform may only forget the resource.",
			openFor: -time.Minute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reads := 0
			mg, connect := vpc(t, func(context.Context, *schema.ResourceData, any) diag.Diagnostics {
				reads++
				return nil
			})
			now := metav1.Now()
			mg.SetDeletionTimestamp(&now)
			if tc.openFor != 0 {
				meta.AddAnnotations(mg, map[string]string{
					meta.AnnotationKeyExternalCreatePending: now.Add(-time.Hour).Format(time.RFC3339),
					creation.AnnotationKeyOpenUntil:         now.Add(tc.openFor).Format(time.RFC3339),
				})
			}
			_, err := connect().Delete(t.Context(), mg)
			must(t, err)

			before := reads
			o, err := connect().Observe(t.Context(), mg)
			must(t, err)
			wants(
				t, tc.reason, "ResourceExists, reads", []any{tc.wantReads > 0, tc.wantReads},
				[]any{o.ResourceExists, reads - before},
			)
		})
	}
}

// upjet's client of a plugin SDK resource has no state after an Observe that found nothing or failed: another one would
// panic.
func TestConnector_ObservesAgain(t *testing.T) {
	cases := map[string]struct {
		reason string
		fails  bool
	}{
		"NotFound": {reason: "An external resource that was not found should be observed again."},
		"Failed":   {reason: "An external resource should be observed again after an error.", fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			reads := 0
			mg, connect := vpc(t, func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
				if reads++; reads == 1 && tc.fails {
					return diag.Errorf("no answer")
				}
				d.SetId("")
				return nil
			})
			e := connect()

			_, err := e.Observe(t.Context(), mg)
			wants(t, tc.reason, "failed", tc.fails, err != nil)
			o, err := e.Observe(t.Context(), mg)
			must(t, err)
			wants(t, tc.reason, "ResourceExists, reads", []any{false, 2}, []any{o.ResourceExists, reads})
		})
	}
}

func TestSwitchesOnly(t *testing.T) {
	replacement := func() *tfsdk.InstanceDiff {
		return &tfsdk.InstanceDiff{Attributes: map[string]*tfsdk.ResourceAttrDiff{
			"zone": {Old: "a", New: "b", RequiresNew: true}, "type": {Old: "A", New: "TXT"}, "arn": nil,
			"force": {Old: "false", New: "true"}, "ready": {NewComputed: true},
			"public": {New: "true", RequiresNew: true}, "unknown": {Old: "false", New: "true"},
		}}
	}
	arguments := map[string]*schema.Schema{
		"zone": {Type: schema.TypeString, ForceNew: true}, "type": {Type: schema.TypeString},
		"arn": {Type: schema.TypeBool}, "force": {Type: schema.TypeBool}, "ready": {Type: schema.TypeBool},
		"public": {Type: schema.TypeBool, ForceNew: true},
	}
	custom := func(err error) config.CustomDiff {
		return func(*tfsdk.InstanceDiff, *tfsdk.InstanceState, *tfsdk.ResourceConfig) (*tfsdk.InstanceDiff, error) {
			return replacement(), err
		}
	}
	failure := errors.New("boom")
	cases := map[string]struct {
		reason string
		diff   *tfsdk.InstanceDiff
		custom config.CustomDiff
		id     string
		want   []string
		err    error
	}{
		"NoDiff": {reason: "A resource without a diff should have none.", id: "vpc-1"},
		"Exists": {
			reason: "Only a switch that does not replace the resource should change.",
			diff:   replacement(), id: "vpc-1", want: []string{"force"},
		},
		"DoesNotExist": {
			reason: "A create should have all arguments.",
			diff:   replacement(), want: []string{"arn", "force", "public", "ready", "type", "unknown", "zone"},
		},
		"Custom": {
			reason: "The diff of the resource's own function should be used.",
			custom: custom(nil), id: "vpc-1", want: []string{"force"},
		},
		"CustomFails": {
			reason: "The error of the resource's own function should be returned.",
			custom: custom(failure), id: "vpc-1", err: failure,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := switchesOnly(tc.custom, arguments)(tc.diff, &tfsdk.InstanceState{ID: tc.id}, nil)
			if !errors.Is(err, tc.err) {
				t.Errorf("\n%s\nwant error %v, got %v", tc.reason, tc.err, err)
			}
			var kept []string
			if got != nil {
				kept = slices.Sorted(maps.Keys(got.Attributes))
			}
			wants(t, tc.reason, "attributes", tc.want, kept)
		})
	}
}

func TestNewConnectorRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		call   func()
		want   string
	}{
		"NoConnector": {
			"there is nothing to make asynchronous",
			func() { NewConnector(nil, Terraform{}) },
			"was given no connector",
		},
		"NoClient":    {"it would fail in the queue", func() { NewConnector(&stub{}, Terraform{}) }, "set Client"},
		"NoTagLister": {"it would fail after a crash", func() { NewTagFinder(nil) }, "was given nil"},
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
	cases := map[string]struct {
		reason string
		r      *config.Resource
		want   time.Duration
	}{
		"Default": {"as long as upjet waits", &config.Resource{}, time.Hour},
		"Configured": {
			"a create may take longer than an hour",
			&config.Resource{OperationTimeouts: config.OperationTimeouts{Create: 2 * time.Hour}},
			2 * time.Hour,
		},
		"OthersAreNot": {
			"a short delete does not make creates short",
			&config.Resource{OperationTimeouts: config.OperationTimeouts{Delete: time.Minute}},
			time.Hour,
		},
		"All": {
			"the longest counts",
			&config.Resource{
				OperationTimeouts: config.OperationTimeouts{
					Create: 3 * time.Minute,
					Update: 2 * time.Minute,
					Delete: time.Minute,
				},
			},
			3 * time.Minute,
		},
		"OfTerraform": {
			"the configuration counts more than the Terraform resource, and that more than its default",
			&config.Resource{
				OperationTimeouts: config.OperationTimeouts{Create: time.Minute},
				TerraformResource: &schema.Resource{
					Timeouts: &schema.ResourceTimeout{
						Create:  ptr(time.Hour * 5),
						Update:  ptr(2 * time.Minute),
						Default: ptr(3 * time.Minute),
					},
				},
			},
			3 * time.Minute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "longest()", tc.want, longest(tc.r))
		})
	}
}

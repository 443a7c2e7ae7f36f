//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A plugin is kubectl-graft, built.
type plugin string

// newPlugin links the plugin once, because the go command leaves a program that is up to date as it is.
func newPlugin(t *testing.T) plugin {
	t.Helper()
	path := filepath.Join("..", "..", "bin", "kubectl-graft")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "kubectl-graft")
	out, err := cmd.CombinedOutput()
	must(t, "go build: "+string(out), err)
	return plugin(path)
}

// run the plugin, and return its output and exit status.
func (p plugin) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(p), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// says fails the test unless the plugin exits with a status, and its output has all words.
func (p plugin) says(t *testing.T, line string, status int, words ...string) {
	t.Helper()
	out, code := p.run(t, strings.Fields(line)...)
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("kubectl graft %s: want %q, got:\n%s", line, w, out)
		}
	}
	if code != status {
		t.Errorf("kubectl graft %s: want exit status %d, got %d:\n%s", line, status, code, out)
	}
}

// Objects of a provider with Graft that are stuck are explained, and repaired, with the
// plugin alone.
func TestPlugin(t *testing.T) {
	s, p, world := newPlatform(t), newPlugin(t), cloud.New(cloud.Options{})
	held, kept, unknown := v1alpha1.NewBucket(namespace, "plugin-held"), v1alpha1.NewBucket(namespace, "plugin-kept"),
		v1alpha1.NewDatabase("plugin-unknown")
	held.SetFinalizers([]string{otherFinalizer})
	meta.AddAnnotations(unknown, map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:05Z"})
	buckets := []sample.Instance{held, kept}
	s.create(t, append(buckets, unknown)...)
	start(t, graft, setup{connectors: syncConnectors(world)})
	s.until(t, "the buckets are available", buckets, isAvailable)
	stops := func(mg sample.Instance) bool { return mg.GetCondition(xpv2.TypeSynced).Status == corev1.ConditionFalse }
	s.until(t, "its create is unknown", []sample.Instance{unknown}, stops)
	p.says(t, "why bucket/plugin-kept", 0, "Ready since")

	t.Run("Finalizer", func(t *testing.T) {
		s.remove(t, held)
		waits := func(mg sample.Instance) bool {
			return mg.GetCondition(reconciler.TypeDeleting).Reason == reconciler.ReasonWaitingForFinalizers
		}
		s.until(t, "it waits for the other finalizer", []sample.Instance{held}, waits)
		const drop = "drop-finalizer buckets.sample.graft.crossplane.io/plugin-held -n " + namespace + " " +
			otherFinalizer
		p.says(
			t,
			"why bucket/plugin-held",
			1,
			": WaitingForFinalizers\n",
			"kubectl graft "+drop,
			otherFinalizer+" (of another controller, written by ",
		)
		p.says(
			t,
			"stuck -A",
			1,
			"buckets.sample.graft.crossplane.io/plugin-held",
			"WaitingForFinalizers",
			"databases.sample.graft.crossplane.io/plugin-unknown",
			"CreateResultUnknown",
		)
		p.says(t, "drop-finalizer bucket/plugin-held "+managedFinalizer+" --yes", 2, "kubectl graft orphan")
		p.says(t, drop+" --yes --dry-run=server", 0, "the API server accepts it")
		p.says(t, drop, 2, "pass --yes")
		p.says(t, drop+" --yes", 0, "is held by "+managedFinalizer)
		eventually(t, "it is gone", func() (bool, string) {
			_, there := s.list(t.Context(), t)[held.GetUID()]
			return !there, ""
		})
	})

	t.Run("Create", func(t *testing.T) {
		p.says(
			t,
			"why database/plugin-unknown",
			1,
			"Stopped since 2026-01-02T03:04:05Z",
			"cannot determine creation result",
			"kubectl graft resolve databases.sample.graft.crossplane.io/plugin-unknown --not-created",
		)
		p.says(t, "resolve database/plugin-unknown --not-created --yes", 0, "the create is settled")
		s.until(t, "it is created", []sample.Instance{unknown}, isAvailable)
		p.says(t, "resolve database/plugin-unknown --not-created --yes", 2, "there is nothing to resolve")
		p.says(t, "reconcile database/plugin-unknown", 0, "a reconcile is requested")
	})

	t.Run("Names", func(t *testing.T) {
		backup, _ := p.run(t, "names", "-A", "-o", "json")
		file := filepath.Join(t.TempDir(), "names.json")
		must(t, "WriteFile()", os.WriteFile(file, []byte(backup), 0o600))
		p.says(t, "names --check "+file, 0, "0 of 2 names")
		was := meta.GetExternalName(read(t, s, kept))
		p.says(t, "orphan bucket/plugin-kept --yes", 0, "External resource "+strconv.Quote(was)+" stays")
		eventually(t, "it is gone", func() (bool, string) {
			_, there := s.list(t.Context(), t)[kept.GetUID()]
			return !there, ""
		})
		p.says(t, "names --check "+file, 1, "Missing Bucket/plugin-kept", strconv.Quote(was))
		if size(world, kept) == "" {
			t.Errorf("the external resource %q was orphaned, and does not exist", was)
		}
	})

	t.Run("Forbidden", func(t *testing.T) {
		shop := s.newApp(t, "plugin", v1alpha1.NewDatabase("plugin-part"))
		must(
			t,
			"Patch()",
			s.Patch(
				t.Context(),
				shop.claim,
				mergePatch(`{"metadata":{"finalizers":["finalizer.apiextensions.crossplane.io"]}}`),
			),
		)
		must(t, "Delete()", s.Delete(t.Context(), shop.claim))
		rules := []rbacv1.PolicyRule{
			{APIGroups: []string{platformGroup}, Resources: []string{"apps"}, Verbs: []string{"get", "list"}},
		}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "plugin-tenant"}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "plugin-tenant"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "plugin-tenant"},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}},
		}
		s.createFor(t, role, binding)
		eventually(t, "jane may read the claim", func() (bool, string) {
			out, code := p.run(t, "why", "app/plugin", "--as", "jane")
			return code == 1, out
		})
		p.says(t, "why app/plugin", 1, "App/plugin in "+namespace+"  Deleting", "XApp/plugin-x")
		p.says(t, "why app/plugin --as jane", 1, "XApp/plugin-x  Unknown\n     You may not read it.")
		p.says(
			t,
			"why database/plugin-unknown --as jane",
			2,
			`error: databases.sample.graft.crossplane.io "plugin-unknown" is forbidden: User "jane" cannot get resource`,
		)
	})
}

// An operation in progress is described from its record, and nothing settles or orphans its
// managed resource meanwhile.
func TestPlugin_Operation(t *testing.T) {
	s, p, world := newServer(t), newPlugin(t), cloud.New(cloud.Options{})
	created := make(chan struct{})
	world.SetHooks(cloud.Hooks{Before: func(ctx context.Context, c cloud.Call) error {
		if c.Op == cloud.OpCreate {
			select {
			case <-created:
			case <-ctx.Done():
			}
		}
		return nil
	}})
	mg := v1alpha1.NewDatabase("plugin-operation")
	s.create(t, mg)
	start(t, async(asyncstate.WithTimeout(time.Minute)), setup{connectors: syncConnectors(world)})
	runs := func(mg sample.Instance) bool {
		return mg.GetCondition(asyncstate.TypeOperation).Reason == asyncstate.ReasonRunning
	}
	s.until(t, "its create runs", []sample.Instance{mg}, runs)
	p.says(
		t,
		"why database/plugin-operation",
		1,
		": Running\n",
		"operation: create, attempt 1, since ",
		", deadline ",
		"to do: Wait.",
	)
	p.says(
		t,
		"resolve database/plugin-operation --not-created --yes",
		2,
		"the create of Database/plugin-operation may be in progress until ",
	)
	p.says(t, "orphan database/plugin-operation --yes", 2, "wait, or its result is lost")
	close(created)
	s.until(t, "it is available", []sample.Instance{mg}, isAvailable)
	p.says(t, "why database/plugin-operation", 0, "Ready since")
	s.remove(t, mg)
	s.untilGone(t)
}

// A list of all that is stuck takes less than five seconds, whichever the size.
// GRAFT_PLUGIN_KINDS=200 GRAFT_PLUGIN_OBJECTS=10000 is the size that is promised.
func TestPlugin_Stuck(t *testing.T) {
	const limit = 5 * time.Second
	kinds, objects := number(t, "GRAFT_PLUGIN_KINDS", 10), number(t, "GRAFT_PLUGIN_OBJECTS", 1000)
	p := newPlugin(t)
	scheme := runtime.NewScheme()
	must(t, "AddToScheme()", extv1.AddToScheme(scheme))
	config := plane.Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, "client.New()", err)
	crds := make([]*extv1.CustomResourceDefinition, kinds)
	for i := range crds {
		crds[i] = stuckKind(i)
	}
	inParallel(t, lanes, kinds, func(i int) error { return c.Create(t.Context(), crds[i]) })
	t.Cleanup(func() {
		for _, crd := range crds {
			_ = c.Delete(t.Context(), crd)
		}
	})
	inParallel(t, lanes, objects, func(i int) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{
			Group: stuckGroup, Version: v1alpha1.Version, Kind: fmt.Sprintf("Stuck%d", i%kinds),
		})
		u.SetNamespace(namespace)
		u.SetName(fmt.Sprintf("stuck-%d", i))
		u.Object["spec"] = map[string]any{"forProvider": map[string]any{"size": int64(1)}}
		if i%100 == 0 {
			u.SetAnnotations(map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:05Z"})
		}
		return wait.PollUntilContextTimeout(
			t.Context(), lookEvery, patience, true,
			func(ctx context.Context) (bool, error) {
				err := c.Create(ctx, u.DeepCopy())
				return err == nil, nil //nolint:nilerr // Until the kind is served.
			},
		)
	})
	began := time.Now()
	out, code := p.run(t, "stuck", "-A")
	took := time.Since(began)
	t.Logf("%d objects of %d kinds: %s", objects, kinds, took)
	if got, want := strings.Count(out, "stuck-"), (objects+99)/100; got != want || code != 1 {
		t.Errorf("want %d objects, got %d, exit status %d:\n%s", want, got, code, out)
	}
	if took > limit {
		t.Errorf("stuck -A took %s, and may take %s", took, limit)
	}
}

const stuckGroup = "stuck.example.org"

// stuckKind returns the definition of a kind of managed resource.
func stuckKind(i int) *extv1.CustomResourceDefinition {
	crd := v1alpha1.CRDs()[1].DeepCopy()
	kind := fmt.Sprintf("Stuck%d", i)
	lower := strings.ToLower(kind)
	crd.Name = lower + "s." + stuckGroup
	crd.Spec.Group = stuckGroup
	crd.Spec.Names = extv1.CustomResourceDefinitionNames{
		Kind:       kind,
		ListKind:   kind + "List",
		Plural:     lower + "s",
		Singular:   lower,
		Categories: crd.Spec.Names.Categories,
	}
	return crd
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text, ok := os.LookupEnv(variable)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, variable, err)
	return n
}

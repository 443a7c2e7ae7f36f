//go:build real

package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	group = "postgresql.sql.m.crossplane.io"
	app   = "app" // The namespace of all objects.

	roles, databases, grants = 20, 4, 4

	poll = 5 * time.Second

	// patience is how long to wait for many reconciles, and moment for a single one. An
	// idle machine needs almost none of it.
	patience, moment = 2 * time.Minute, 30 * time.Second

	graftSide = "Graft"
	keep      = "example.org/keep" // A finalizer that no controller removes.
)

// A side is a provider-sql that the story is played with.
type side struct {
	name, program, crds string // crds is a folder.

	db postgres

	cluster

	kill   func() // Ends the provider as a power failure does.
	marked time.Time
	before requests
	seen   []row
}

type row struct {
	point, exists, conditions, requests string

	took time.Duration
}

func sides(t *testing.T) []*side {
	t.Helper()
	p := provider{
		path: "github.com/crossplane-contrib/provider-sql", version: "v0.16.0", runtime: "v2.2.1", graft: "v0.22.0",
	}
	source, adopted := p.source(t), p.adopted(t)
	run(t, adopted, "go", "mod", "tidy")
	crds := filepath.Join(source, "package", "crds")
	return []*side{
		{name: "stock", program: build(t, source, "./cmd/provider"), crds: crds},
		{name: graftSide, program: build(t, adopted, "./cmd/provider"), crds: crds},
	}
}

func TestSQL(t *testing.T) {
	both := sides(t)
	for _, s := range both {
		t.Run(s.name, func(t *testing.T) {
			s.begin(t)
			s.play(t)
		})
	}
	stock, graft := both[0], both[1]
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\t\tin PostgreSQL\tafter\trequests\tconditions")
	for i, g := range graft.seen {
		if i < len(stock.seen) {
			r := stock.seen[i]
			fmt.Fprintf(w, "%s\tstock\t%s\t%s\t%s\t%s\n", r.point, r.exists, r.took, r.requests, r.conditions)
		}
		fmt.Fprintf(w, "\tGraft\t%s\t%s\t%s\t%s\n", g.exists, g.took, g.requests, g.conditions)
	}
	_ = w.Flush()
	t.Logf("provider-sql\n%s", &table)
}

func (s *side) begin(t *testing.T) {
	t.Helper()
	s.db = startPostgres(t)
	t.Cleanup(func() { s.db.clear(t) })
	s.cluster = startCluster(t, s.crds)
}

func (s *side) play(t *testing.T) {
	t.Helper()
	s.configure(t)
	for i := range roles {
		s.create(t, object("Role", i, map[string]any{"privileges": map[string]any{"login": true}}))
	}
	for i := range databases {
		s.create(t, object("Database", i, map[string]any{}))
	}

	// Each of the provider's five workers is in the middle of a create when it is killed.
	// PostgreSQL completes the statements.
	release := s.db.holdRoles(t)
	s.start(t, pollOften()...)
	eventually(t, "five creates are held, and the databases are ready", func() bool {
		return s.db.held(t) == "5" && summary(s.list(t, "Database")) == "4 ready"
	})
	s.kill()
	release()
	eventually(t, "the five roles exist", func() bool { return s.db.exists(t) == "5 roles, 4 databases, 0 grants" })
	s.start(t, pollOften()...)
	s.wait(
		t,
		"killed in five creates, started",
		"20 roles, 4 databases, 0 grants",
		s.all,
		"19 ready, 5 Synced=False",
		patience,
	)
	for _, o := range s.managed(t) {
		if status, _, _ := condition(o, "Synced"); status != "True" {
			s.patch(t, &o, `[{"op": "remove", "path": "/metadata/annotations/crossplane.io~1external-create-pending"}]`)
		}
	}
	s.wait(t, "create-pending removed by hand", "20 roles, 4 databases, 0 grants", s.all, "24 ready", patience)
	for i := range grants {
		s.create(t, object("Grant", i, map[string]any{"role": name("Role", 1+i), "memberOf": name("Role", 1+grants+i)}))
	}
	s.wait(t, "grants created", "20 roles, 4 databases, 4 grants", s.all, "28 ready", patience)
	s.kill()
	s.start(t, pollOften()...)
	s.rest(t, "killed at rest, started")
	if last := s.rest(t, "nothing changes"); s.name == graftSide && last.requests != "none" {
		t.Errorf("want no requests while nothing changes, got %s", last.requests)
	}
	s.credentials(t, "wrong")
	s.wait(t, "credentials broken", "20 roles, 4 databases, 4 grants", s.all, "0 ready, 28 Synced=False", patience)
	s.delete(t, object("Role", 19, nil))
	s.wait(t, "role deleted meanwhile", "20 roles, 4 databases, 4 grants", s.role(19), "Ready=False (Deleting)", moment)
	s.credentials(t, s.password())
	s.wait(t, "credentials mended", "19 roles, 4 databases, 4 grants", s.all, "27 ready", patience)
	s.patch(t, object("Role", 0, nil), `[{"op": "add", "path": "/metadata/finalizers/-", "value": "`+keep+`"}]`)
	s.delete(t, object("Role", 0, nil))
	s.wait(t, "role with another finalizer deleted", "19 roles, 4 databases, 4 grants", s.role(0), keep, moment)
	s.patch(
		t,
		object("Role", 0, nil),
		`[{"op": "test", "path": "/metadata/finalizers/1", "value": "`+keep+
			`"}, {"op": "remove", "path": "/metadata/finalizers/1"}]`,
	)
	s.wait(t, "that finalizer removed", "18 roles, 4 databases, 4 grants", s.all, "26 ready", patience)
	s.restore(t)
	s.wait(t, "restored into an empty control plane", "18 roles, 4 databases, 4 grants", s.all, "26 ready", patience)
	s.delete(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: app}})
	s.wait(t, "namespace deleted", "0 roles, 0 databases, 0 grants", s.all, "no managed resources", patience)
}

// wait waits until PostgreSQL and the conditions are as they have to be with Graft, or
// time is up.
func (s *side) wait(
	t *testing.T, point, exists string, conditions func(*testing.T) string, want string, timeout time.Duration,
) {
	t.Helper()
	s.mark(t)
	within(timeout, func() bool {
		return s.db.exists(t) == exists && strings.Contains(conditions(t), want)
	})
	if last := s.see(t, point, conditions); s.name == graftSide &&
		(last.exists != exists || !strings.Contains(last.conditions, want)) {
		t.Errorf("%s: want %s and %q, got %s and %q", point, exists, want, last.exists, last.conditions)
	}
}

func (s *side) rest(t *testing.T, point string) row {
	t.Helper()
	s.mark(t)
	time.Sleep(6 * poll)
	return s.see(t, point, s.all)
}

func (s *side) mark(t *testing.T) {
	t.Helper()
	s.marked, s.before = time.Now(), s.requests(t, group)
}

func (s *side) see(t *testing.T, point string, conditions func(*testing.T) string) row {
	t.Helper()
	r := row{
		point: point, exists: s.db.exists(t), conditions: conditions(t),
		requests: s.requests(t, group).since(s.before), took: time.Since(s.marked).Round(time.Second),
	}
	t.Logf("%+v", r)
	s.seen = append(s.seen, r)
	return r
}

func (s *side) all(t *testing.T) string {
	t.Helper()
	return summary(s.managed(t))
}

func (s *side) role(i int) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		for _, o := range s.list(t, "Role") {
			if o.GetName() != name("Role", i) {
				continue
			}
			ready, reason, _ := condition(o, "Ready")
			_, _, why := condition(o, "Deleting")
			return strings.TrimSuffix(fmt.Sprintf("Ready=%s (%s): %s", ready, reason, why), ": ")
		}
		return "no longer exists"
	}
}

func (s *side) start(t *testing.T, flags ...string) {
	t.Helper()
	cmd := exec.Command(s.program, flags...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.plane.Kubeconfig())
	s.kill = background(t, "KILL", cmd)
	t.Cleanup(s.kill)
}

func pollOften() []string { return []string{"--poll", poll.String(), "--metrics-bind-address", "0"} }

// configure creates the namespace, and the provider config in it. A deletion of the
// namespace removes neither the config nor its secret: provider-sql can't delete
// anything without them.
func (s *side) configure(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: app, Name: "db", Finalizers: []string{keep}},
		StringData: map[string]string{
			"endpoint": s.db.url.Hostname(), "port": s.db.url.Port(),
			"username": s.db.url.User.Username(), "password": s.password(),
		},
	}
	config := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"sslMode": "disable",
		"credentials": map[string]any{
			"source": "PostgreSQLConnectionSecret", "connectionSecretRef": map[string]any{"name": secret.Name},
		},
	}}}
	config.SetGroupVersionKind(kind("ProviderConfig"))
	config.SetNamespace(app)
	config.SetName("default")
	config.SetFinalizers([]string{keep})
	s.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: app}})
	s.create(t, secret)
	s.create(t, config)
}

func (s *side) password() string {
	p, _ := s.db.url.User.Password()
	return p
}

func (s *side) credentials(t *testing.T, password string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: app, Name: "db"}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData": {"password": %q}}`, password))
	must(t, s.Patch(t.Context(), secret, patch))
}

// restore moves the managed resources into an empty control plane, without the
// fields that a backup tool leaves out.
func (s *side) restore(t *testing.T) {
	t.Helper()
	backup := s.managed(t)
	s.kill()
	s.cluster = startCluster(t, s.crds)
	s.configure(t)
	for _, o := range backup {
		o.SetUID("")
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		delete(o.Object, "status")
		s.create(t, &o)
	}
	s.start(t, pollOften()...)
}

func (s *side) managed(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	return append(append(s.list(t, "Role"), s.list(t, "Database")...), s.list(t, "Grant")...)
}

func (s *side) list(t *testing.T, k string) []unstructured.Unstructured {
	t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(kind(k))
	must(t, s.List(t.Context(), l))
	return l.Items
}

func (s *side) create(t *testing.T, o client.Object) {
	t.Helper()
	must(t, s.Create(t.Context(), o))
}

func (s *side) patch(t *testing.T, o client.Object, patch string) {
	t.Helper()
	must(t, s.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

func (s *side) delete(t *testing.T, o client.Object) {
	t.Helper()
	must(t, s.Delete(t.Context(), o))
}

func object(k string, i int, parameters map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"forProvider": parameters, "providerConfigRef": map[string]any{"kind": "ProviderConfig", "name": "default"},
	}}}
	o.SetGroupVersionKind(kind(k))
	o.SetNamespace(app)
	o.SetName(name(k, i))
	return o
}

// name returns the name of a managed resource, which is the external name too.
func name(k string, i int) string { return fmt.Sprintf("%s%s-%d", prefix, strings.ToLower(k), i) }

func kind(k string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: k}
}

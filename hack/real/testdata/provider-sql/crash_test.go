package role

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xpv1 "github.com/crossplane/crossplane-runtime/v2/apis/common/v1"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	namespacedv1alpha1 "github.com/crossplane-contrib/provider-sql/apis/namespaced/postgresql/v1alpha1"
	"github.com/crossplane-contrib/provider-sql/pkg/clients/postgresql"
	"github.com/crossplane-contrib/provider-sql/pkg/clients/xsql"
	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// columns of pg_roles that the provider reads, and their clauses.
var columns = []string{"SUPERUSER", "INHERIT", "CREATEDB", "CREATEROLE", "LOGIN", "REPLICATION", "BYPASSRLS"}

// A row of pg_roles.
type row struct {
	clauses  map[string]bool
	limit    int64
	password string
}

// String leaves out the password, which is random.
func (r row) String() string { return fmt.Sprint(r.clauses, r.limit) }

// roles is a fake of PostgreSQL: a request is a statement.
type roles struct {
	crashtest.Resources[row]

	// published is the password in the connection secret.
	published string
}

func (c *roles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	statement, _ := io.ReadAll(r.Body)
	words := strings.Fields(strings.ReplaceAll(string(statement), "IF EXISTS ", ""))
	name := strings.Trim(words[2], `"`)
	role, ok := c.Get(name)

	switch words[0] {
	case "CREATE":
		if ok {
			http.Error(w, "role "+name+" already exists", http.StatusBadRequest)
			return
		}
		c.Create(name, role.altered(words[3:]))
	case "ALTER":
		if !c.Update(name, role.altered(words[3:])) {
			http.Error(w, "role "+name+" does not exist", http.StatusBadRequest)
		}
	case "DROP":
		c.Delete(name)
	case "SELECT":
		role, ok = c.Get(r.URL.Query().Get("rolname"))
		if !ok {
			return
		}
		_ = json.NewEncoder(w).Encode(role.values())
	}
}

// altered returns the row after clauses.
func (r row) altered(clauses []string) row {
	r.clauses = maps.Clone(r.clauses)
	if r.clauses == nil {
		r.clauses, r.limit = map[string]bool{"INHERIT": true}, -1
	}
	for i, c := range clauses {
		switch set, isNot := strings.CutPrefix(c, "NO"); {
		case c == "PASSWORD":
			r.password = strings.Trim(clauses[i+1], "'")
		case c == "LIMIT":
			r.limit, _ = strconv.ParseInt(clauses[i+1], 10, 64)
		case slices.Contains(columns, set):
			r.clauses[set] = !isNot
		}
	}
	return r
}

func (r row) values() []any {
	var out []any
	for _, c := range columns {
		out = append(out, r.clauses[c])
	}
	return append(out, r.limit, nil)
}

// connections is a database driver: the host of a DSN is the name of a process's transport.
type connections struct {
	transports sync.Map
	last       atomic.Int64
}

// host returns a new one for a transport.
func (c *connections) host(t http.RoundTripper) string {
	host := fmt.Sprint("process-", c.last.Add(1))
	c.transports.Store(host, t)
	return host
}

func (c *connections) Open(dsn string) (driver.Conn, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	t, _ := c.transports.Load(u.Hostname())
	return &connection{http: t.(http.RoundTripper)}, nil
}

type connection struct {
	driver.Conn

	http http.RoundTripper
}

func (c *connection) Close() error { return nil }

func (c *connection) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	_, err := c.send(ctx, http.MethodPut, query, "")
	return driver.ResultNoRows, err
}

func (c *connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	text, err := c.send(ctx, http.MethodGet, query, fmt.Sprint(args[0].Value))
	if err != nil {
		return nil, err
	}
	r := &rows{}
	if len(text) > 0 {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&r.next)
	}
	return r, err
}

func (c *connection) send(ctx context.Context, method, query, rolname string) ([]byte, error) {
	words := strings.Fields(query)
	at := "http://postgres/" + words[0]
	if rolname == "" {
		at += "/" + strings.Join(words[1:3], "/")
		if strings.Contains(query, "LIMIT") {
			at += "/LIMIT"
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, at+"?rolname="+rolname, strings.NewReader(query))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	return text, err
}

type rows struct{ next []any }

func (*rows) Columns() []string { return make([]string, len(columns)+2) }

func (*rows) Close() error { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.next == nil {
		return io.EOF
	}
	for i, v := range r.next {
		if n, ok := v.(json.Number); ok {
			v, _ = n.Int64()
		}
		dest[i] = v
	}
	r.next = nil
	return nil
}

// A publisher is the manager of a process. It records the connection secret.
type publisher struct {
	manager.Manager

	cloud *roles
}

func (p publisher) GetClient() client.Client { return secrets{p.Manager.GetClient(), p.cloud} }

type secrets struct {
	client.Client

	cloud *roles
}

func (c secrets) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.write(ctx, o, func() error { return c.Client.Create(ctx, o, opts...) })
}

func (c secrets) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.write(ctx, o, func() error { return c.Client.Patch(ctx, o, p, opts...) })
}

// write a secret. It counts as written unless the process sees that it isn't.
func (c secrets) write(ctx context.Context, o client.Object, request func() error) error {
	s, ok := o.(*corev1.Secret)
	if !ok {
		return request()
	}
	was, key := c.cloud.published, xpv1.ResourceCredentialsSecretPasswordKey
	if pw, ok := s.Data[key]; ok {
		c.cloud.published = string(pw)
	}
	err := request()
	if err != nil {
		stored := &corev1.Secret{}
		if e := client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), stored)); e == nil &&
			string(stored.Data[key]) == was {
			c.cloud.published = was
		}
	}
	return err
}

func TestCrashes(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, namespacedv1alpha1.SchemeBuilder.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	role := &namespacedv1alpha1.Role{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	role.Spec.ProviderConfigReference = &xpv1.ProviderConfigReference{Kind: "ProviderConfig", Name: "default"}
	role.Spec.WriteConnectionSecretToReference = &xpv1.LocalSecretReference{Name: "one-password"}
	config := &namespacedv1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}}
	config.Spec.Credentials.ConnectionSecretRef.Name = "postgres"
	processes := &connections{}
	sql.Register("crashtest", processes)

	crashtest.Run(t, crashtest.Provider[*roles]{
		Scheme: scheme,
		CRDs:   "../../../../../package/crds",
		Object: role,
		Beside: []client.Object{config, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: "postgres", Namespace: "default",
			}, Data: map[string][]byte{"port": []byte("5432")},
		}},
		Cloud: func() *roles { return &roles{} },
		Start: func(p *crashtest.Process, cloud *roles) (reconcile.Reconciler, error) {
			host := processes.host(p.Transport(cloud))
			m := publisher{p.Manager(), cloud}
			c := &connector{
				kube: m.GetClient(),
				track: resource.NewProviderConfigUsageTracker(m.GetClient(),
					&namespacedv1alpha1.ProviderConfigUsage{}).Track,
				newDB: func(creds map[string][]byte, database, sslmode string) xsql.DB {
					creds = maps.Clone(creds)
					creds[xpv1.ResourceCredentialsSecretEndpointKey] = []byte(host)
					return postgresql.New(creds, database, sslmode)
				},
			}
			return managed.NewReconciler(m, resource.ManagedKind(namespacedv1alpha1.RoleGroupVersionKind),
				managed.WithTypedExternalConnector(c), managed.WithManagementPolicies(),
				managed.WithPollInterval(10*time.Minute)), nil
		},
		Change: func(o client.Object) {
			login := true
			o.(*namespacedv1alpha1.Role).Spec.ForProvider.Privileges.Login = &login
		},
		Invariant: func(o client.Object, cloud *roles, _ client.Reader) error {
			role, exists := cloud.Get("one")
			mg, ok := o.(*namespacedv1alpha1.Role)
			ready := ok && mg.GetCondition(xpv1.TypeReady).Status == corev1.ConditionTrue
			if exists && ready && meta.GetExternalName(mg) == "one" && role.password != cloud.published {
				return errors.New("the connection secret does not have the password of the role")
			}
			return nil
		},
		Accept: []crashtest.Verdict{crashtest.Stopped},
	})
}

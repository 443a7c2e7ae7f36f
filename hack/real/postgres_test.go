//go:build real

package real

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	postgresVariable = "GRAFT_POSTGRES" // Names a server to use, by the URL of a superuser.

	superuser, password = "graft", "a-password-of-the-tests"

	prefix = "graft-test-" // Of the names of all that the tests create.
)

type postgres struct{ url *url.URL }

func startPostgres(t *testing.T) postgres {
	t.Helper()
	if named := os.Getenv(postgresVariable); named != "" {
		u, err := url.Parse(named)
		must(t, err)
		return postgres{url: u}
	}

	// Not t.TempDir, which the server's user could not enter.
	dir, err := os.MkdirTemp("", "graft-postgres-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	secret, data := filepath.Join(dir, "password"), filepath.Join(dir, "data")
	must(t, os.WriteFile(secret, []byte(password), 0o600))
	as := unprivileged(t, dir, secret)
	initdb := exec.Command(
		program(t, "initdb"), "-D", data, "-U", superuser, "--auth=scram-sha-256", "--pwfile", secret,
	)
	initdb.Dir, initdb.SysProcAttr = dir, as
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	port := freePort(t)
	server := exec.Command(
		program(t, "postgres"), "-D", data, "-k", dir, "-h", "127.0.0.1", "-p", port, "-c", "fsync=off",
	)
	server.Dir, server.SysProcAttr = dir, as
	t.Cleanup(background(t, "QUIT", server))
	p := postgres{url: &url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password),
		Host: net.JoinHostPort("127.0.0.1", port), Path: "/postgres", RawQuery: "sslmode=disable",
	}}
	eventually(t, "PostgreSQL answers", func() bool { return p.psql("SELECT 1").Run() == nil })
	return p
}

// program returns the path of one of PostgreSQL's programs, which Debian doesn't put
// into PATH.
func program(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		t.Fatalf("There is no %s on this machine, so provider-sql was built, but not run. "+
			"Install the package postgresql, or set %s to the URL of a superuser.", name, postgresVariable)
	}
	return slices.Max(found)
}

// unprivileged returns attributes of a process that is not root's, which PostgreSQL
// refuses to be, and gives its user the files.
func unprivileged(t *testing.T, files ...string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	const id = 65534 // The user without rights, on all systems.
	for _, f := range files {
		must(t, os.Chown(f, id, id))
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

func (p postgres) psql(sql string) *exec.Cmd {
	return exec.Command("psql", p.url.String(), "-X", "-A", "-t", "-c", sql)
}

func (p postgres) query(t *testing.T, sql string) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", p.psql(sql).Args...))
}

// exists counts the objects that the provider has created and not deleted.
func (p postgres) exists(t *testing.T) string {
	t.Helper()
	return p.query(t, fmt.Sprintf(`SELECT
		(SELECT count(*) FROM pg_roles WHERE starts_with(rolname, '%[1]s')) || ' roles, ' ||
		(SELECT count(*) FROM pg_database WHERE starts_with(datname, '%[1]s')) || ' databases, ' ||
		(SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member WHERE starts_with(r.rolname, '%[1]s')) || ' grants'`, prefix))
}

// holdRoles lets no role be created until release is called.
func (p postgres) holdRoles(t *testing.T) (release func()) {
	t.Helper()
	cmd := exec.Command("psql", p.url.String(), "-X")
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = io.WriteString(in, "BEGIN; LOCK TABLE pg_authid IN SHARE MODE;\n")
	must(t, err)
	eventually(t, "the lock is held", func() bool {
		return p.query(
			t,
			"SELECT count(*) FROM pg_locks WHERE relation = 'pg_authid'::regclass AND mode = 'ShareLock' AND granted",
		) != "0"
	})
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

func (p postgres) held(t *testing.T) string {
	t.Helper()
	return p.query(
		t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE ROLE%'",
	)
}

func (p postgres) clear(t *testing.T) {
	t.Helper()
	cmd := exec.Command("psql", p.url.String(), "-X", "-v", "ON_ERROR_STOP=1")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`SELECT format('DROP DATABASE %%I WITH (FORCE)', datname) FROM pg_database WHERE starts_with(datname, '%[1]s')
		UNION SELECT format('DROP ROLE %%I', rolname) FROM pg_roles WHERE starts_with(rolname, '%[1]s') ORDER BY 1 \gexec`, prefix))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("cannot drop what the provider created: %v\n%s", err, out)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if !within(patience, is) {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

func within(timeout time.Duration, is func() bool) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(timeout); ; <-tick.C {
		if is() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

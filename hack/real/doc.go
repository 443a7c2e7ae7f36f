// Package real runs released providers without Graft and with it. Their source is what
// the module proxy has, and hack/adopt puts Graft into it.
//
//   - provider-sql, against PostgreSQL and a real control plane: what becomes of roles,
//     databases and grants, and what 3,000 roles cost in which nothing changes.
//   - provider-kubernetes, which must build and pass its own tests.
//
// The output says what this machine doesn't have, and what is not shown because of it.
//
// PostgreSQL's programs are looked for in PATH and in /usr/lib/postgresql. If
// GRAFT_POSTGRES has the URL of a superuser, that server is used instead: the tests
// create roles and databases there whose names begin with graft-test-, and drop them.
//
// The tests have the build tag real: they take up to an hour, and need modules that nothing
// else here needs.
package real

// Package real runs released providers without Graft and with it. Their source is what
// the module proxy has, and hack/adopt puts Graft into it.
//
//   - provider-sql, against PostgreSQL and a real control plane: the outcome of lives of
//     roles, databases and grants.
//   - provider-kubernetes, which must build and pass its own tests.
//   - all of these, provider-http and provider-gitlab, whose lives pkg/crashtest leads in
//     memory. The module proxy does not have the last two: GRAFT_PROVIDERS names a folder
//     with archives of their sources.
//
// The output names the programs that this machine lacks, and the cases that are left out.
//
// PostgreSQL's programs are looked for in PATH and in /usr/lib/postgresql. If
// GRAFT_POSTGRES has the URL of a superuser, that server is used instead: the tests
// create roles and databases there whose names begin with graft-test-, and drop them.
//
// The tests have the build tag real: they take up to an hour, and need modules that nothing
// else here needs.
package real

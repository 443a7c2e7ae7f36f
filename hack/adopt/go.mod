module github.com/crossplane-graft/graft/hack/adopt

go 1.25.11

require (
	github.com/google/go-cmp v0.7.0
	github.com/rogpeppe/go-internal v1.14.1
	golang.org/x/mod v0.40.0
	golang.org/x/tools v0.49.0
)

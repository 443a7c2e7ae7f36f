module github.com/crossplane-graft/graft/hack/adopt

go 1.25.11

require golang.org/x/mod v0.40.0

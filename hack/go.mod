module github.com/crossplane-graft/graft/hack

go 1.25.11

require github.com/crossplane-graft/graft v0.0.0

replace github.com/crossplane-graft/graft => ../

module github.com/upbound/uptest

go 1.25.0

package main

import (
	"bytes"
	"slices"
	"strings"
)

// Module and import paths.
const (
	upstreamModule   = "github.com/crossplane/crossplane-runtime/v2"
	upstreamManaged  = upstreamModule + "/pkg/reconciler/managed"
	upstreamResource = upstreamModule + "/pkg/resource"

	upstreamV1Managed = "github.com/crossplane/crossplane-runtime/pkg/reconciler/managed"

	upjetModule = "github.com/crossplane/upjet/v2"

	graftModule  = "github.com/crossplane-graft/graft"
	graftManaged = graftModule + "/pkg/managed"
	graftUsage   = graftManaged + "/usage"
	graftUpjet   = graftModule + "/pkg/upjet"
)

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// quotes reports whether src has an import path in quotes, as an import does.
func quotes(src []byte, importPath string) bool {
	return containsAny(src, `"`+importPath+`"`, "`"+importPath+"`")
}

func containsAny(src []byte, substrings ...string) bool {
	return slices.ContainsFunc(substrings, func(s string) bool { return bytes.Contains(src, []byte(s)) })
}

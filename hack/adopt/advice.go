package main

const (
	// For files that a program generates again.
	generatedAdvice = `  Generated files come back with upstream's import if their generator writes it.
  The places in this module that name it are listed below: change them, or run
  adopt as the last step of make generate.
`

	upjetAdvice = `  upjet's template writes upstream's import again when it generates these files.
  Give your provider's configuration Graft's template, in each call of NewProvider:
    config.WithControllerTemplate(upjet.ControllerTemplate(...))
  of ` + graftUpjet + `, with upjet ` + upjetWithTemplate + ` or later; or run
  adopt as the last step of make generate.
  The import alone doesn't end a second create after a restart in the middle of
  an asynchronous one: the connector of that package does.
`

	// upjetWithTemplate is the first release of upjet whose template a provider can set.
	upjetWithTemplate = "v2.3.0"

	webhookAdvice = `  upjet has generated controllers for an older controller-runtime: since v0.23
  ctrl.NewWebhookManagedBy(mgr).For(&T{}) is ctrl.NewWebhookManagedBy(mgr, &T{}).
  Each of them breaks, with or without Graft. Raise upjet in the same change, and
  generate them again.
`

	cloneAdvice = `  This adopt was built from a clone, and no release may be tagged yet: the command
  below replaces Graft's module by a clone beside this module. If it names a tree in
  bin/line, run make line in the clone first.
`

	revertAdvice = `  Some of what Graft's options have written stays on objects, and can make plain
  crossplane-runtime harm external resources: see "Go back" in Graft's docs/adopt.md.
`
)

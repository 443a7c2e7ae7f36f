package managed

// What upstream's tests use, and has no exported name.
var (
	ExportDefaultSupportedManagementPolicies = defaultSupportedManagementPolicies
	ExportWithConnectionPublishers           = withConnectionPublishers
	ExportWithLocalConnectionPublishers      = withLocalConnectionPublishers
)

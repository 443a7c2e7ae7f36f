package managed

// Kinds of provider configs. In labels of metrics all other kinds are one, because users choose
// the kind of a reference.
const (
	kindProviderConfig        = "ProviderConfig"
	kindClusterProviderConfig = "ClusterProviderConfig"
	kindOther                 = "other"
)

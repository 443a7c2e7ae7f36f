package watch

// SetRandom sets what spreads a cache's backoffs. The cache must have no kinds yet.
func SetRandom(c *InformerTrackingCache, fn func() float64) { c.kinds.random = fn }

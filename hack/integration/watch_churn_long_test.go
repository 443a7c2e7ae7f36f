//go:build integration && churn

package integration

import "time"

// churnUsually is how long kinds come and go when that is all there is to do.
const churnUsually = 2 * time.Minute

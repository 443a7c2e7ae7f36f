//go:build integration && !churn

package integration

import "time"

// churnUsually is how long kinds come and go beside all other tests.
const churnUsually = 20 * time.Second

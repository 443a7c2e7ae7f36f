// Package alerts tests the alerts of the tutorial's provider as Prometheus reads them.
package alerts

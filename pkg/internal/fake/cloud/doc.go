// Package cloud simulates a small cloud API: the external system of Graft's
// sample provider, demos and crash tests.
//
// It behaves the way real cloud APIs make trouble. It assigns ids itself unless
// it's asked for a name, it takes time to answer, it doesn't show a new resource
// at once, a deleted resource stays for a while, and any call can fail before or
// after it took effect. Credentials can be rotated under an open session.
//
// Nothing happens in the background. A Cloud starts no goroutine. A call computes
// what depends on time from the Clock. With a ManualClock the
// same calls always give the same answers, ids included.
//
// Test code looks at the truth through Inventory, Stats and Counts. They take no
// time, see what isn't visible yet, and aren't counted.
//
// Limits: reads lag, writes don't, so that an Update or a Delete reaches a
// resource that Get doesn't show yet. There are no quotas, no paging and no
// permissions but the one token.
package cloud

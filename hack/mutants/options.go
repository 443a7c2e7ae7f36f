package main

import "time"

// options are the flags.
type options struct {
	root, pkg, also, tool, skip string

	n, parallel int
	seed        uint64
	timeout     time.Duration
}

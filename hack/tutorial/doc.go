// Package tutorial tests docs/tutorial.md and the provider that it copies.
package tutorial

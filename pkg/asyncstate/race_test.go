//go:build race

package asyncstate_test

// underRace says that everything takes many times as long.
const underRace = true

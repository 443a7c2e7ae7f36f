// Package watchtest is an API server for tests of watches. It has no clock, no
// socket and no randomness of its own: it answers in memory, and its tests say
// when it hangs, refuses, forgets a kind or brings it back.
//
// An [API] serves discovery, custom resource definitions, and list and watch (with
// and without streamed lists) of the kinds it is told to define, by a test or by a
// definition that is created. Real caches, informers and REST mappers talk to it: hand
// them [API.Config]. Objects can be read and written as well. It checks nothing but
// that an update is of the last version, doesn't patch, and there are no finalizers.
//
// Everything waits on channels and contexts, never on a lock, so that an API and
// its clients can live in a testing/synctest bubble. Time then moves only while
// everything waits, and a second of backoff costs nothing. It also means that
// a lock that is held while another goroutine waits for it makes the bubble stand still,
// which a test can take as a verdict.
package watchtest

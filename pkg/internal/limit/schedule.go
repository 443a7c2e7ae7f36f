package limit

import (
	"slices"
	"sort"
	"time"
)

// A Class says how urgent a reconcile is.
type Class int

const (
	// Urgent is for new deletions, new and changed specs, and requested reconciles.
	Urgent Class = iota

	// Settling is for managed resources that are not Ready yet, and have no error or were
	// throttled, and for deletions that were tried before.
	Settling

	// Poll is for all others. Those that fail must not hold up those that are Ready.
	Poll

	classes
)

// step returns the distance of two turns of a class. It is the reverse of its share: of ten reconciles that start
// while all three classes wait, six are urgent, three settle and one is a poll.
func (c Class) step() int { return [classes]int{1, 2, 6}[c] }

const (
	// late is how long the others wait for a reconcile whose turn has come.
	late = 200 * time.Millisecond

	// forgotten is how long a reconcile keeps its turn after it is due, if it does not return.
	forgotten = time.Minute
)

// A Place is a turn of a reconcile that waits for a token of an account.
type Place struct {
	account *Account
	class   Class
	turn    int
	due     time.Time // when the account expects to have its token
}

// A schedule is weighted round robin over three queues, one for each class: the reconcile with the lowest turn is
// next, and the turns of a queue are 1, 2 or 6 apart, counted from the last one in the queue or the last one that
// started, whichever is later.
//
// For example, turn 100 has started last. 2,000 urgent reconciles wait with the turns 101, 102, up to 2100. A deletion
// that is tried again comes and gets the turn 102, so two of them start before it. Ten polls get 106, 112, up to 160, so
// one of them starts after each six urgent ones. An urgent one that comes now gets 2101. If the urgent ones were none,
// the polls would start one after another.
type schedule struct {
	started int // the last turn that started
	queues  [classes][]*Place
}

// next returns the turn of a reconcile of a class that comes now.
func (s *schedule) next(c Class) int {
	last := s.started
	if n := len(s.queues[c]); n > 0 {
		last = max(last, s.queues[c][n-1].turn)
	}
	return last + c.step()
}

// index returns how many reconciles of a class are before a place. At the same turn the more urgent one is.
func (s *schedule) index(c Class, p *Place) int {
	q := s.queues[c]
	return sort.Search(len(q), func(i int) bool { return q[i].turn > p.turn || q[i].turn == p.turn && c >= p.class })
}

func (s *schedule) has(p *Place) bool {
	i := s.index(p.class, p)
	return i < len(s.queues[p.class]) && s.queues[p.class][i] == p
}

// before returns how many reconciles are before a place.
func (s *schedule) before(p *Place) (n int) {
	for c := range classes {
		n += s.index(c, p)
	}
	return n
}

// due returns how many of them are due between two times.
func (s *schedule) due(p *Place, from, to time.Time) (n int) {
	for c := range classes {
		for _, other := range s.queues[c][:s.index(c, p)] {
			if other.due.After(to) {
				break // Those after it are due later, as good as always.
			}
			if !other.due.Before(from) {
				n++
			}
		}
	}
	return n
}

func (s *schedule) join(p *Place) {
	if !s.has(p) {
		s.queues[p.class] = append(s.queues[p.class], p)
	}
}

func (s *schedule) leave(p *Place) {
	if p != nil && s.has(p) {
		i := s.index(p.class, p)
		s.queues[p.class] = slices.Delete(s.queues[p.class], i, i+1)
	}
}

func (s *schedule) start(p *Place) {
	s.leave(p)
	s.started = max(s.started, p.turn)
}

// forget drops the first reconciles of each queue that did not return.
func (s *schedule) forget(now time.Time) {
	for c, q := range s.queues {
		gone := 0
		for gone < len(q) && now.Sub(q[gone].due) > forgotten {
			gone++
		}
		s.queues[c] = slices.Delete(q, 0, gone)
	}
}

func (s *schedule) empty() bool {
	return !slices.ContainsFunc(s.queues[:], func(q []*Place) bool { return len(q) > 0 })
}

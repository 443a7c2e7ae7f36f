package simulation

import "time"

// A mailbox has the work that other goroutines give to the one that runs the simulation. Work of several goroutines has
// no order.
type mailbox chan func()

// newMailbox returns a mailbox in which there is room for the work of all goroutines between two decisions. A goroutine
// that posts more waits.
func newMailbox() mailbox { return make(mailbox, 256) }

// empty does the posted work.
func (m mailbox) empty() {
	for {
		select {
		case do := <-m:
			do()
		default:
			return
		}
	}
}

// sleep for a while, or until work is posted, which it does.
func (m mailbox) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case do := <-m:
		do()
	case <-timer.C:
	}
}

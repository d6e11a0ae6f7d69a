package main

// Locks and semaphores.

var locks = map[string]maker{
	"mutex":          mutex,
	"owner-lock":     ownerLock,
	"reentrant-lock": reentrantLock,
	"fenced-lock":    fencedLock,
	"semaphore":      semaphore,
}

const (
	lockAcquire = iota
	lockRelease
)

const nobody = int64(-1)

// mutex: acquire, release by anybody. The state: whether it is held.
func mutex([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		isHeld := state.(bool)
		return isHeld == (op.f == lockRelease), !isHeld
	}
	return model{initial: false, step: step}
}

// ownerLock: acquire, release by who holds it. The state: who.
func ownerLock([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		owner := state.(int64)
		if op.f == lockAcquire {
			return owner == nobody, op.process
		}
		return owner == op.process, nobody
	}
	return model{initial: nobody, step: step, hash: hashNumber}
}

// A heldLock is who holds a lock, and how often.
type heldLock struct{ owner, times int64 }

// reentrantLock: its owner may acquire it again, and releases it as often. Options: how often at
// once; 0: without limit.
func reentrantLock(options []int64) model {
	limit := options[0]
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(heldLock)
		if op.f == lockRelease {
			if held.times == 0 || held.owner != op.process {
				return false, nil
			}
			return true, lockedBy(held.owner, held.times-1)
		}
		if held.times > 0 && held.owner != op.process {
			return false, nil
		}
		times := held.times + 1
		return limit == 0 || times <= limit, lockedBy(op.process, times)
	}
	hash := func(state interface{}) uint64 {
		return hashNumbers(state.(heldLock).owner, state.(heldLock).times)
	}
	return model{initial: lockedBy(nobody, 0), step: step, hash: hash}
}

func lockedBy(owner, times int64) heldLock {
	if times == 0 {
		owner = nobody
	}
	return heldLock{owner, times}
}

// A fencedState is who holds a lock, and the last token that anybody knows.
type fencedState struct {
	owner   int64
	last    int64
	isKnown bool
}

// fencedLock: acquire -> token, release. A token is greater than all that were known before. The
// result of an acquire is empty if nobody got to know its token.
func fencedLock([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		next := state.(fencedState)
		if op.f == lockRelease {
			isOwner := next.owner == op.process
			next.owner = nobody
			return isOwner, next
		}
		if next.owner != nobody {
			return false, nil
		}
		next.owner = op.process
		if len(op.result) == 0 {
			return true, next
		}
		token := op.result[0]
		isGreater := !next.isKnown || token > next.last
		next.last, next.isKnown = token, true
		return isGreater, next
	}
	hash := func(state interface{}) uint64 {
		return hashNumbers(state.(fencedState).owner, state.(fencedState).last)
	}
	return model{initial: fencedState{owner: nobody}, step: step, hash: hash}
}

// semaphore: acquire(n), release(n). The state: how many permits are taken. Options: how many there
// are.
func semaphore(options []int64) model {
	permits := options[0]
	step := func(state interface{}, op *operation) (bool, interface{}) {
		taken := state.(int64)
		if op.f == lockAcquire {
			taken += op.argument[0]
		} else {
			taken -= op.argument[0]
		}
		return taken >= 0 && taken <= permits, taken
	}
	return model{initial: int64(0), step: step, hash: hashNumber}
}

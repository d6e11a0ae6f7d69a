// The models: sequential specifications of objects whose values are numbers.
package main

import "sort"

// Registers and the value of a key. A value is a number, nil is 0.

var registers = map[string]maker{
	"register":       register,
	"cas-register":   register,
	"multi-register": multiRegister,
	"key-value":      keyValue,
}

const nilValue = 0

const (
	registerRead = iota
	registerWrite
	registerCas
)

// register: read -> value, write(value), cas(from, to). Options: the first value; 1 if a read of nil
// did not look.
//
// The result of a cas is empty, or 0 if it was told that the value was another.
func register(options []int64) model {
	initial, nilIsAny := options[0], options[1] != 0
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(int64)
		switch op.f {
		case registerRead:
			seen := op.result[0]
			return seen == held || (nilIsAny && seen == nilValue), held
		case registerWrite:
			return true, op.argument[0]
		}
		from, to := op.argument[0], op.argument[1]
		if op.kind == failed || (len(op.result) > 0 && op.result[0] == 0) {
			return held != from, held
		}
		return held == from, to
	}
	return model{initial: initial, step: step, hash: hashNumber}
}

const (
	multiRead = iota
	multiWrite
	multiTxn
)

// A micro operation is three numbers: 0 to read or 1 to write, which register, the value.
const microWidth = 3

// multiRegister: all operations are lists of micro operations, done one after the other. Options:
// the first value of each; 1 if a read of nil did not look; how many registers.
//
// The argument of a txn begins with 1 if it is known what was asked for, and its result with 1 if it
// was told what was done, else with 0; so do those of a read and a write.
func multiRegister(options []int64) model {
	nilIsAny := options[1] != 0
	initial := make(vector, options[2])
	for name := range initial {
		initial[name] = options[0]
	}
	step := func(state interface{}, op *operation) (bool, interface{}) {
		asked, wasAsked := microOperations(op.argument)
		done, wasTold := microOperations(op.result)
		if op.f == multiTxn && wasAsked && wasTold && !isSameWork(asked, done) {
			return false, nil
		}
		if op.f == multiWrite || !wasTold {
			done = asked
		}
		held := state.(vector).with()
		for at := 0; at < len(done); at += microWidth {
			isWrite, name, value := done[at] == 1, done[at+1], done[at+2]
			switch {
			case isWrite:
				held[name] = value
			case op.kind == crashed, nilIsAny && value == nilValue:
			case held[name] != value:
				return false, nil
			}
		}
		return true, held
	}
	return model{initial: initial, step: step, equal: equalVectors, hash: hashVector}
}

func microOperations(told []int64) (work []int64, known bool) {
	if len(told) == 0 || told[0] == 0 {
		return nil, false
	}
	return told[1:], true
}

// isSameWork: the same registers read and the same values written, in the same order.
func isSameWork(asked, done []int64) bool {
	if len(asked) != len(done) {
		return false
	}
	for at := 0; at < len(asked); at += microWidth {
		isWrite := asked[at] == 1
		if asked[at] != done[at] || asked[at+1] != done[at+1] {
			return false
		}
		if isWrite && asked[at+2] != done[at+2] {
			return false
		}
	}
	return true
}

const (
	keyGet = iota
	keyPut
	keyAppend
)

// What the value of a key is: the first number of it says which.
const (
	sequenceNothing = iota // nil
	sequenceText           // letters follow
	sequenceVector         // values follow
	sequenceOther          // a value follows, to which nothing can be appended
)

// keyValue: get -> value, put(value), append(value). Values are written out, because what is
// appended piece by piece is the same as what is put at once. Options: the first value.
//
// The argument of an append is what it is as an element of a vector, and then written out.
func keyValue(options []int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(vector)
		switch op.f {
		case keyGet:
			return held.equals(op.result), held
		case keyPut:
			return true, vector(op.argument)
		}
		return true, appended(held, op.argument[0], op.argument[1:])
	}
	return model{initial: vector(options), step: step, equal: equalVectors, hash: hashVector}
}

func appended(held vector, element int64, value vector) vector {
	isText := value[0] == sequenceText
	switch {
	case isText && (held[0] == sequenceText || held[0] == sequenceNothing):
		return append(vector{sequenceText}, held[1:]...).with(value[1:]...)
	case held[0] == sequenceVector || held[0] == sequenceNothing:
		return append(vector{sequenceVector}, held[1:]...).with(element)
	}
	panic(misuse("what it appends does not fit the value"))
}

// Queues. An element is a number; a dequeue that found nothing has the result nil.

var queues = map[string]maker{
	"fifo-queue":      fifoQueue,
	"unordered-queue": unorderedQueue,
}

const (
	queueEnqueue = iota
	queueDequeue
)

// fifoQueue: enqueue(element), dequeue -> the oldest. The state: oldest first.
func fifoQueue([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(vector)
		if op.f == queueEnqueue {
			return true, held.with(op.argument[0])
		}
		if op.kind != crashed && op.result[0] == nilValue {
			return len(held) == 0, held
		}
		if len(held) == 0 || (op.kind != crashed && held[0] != op.result[0]) {
			return false, nil
		}
		return true, held[1:]
	}
	return model{initial: vector{}, step: step, equal: equalVectors, hash: hashVector}
}

// unorderedQueue: enqueue(element), dequeue -> any of them. The state: its elements in ascending
// order. Nobody knows which element a crashed dequeue took.
func unorderedQueue([]int64) model {
	steps := func(state interface{}, op *operation) []interface{} {
		held := state.(vector)
		if op.f == queueEnqueue {
			return []interface{}{held.inserted(op.argument[0])}
		}
		if op.kind == crashed {
			return held.eachRemoved()
		}
		wanted := op.result[0]
		if wanted == nilValue {
			if len(held) > 0 {
				return nil
			}
			return []interface{}{held}
		}
		if at := held.place(wanted); at < len(held) && held[at] == wanted {
			return []interface{}{held.without(at)}
		}
		return nil
	}
	return model{initial: vector{}, steps: steps, equal: equalVectors, hash: hashVector}
}

// eachRemoved has a state for each different element that may be the one that is gone.
func (v vector) eachRemoved() []interface{} {
	var states []interface{}
	for at, element := range v {
		if at == 0 || v[at-1] != element {
			states = append(states, v.without(at))
		}
	}
	return states
}

// place is where a number stands in an ascending vector, or should.
func (v vector) place(number int64) int {
	return sort.Search(len(v), func(at int) bool { return v[at] >= number })
}

func (v vector) inserted(number int64) vector {
	at := v.place(number)
	return v[:at].with(number).with(v[at:]...)
}

func (v vector) without(at int) vector { return v[:at].with(v[at+1:]...) }

// Sets. An element is a number; the state: the elements in ascending order.

var sets = map[string]maker{"set": set}

const (
	setAdd = iota
	setRemove
	setContains
	setRead
)

// set: add(element), remove(element), contains(element) -> whether it is there, read -> all.
//
// The result of an add and a remove is empty, or whether they changed the set; that of a read is in
// ascending order.
func set([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(vector)
		if op.f == setRead {
			return held.equals(op.result), held
		}
		element := op.argument[0]
		at := held.place(element)
		present := at < len(held) && held[at] == element
		if op.f == setContains {
			return (op.result[0] == 1) == present, held
		}
		changes := present == (op.f == setRemove)
		if len(op.result) > 0 && (op.result[0] == 1) != changes {
			return false, nil
		}
		switch {
		case !changes:
			return true, held
		case op.f == setAdd:
			return true, held.inserted(element)
		}
		return true, held.without(at)
	}
	return model{initial: vector{}, step: step, equal: equalVectors, hash: hashVector}
}

// Logs and counters.

var logs = map[string]maker{"log": appendLog, "counter": counter}

const (
	logAppend = iota
	logRead
	logTail
)

// appendLog: append(value) -> its offset, read(offset) -> value or nil, tail -> how many. Offsets
// begin at 0. The result of an append is empty if it does not say where.
func appendLog([]int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		held := state.(vector)
		end := int64(len(held))
		switch op.f {
		case logAppend:
			if len(op.result) > 0 && op.result[0] != end {
				return false, nil
			}
			return true, held.with(op.argument[0])
		case logTail:
			return op.result[0] == end, held
		}
		there := int64(nilValue)
		if offset := op.argument[0]; offset < end {
			there = held[offset]
		}
		return op.result[0] == there, held
	}
	return model{initial: vector{}, step: step, equal: equalVectors, hash: hashVector}
}

const (
	counterInc = iota
	counterDec
	counterRead
)

// counter: inc(n), dec(n), read -> the sum. The result of a read that was no integer is empty.
// Options: the first sum.
func counter(options []int64) model {
	step := func(state interface{}, op *operation) (bool, interface{}) {
		sum := state.(int64)
		switch op.f {
		case counterInc:
			return true, sum + op.argument[0]
		case counterDec:
			return true, sum - op.argument[0]
		}
		return len(op.result) > 0 && op.result[0] == sum, sum
	}
	return model{initial: options[0], step: step, hash: hashNumber}
}

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

// mutex: acquire, release by any process. The state: whether it is held.
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

// A fencedState is who holds a lock, and the last token that is known.
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

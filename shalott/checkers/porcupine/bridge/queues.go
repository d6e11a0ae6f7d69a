package main

import "sort"

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

package main

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

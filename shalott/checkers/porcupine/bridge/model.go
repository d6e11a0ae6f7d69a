package main

import "github.com/anishathalye/porcupine"

// A model is a sequential specification: step says whether an operation can have taken effect in a
// state with the result that it had, and what the state is then. What a crashed one returned is
// unknown, so any result that fits the state will do. steps replaces step where a crashed operation
// has more than one outcome.
//
// States are never changed. Without equal they are compared by ==.
type model struct {
	initial interface{}
	step    func(state interface{}, op *operation) (bool, interface{})
	steps   func(state interface{}, op *operation) []interface{}
	equal   func(one, other interface{}) bool
	hash    func(state interface{}) uint64
}

// A misuse is what a model panics with when it is asked for what its object does not do, as to
// append a number to a string: there is no verdict then.
type misuse string

// forPorcupine makes Porcupine's model of ours. guard does each step and says whether it did: if not,
// the check is over, and nothing is possible any more.
//
// A crashed operation may never take effect, but Porcupine puts every operation into the order. So
// a step that is impossible for a crashed one leaves the state alone: such operations return after
// all others, hence one that never took effect can stand at the end, where it changes nothing that
// any operation has seen.
func (m model) forPorcupine(guard func(op *operation, step func()) bool) porcupine.Model {
	if m.steps != nil {
		return m.nondeterministic(guard)
	}
	return porcupine.Model{
		Init: func() interface{} { return m.initial },
		Step: func(state, input, _ interface{}) (possible bool, next interface{}) {
			op := input.(*operation)
			done := guard(op, func() { possible, next = m.step(state, op) })
			if done && !possible && op.kind == crashed {
				return true, state
			}
			return possible, next
		},
		Equal: m.equal,
		Hash:  m.hash,
	}
}

func (m model) nondeterministic(guard func(op *operation, step func()) bool) porcupine.Model {
	several := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{m.initial} },
		Step: func(state, input, _ interface{}) (next []interface{}) {
			op := input.(*operation)
			done := guard(op, func() { next = m.steps(state, op) })
			if done && len(next) == 0 && op.kind == crashed {
				return []interface{}{state}
			}
			return next
		},
		Equal: m.equal,
		Hash:  m.hash,
	}
	return several.ToModel()
}

// A vector is a state, or a part of one, that is a sequence of numbers.
type vector []int64

func (v vector) equals(other vector) bool {
	if len(v) != len(other) {
		return false
	}
	for at, number := range v {
		if number != other[at] {
			return false
		}
	}
	return true
}

// with is v with more behind it, in memory of its own.
func (v vector) with(more ...int64) vector {
	longer := make(vector, 0, len(v)+len(more))
	return append(append(longer, v...), more...)
}

func equalVectors(one, other interface{}) bool { return one.(vector).equals(other.(vector)) }

func hashVector(state interface{}) uint64 { return hashNumbers(state.(vector)...) }

func hashNumber(state interface{}) uint64 { return hashNumbers(state.(int64)) }

// hashNumbers mixes each number as SplitMix64 does (Steele, Lea & Flood 2014).
func hashNumbers(numbers ...int64) uint64 {
	hash := uint64(len(numbers))
	for _, number := range numbers {
		hash += uint64(number) + 0x9e3779b97f4a7c15
		hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9
		hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb
		hash ^= hash >> 31
	}
	return hash
}

// What stands in a row of the history: checkers/porcupine/porcupine_columns.py writes it.
const (
	columnKey = iota
	columnF
	columnKind
	columnProcess
	columnCall
	columnReturn
	columnArgument // where its argument begins in the values
	columnResult   // where it ends, and the result begins
	columnEnd      // where that ends
	rowWidth
)

// How an operation ended.
const (
	ok      = iota
	failed  // it certainly did not happen, and the model takes that for an observation
	crashed // nobody knows: it may take effect at any time after its call, or never
)

// neverReturned is later than every rank.
const neverReturned = int64(^uint64(0) >> 1)

// An operation as a model sees it. Values are numbers such that equal numbers are equal values; a
// model says what its arguments and results hold. A crashed operation has no result.
type operation struct {
	row      int64
	f        int64
	kind     int64
	process  int64
	call     int64
	ret      int64
	argument []int64
	result   []int64
}

// A part holds the operations of one key: linearizability is local, so each is checked alone.
type part struct {
	key        int64
	operations []*operation
}

func decode(rows, values []int64) []part {
	var parts []part
	number := map[int64]int{}
	for at := 0; at < len(rows); at += rowWidth {
		row := rows[at : at+rowWidth]
		key := row[columnKey]
		if _, known := number[key]; !known {
			number[key] = len(parts)
			parts = append(parts, part{key: key})
		}
		of := &parts[number[key]]
		of.operations = append(of.operations, &operation{
			row:      int64(at / rowWidth),
			f:        row[columnF],
			kind:     row[columnKind],
			process:  row[columnProcess],
			call:     row[columnCall],
			ret:      row[columnReturn],
			argument: values[row[columnArgument]:row[columnResult]],
			result:   values[row[columnResult]:row[columnEnd]],
		})
	}
	return parts
}

package main

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

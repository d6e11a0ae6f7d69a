package main

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

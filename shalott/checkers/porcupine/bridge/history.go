package main

// What stands in a row of the history: checkers/porcupine/encode.py writes it.
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

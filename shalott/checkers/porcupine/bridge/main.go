// The bridge to Porcupine: a C library that checks one history for linearizability.
//
// Porcupine (github.com/anishathalye/porcupine) searches; the models are written here, from the
// sequential specification of each object, and share no code with those in Python. A history comes
// as int64 arrays (model.go says which), a check runs in goroutines of its own (run.go), and the
// caller waits for it, so that a signal of the caller's process is not held up.
package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"runtime/cgo"
	"time"
	"unsafe"
)

// shalott_start begins a check and returns its handle. The arrays are copied before it returns.
//
// rows has rowCount rows of rowWidth numbers, values what their offsets point into. A limit of 0 is
// none.
//
//export shalott_start
func shalott_start(
	model *C.char, options *C.int64_t, optionCount C.int64_t,
	rows *C.int64_t, rowCount C.int64_t, values *C.int64_t, valueCount C.int64_t,
	timeLimitNs C.int64_t, memoryLimitBytes C.int64_t,
) C.uintptr_t {
	r := newRun(int64(memoryLimitBytes))
	specification, err := makeModel(C.GoString(model), copied(options, optionCount))
	if err != nil {
		r.finish(broken, err.Error())
		return C.uintptr_t(cgo.NewHandle(r))
	}
	parts := decode(copied(rows, rowCount*rowWidth), copied(values, valueCount))
	go r.check(specification, parts, time.Duration(timeLimitNs))
	return C.uintptr_t(cgo.NewHandle(r))
}

// shalott_wait waits for the end of a check, for timeoutNs at most; 1 if it has ended, else 0.
// Then answer has: the verdict, the key that is not linearizable (-1: none), how many keys are
// decided, the most bytes that Go's heap held, the row that could not be understood (-1: none).
//
//export shalott_wait
func shalott_wait(handle C.uintptr_t, timeoutNs C.int64_t, answer *C.int64_t) C.int {
	r := cgo.Handle(handle).Value().(*run)
	timeout := time.NewTimer(time.Duration(timeoutNs))
	defer timeout.Stop()
	select {
	case <-r.done:
	case <-timeout.C:
		return 0
	}
	copy(unsafe.Slice((*int64)(answer), answerWidth), r.answer())
	return 1
}

// shalott_text is the sentence that goes with an answer, or "". The caller frees it with
// shalott_free.
//
//export shalott_text
func shalott_text(handle C.uintptr_t) *C.char {
	return C.CString(cgo.Handle(handle).Value().(*run).text)
}

//export shalott_free
func shalott_free(text *C.char) { C.free(unsafe.Pointer(text)) }

// shalott_close stops a check, if it still runs, and forgets it.
//
//export shalott_close
func shalott_close(handle C.uintptr_t) {
	cgo.Handle(handle).Value().(*run).stop(cancelled, "")
	cgo.Handle(handle).Delete()
}

func copied(numbers *C.int64_t, count C.int64_t) []int64 {
	if count == 0 {
		return nil
	}
	return append([]int64(nil), unsafe.Slice((*int64)(numbers), count)...)
}

// A maker builds a model from the options that checkers/porcupine/porcupine_columns.py sends with its name.
type maker func(options []int64) model

func makeModel(name string, options []int64) (model, error) {
	for _, family := range []map[string]maker{registers, queues, sets, locks, logs} {
		if made, ok := family[name]; ok {
			return made(options), nil
		}
	}
	return model{}, fmt.Errorf("the bridge has no model %s", name)
}

func main() {}

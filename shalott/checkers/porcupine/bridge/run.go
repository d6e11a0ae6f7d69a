package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// What a check found out: the names in checkers/porcupine/porcupine.py have the same order.
const (
	valid     = iota
	invalid   // a key is not linearizable
	outOfTime // the rest: not decided
	outOfMemory
	cancelled
	misused // an operation that the object does not do
	broken  // the bridge itself failed
)

const answerWidth = 5

const memoryLookedAtEvery = 50 * time.Millisecond

// A run is one check. Its fields may be read when done is closed.
type run struct {
	memoryLimit int64
	done        chan struct{}

	stopped int32 // atomic: 1 makes every step impossible, which ends the search

	mutex   sync.Mutex
	ended   bool
	verdict int64
	key     int64
	decided int64
	peak    int64
	row     int64
	text    string
}

func newRun(memoryLimit int64) *run {
	return &run{memoryLimit: memoryLimit, done: make(chan struct{}), key: -1, row: -1}
}

func (r *run) answer() []int64 { return []int64{r.verdict, r.key, r.decided, r.peak, r.row} }

// check searches all keys at once, as Porcupine does with its partitions: Go's scheduler lets no key
// starve another. The first key that is not linearizable ends it.
func (r *run) check(m model, parts []part, timeLimit time.Duration) {
	go r.watchMemory()
	searched := m.forPorcupine(r.guard)
	results := make(chan found, len(parts))
	began := time.Now()
	for _, each := range parts {
		go func(each part) {
			result := porcupine.Unknown
			if left := timeLimit - time.Since(began); timeLimit == 0 {
				result = porcupine.CheckOperationsTimeout(searched, each.history(), 0)
			} else if left > 0 {
				result = porcupine.CheckOperationsTimeout(searched, each.history(), left)
			}
			results <- found{each.key, result}
		}(each)
	}
	for range parts {
		r.hear(<-results)
	}
	r.finish(valid, "")
}

type found struct {
	key    int64
	result porcupine.CheckResult
}

func (p part) history() []porcupine.Operation {
	history := make([]porcupine.Operation, len(p.operations))
	for at, op := range p.operations {
		history[at] = porcupine.Operation{
			ClientId: int(op.process), Input: op, Call: op.call, Return: op.ret,
		}
	}
	return history
}

func (r *run) hear(of found) {
	if atomic.LoadInt32(&r.stopped) != 0 {
		return // it was not searched to its end, whatever it says
	}
	if of.result == porcupine.Illegal {
		r.mutex.Lock()
		if !r.ended {
			r.key = of.key
		}
		r.mutex.Unlock()
		r.stop(invalid, "")
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if of.result == porcupine.Ok {
		r.decided++
	} else {
		r.verdict = outOfTime
	}
}

// guard does one step, unless the check is over, and keeps a panic from ending the process.
func (r *run) guard(op *operation, step func()) (done bool) {
	if atomic.LoadInt32(&r.stopped) != 0 {
		return false
	}
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case misuse:
			r.stopAt(op.row, misused, string(problem))
		default:
			r.stopAt(op.row, broken, fmt.Sprint(problem))
		}
	}()
	step()
	return true
}

func (r *run) stopAt(row, verdict int64, text string) {
	r.mutex.Lock()
	if !r.ended {
		r.row = row
	}
	r.mutex.Unlock()
	r.stop(verdict, text)
}

// stop ends the search. The first reason counts.
func (r *run) stop(verdict int64, text string) {
	atomic.StoreInt32(&r.stopped, 1)
	r.finish(verdict, text)
}

func (r *run) finish(verdict int64, text string) {
	held := heapBytes()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	if held > r.peak {
		r.peak = held
	}
	if verdict != valid || r.verdict == valid { // a key that was out of time stays undecided
		r.verdict = verdict
	}
	r.text = text
	close(r.done)
}

// watchMemory stops a check that holds more than its limit. Porcupine remembers every configuration
// that it met, so a hard history would otherwise take what the machine has.
func (r *run) watchMemory() {
	ticks := time.NewTicker(memoryLookedAtEvery)
	defer ticks.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-ticks.C:
		}
		held := heapBytes()
		if r.memoryLimit != 0 && held > r.memoryLimit {
			runtime.GC() // some of it may be garbage, an earlier check's too
			if held = heapBytes(); held > r.memoryLimit {
				r.stop(outOfMemory, "")
			}
		}
		r.mutex.Lock()
		if held > r.peak {
			r.peak = held
		}
		r.mutex.Unlock()
	}
}

func heapBytes() int64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

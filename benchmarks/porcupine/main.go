// Checks one of the benchmarks' EDN histories with Porcupine: prints true, false or unknown.
//
// A crashed operation returns at the end of time, with an output that fits anything.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const none = math.MinInt32 // nil

var entry = regexp.MustCompile(`:process (\d+), :type :(\w+), :f :([\w-]+), :value (\S+|\[\d+ \d+\]), `)

type input struct {
	f    string
	a, b int
}

type output struct {
	value   int
	failed  bool
	unknown bool
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return none
	}
	return n
}

func read(path string) []porcupine.Operation {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	var operations []porcupine.Operation
	open := map[string]int{}
	lines := bufio.NewScanner(file)
	for at := int64(0); lines.Scan(); at++ {
		found := entry.FindStringSubmatch(lines.Text())
		if found == nil {
			panic("not an entry: " + lines.Text())
		}
		process, kind, f, value := found[1], found[2], found[3], found[4]
		if kind == "invoke" {
			asked := input{f: f, a: number(value)}
			if f == "cas" {
				pair := strings.Fields(strings.Trim(value, "[]"))
				asked.a, asked.b = number(pair[0]), number(pair[1])
			}
			client, _ := strconv.Atoi(process)
			open[process] = len(operations)
			operations = append(operations, porcupine.Operation{ClientId: client, Input: asked,
				Call: at, Output: output{unknown: true}, Return: math.MaxInt64})
			continue
		}
		if kind == "info" {
			continue
		}
		operation := &operations[open[process]]
		operation.Output = output{value: number(value), failed: kind == "fail"}
		operation.Return = at
	}
	return operations
}

func stepRegister(state, asked, answer interface{}) (bool, interface{}) {
	held, in, out := state.(int), asked.(input), answer.(output)
	switch in.f {
	case "read":
		return out.unknown || out.value == held, held
	case "write":
		return true, in.a
	}
	if out.unknown && held != in.a {
		return true, held // it may also have failed
	}
	if out.failed {
		return held != in.a, held
	}
	return held == in.a, in.b
}

// The state of a queue is its values, joined: it must be comparable.
func stepQueue(state, asked, answer interface{}) (bool, interface{}) {
	held, in, out := state.(string), asked.(input), answer.(output)
	if in.f == "enqueue" {
		return true, held + strconv.Itoa(in.a) + ","
	}
	first, rest, some := strings.Cut(held, ",")
	if !some {
		return out.unknown || out.value == none, held
	}
	return out.unknown || out.value == number(first), rest
}

func main() {
	model := porcupine.Model{Init: func() interface{} { return none }, Step: stepRegister}
	if os.Args[2] == "fifo-queue" {
		model = porcupine.Model{Init: func() interface{} { return "" }, Step: stepQueue}
	}
	switch porcupine.CheckOperationsTimeout(model, read(os.Args[1]), 10*time.Minute) {
	case porcupine.Ok:
		fmt.Println("true")
	case porcupine.Illegal:
		fmt.Println("false")
	default:
		fmt.Println("unknown")
	}
}

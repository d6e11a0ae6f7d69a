// A queue in a list of Redis, for `shalott test --client client.go`: a message is read, and taken
// off when it is settled.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

type request struct {
	ID                   int
	F, Key, Value, Token string
}
type answer struct {
	ID    int    `json:"id"`
	Type  string `json:"type"`
	Value any    `json:"value"`
	Token any    `json:"token"`
	Error string `json:"error"`
}

var conn net.Conn
var in *bufio.Reader

// What Redis answers, and how it ended: ok, fail (certainly nothing was done) or info.
func do(words ...string) (any, string, string) {
	if conn == nil {
		var err error
		at := os.Getenv("SHALOTT_HOST") + ":" + os.Getenv("SHALOTT_PORT")
		if conn, err = net.DialTimeout("tcp", at, time.Second); err != nil {
			conn = nil
			return nil, "fail", err.Error()
		}
		in = bufio.NewReader(conn)
	}
	fmt.Fprintf(conn, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(word), word)
	}
	line, err := in.ReadString('\n')
	if err == nil && line[0] == '$' && line[1] != '-' {
		line, err = in.ReadString('\n')
		return strings.TrimSpace(line), "ok", ""
	} else if err != nil {
		return nil, "info", err.Error()
	} else if line[0] == '-' {
		return nil, "fail", line
	}
	return nil, "ok", "" // a number, or nothing
}

func main() {
	lines, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if lines.Decode(&r) != nil {
			return
		}
		a := answer{ID: r.ID}
		switch r.F {
		case "send":
			_, a.Type, a.Error = do("RPUSH", r.Key, r.Value)
		case "receive":
			a.Value, a.Type, a.Error = do("LINDEX", r.Key, "0")
			a.Token = a.Value
		case "settle":
			_, a.Type, a.Error = do("LREM", r.Key, "1", r.Token)
		}
		out.Encode(a)
	}
}

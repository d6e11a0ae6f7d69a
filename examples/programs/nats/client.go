// A queue in JetStream, for `shalott test --workload queue --client client.go`.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

const api, next = "$JS.API.CONSUMER.", `{"batch":1,"no_wait":true}`

type answer map[string]any

var conn net.Conn
var in *bufio.Reader
var asked int

// What a subject answers: whether it did, where it may be told more, and its body.
func ask(subject, body, also string) (came bool, reply, said string) {
	asked++
	inbox := fmt.Sprintf("in%d.%d", os.Getpid(), asked)
	fmt.Fprintf(conn, "PUB %s %s %d\r\n%s\r\n", subject, inbox, len(body), body)
	conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	for {
		line, err := in.ReadString('\n')
		if words := strings.Fields(line); err != nil {
			return false, "", ""
		} else if words[0] == "PING" {
			fmt.Fprint(conn, "PONG\r\n")
		} else if size := 0; words[0] == "MSG" {
			fmt.Sscan(words[len(words)-1], &size)
			text := make([]byte, size+2)
			if io.ReadFull(in, text); words[1] == inbox || words[1] == also {
				return true, words[3], string(text[:size])
			}
		}
	}
}

func perform(f, key, value, token string) answer {
	if conn == nil {
		at := os.Getenv("SHALOTT_HOST") + ":" + os.Getenv("SHALOTT_PORT")
		c, err := net.DialTimeout("tcp", at, time.Second)
		if err != nil {
			return answer{"type": "fail", "error": err.Error()}
		}
		conn, in = c, bufio.NewReader(c)
		fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB in%d.* 1\r\n", os.Getpid())
		ask("$JS.API.STREAM.CREATE."+key, fmt.Sprintf(`{"name":"%s","subjects":["%s"],`+
			`"num_replicas":3,"retention":"workqueue"}`, key, key), "")
		ask(api+"DURABLE.CREATE."+key+".c", fmt.Sprintf(`{"stream_name":"%s","config"`+
			`:{"durable_name":"c","ack_policy":"explicit","ack_wait":2000000000}}`, key), "")
	}
	if f == "send" {
		if _, _, said := ask(key, value, ""); strings.Contains(said, `"seq"`) {
			return answer{"type": "ok"}
		}
	} else if f == "settle" {
		came, _, _ := ask(token, "+ACK", "")
		return answer{"type": map[bool]string{true: "ok", false: "info"}[came]}
	} else if _, reply, said := ask(api+"MSG.NEXT."+key+".c", next, key); said != "" {
		return answer{"type": "ok", "value": said, "token": reply}
	} else if _, _, said := ask(api+"INFO."+key+".c", "", ""); strings.Contains(said,
		`"num_ack_pending":0,`) && strings.Contains(said, `"num_pending":0`) {
		return answer{"type": "ok"}
	} else {
		return answer{"type": "fail", "error": "no answer, or others have messages"}
	}
	return answer{"type": "info", "error": "no answer"}
}

func main() {
	lines, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r struct{ ID, F, Key, Value, Token any }
		if lines.Decode(&r) != nil {
			return
		}
		a := perform(fmt.Sprint(r.F), fmt.Sprint(r.Key), fmt.Sprint(r.Value), fmt.Sprint(r.Token))
		a["id"] = r.ID
		out.Encode(a)
	}
}

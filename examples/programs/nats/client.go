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
const stream = `{"name":"%s","subjects":["%s"],"num_replicas":3,"retention":"workqueue"}`
const consumer = `{"stream_name":"%s","config":{"durable_name":"c","ack_policy":"explicit","ack_wait":2000000000}}`

type answer map[string]any
var conn net.Conn
var in *bufio.Reader
var made string // of which there is a stream

// What a subject answers: where it may be told more, and its body; "" if nothing comes.
func ask(subject, body, also string) (reply, said string) {
	inbox := fmt.Sprintf("in%d.%d", os.Getpid(), time.Now().UnixNano())
	fmt.Fprintf(conn, "PUB %s %s %d\r\n%s\r\n", subject, inbox, len(body), body)
	conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
		if words, size := strings.Fields(line), 0; words[0] == "MSG" {
			fmt.Sscan(words[len(words)-1], &size)
			text := make([]byte, size+2)
			if io.ReadFull(in, text); words[1] == inbox || words[1] == also {
				return words[3], string(text)
			}
		}
	}
	return "", ""
}

func perform(f, key, value, token string) answer {
	if f == "settle" {
		_, value = ask(token, "+ACK", "")
		return answer{"type": map[bool]string{true: "ok", false: "info"}[value != ""]}
	}
	if made != key {
		ask("$JS.API.STREAM.CREATE."+key, fmt.Sprintf(stream, key, key), "")
		ask(api+"DURABLE.CREATE."+key+".c", fmt.Sprintf(consumer, key), "")
	}
	if made = key; f == "send" {
		_, said := ask(key, value, "")
		return answer{"type": map[bool]string{true: "ok", false: "info"}[strings.Contains(said, `"seq"`)]}
	}
	if reply, said := ask(api+"MSG.NEXT."+key+".c", next, key); len(said) > 2 {
		return answer{"type": "ok", "value": strings.TrimSpace(said), "token": reply}
	}
	_, said := ask(api+"INFO."+key+".c", "", "")
	none := strings.Contains(said, `"num_ack_pending":0,`) && strings.Contains(said, `"num_pending":0`)
	return answer{"type": map[bool]string{true: "ok", false: "fail"}[none]}
}

func main() {
	lines, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for r := (answer{}); lines.Decode(&r) == nil; r = (answer{}) {
		if conn == nil {
			at := os.Getenv("SHALOTT_HOST") + ":" + os.Getenv("SHALOTT_PORT")
			if conn, _ = net.DialTimeout("tcp", at, time.Second); conn != nil {
				in = bufio.NewReader(conn)
				fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB in%d.* 1\r\n", os.Getpid())
			}
		}
		a := answer{"type": "fail", "error": "no connection"}
		if key := strings.ReplaceAll(fmt.Sprint(r["key"]), ".", "-"); conn != nil {
			a = perform(fmt.Sprint(r["f"]), key, fmt.Sprint(r["value"]), fmt.Sprint(r["token"]))
		}
		a["id"] = r["id"]
		out.Encode(a)
	}
}

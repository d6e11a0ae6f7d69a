// etcd itself, which first asks whether it founds a cluster or joins one.
package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

type answer struct {
	Members []struct {
		Name     string   `json:"name"`
		PeerURLs []string `json:"peerURLs"`
	} `json:"members"`
}

// members of the cluster that one of the addresses serves, as --initial-cluster wants them; "" if none does.
// One that was let in and has not started has no name yet: its host has.
func members(clients []string) string {
	for _, client := range clients {
		asked := http.Client{Timeout: time.Second}
		response, err := asked.Post(client+"/v3/cluster/member/list", "application/json", bytes.NewReader([]byte("{}")))
		if err != nil {
			continue
		}
		var told answer
		err = json.NewDecoder(response.Body).Decode(&told)
		response.Body.Close()
		if err != nil || len(told.Members) == 0 {
			continue
		}
		var found []string
		for _, member := range told.Members {
			name := member.Name
			if name == "" {
				name = strings.Split(strings.TrimPrefix(member.PeerURLs[0], "http://"), ":")[0]
			}
			found = append(found, name+"="+member.PeerURLs[0])
		}
		return strings.Join(found, ",")
	}
	return ""
}

// SHALOTT_CLIENTS: where the other nodes serve clients. With data of an earlier life etcd ignores what is asked here.
func main() {
	if clients := os.Getenv("SHALOTT_CLIENTS"); clients != "" {
		if found := members(strings.Split(clients, ",")); found != "" {
			os.Args = append(os.Args, "--initial-cluster-state=existing", "--initial-cluster="+found)
		}
	}
	etcdmain.Main(os.Args)
}

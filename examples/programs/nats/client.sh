#!/bin/bash
# A log for each key in JetStream, for `shalott test --workload partitions --client client.sh`.

answer() { # TYPE, and what else it says
    printf '{"id": %d, "type": "%s"%s}\n' "$id" "$1" "$2"
}

connect() {
    [ -n "$connected" ] && return
    timeout 1 bash -c "exec 4<>/dev/tcp/$SHALOTT_HOST/$SHALOTT_PORT" 2>/dev/null || return 1
    exec 3<>"/dev/tcp/$SHALOTT_HOST/$SHALOTT_PORT" || return 1
    printf 'CONNECT {"verbose": false}\r\nSUB answers%d.* 1\r\n' $$ >&3
    connected=yes
}

ask() { # SUBJECT BODY: what comes back is in $said
    asked=$((asked + 1))
    printf 'PUB %s answers%d.%d %d\r\n%s\r\n' "$1" $$ "$asked" "${#2}" "$2" >&3
    while read -r -t 3 line <&3; do
        case $line in
            PING*) printf 'PONG\r\n' >&3 ;;
            MSG*) read -r -t 3 said <&3 && [[ $line == *answers$$.$asked\ * ]] && return ;;
        esac
    done
    return 1
}

stream() { # KEY: it is there
    [ -n "${there[$1]}" ] && return
    ask "\$JS.API.STREAM.CREATE.K$1" '{"name": "K'"$1"'", "subjects": ["K'"$1"'"], "num_replicas": 3}'
    ask "\$JS.API.STREAM.INFO.K$1" "" && [[ $said != *'"error"'* ]] && there[$1]=yes
}

send() { # KEY VALUE
    stream "$1" || { answer fail ', "error": "no stream"'; return; }
    if ask "K$1" "$2" && [[ $said =~ \"seq\":\ ?([0-9]+) ]]; then
        answer ok ", \"value\": ${BASH_REMATCH[1]}"
    else
        answer info ", \"error\": \"no acknowledgement\""
    fi
}

poll() { # KEY:OFFSET ...
    local found="" pairs key at
    for place in "$@"; do
        key=${place%:*} at=${place#*:} pairs=""
        stream "$key" || { answer fail ', "error": "no stream"'; return; }
        [ "$at" -eq 0 ] && at=1
        for ((end = at + 20; at < end; at++)); do
            ask "\$JS.API.STREAM.MSG.GET.K$key" "{\"seq\": $at}" || {
                answer fail ', "error": "no answer"'; return
            }
            if [[ $said =~ \"data\":\ ?\"([^\"]*)\" ]]; then
                pairs+=", [$at, $(base64 -d <<<"${BASH_REMATCH[1]}")]"
            elif [[ $said == *'no message found'* ]]; then
                break
            else
                answer fail ", \"error\": \"no leader\""; return
            fi
        done
        found+=", \"$key\": [${pairs:2}]"
    done
    answer ok ", \"value\": {${found:2}}"
}

declare -A there
while read -r request; do
    [[ $request =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    if ! connect; then
        answer fail ', "error": "no connection"'
    elif [[ $request =~ \"f\":\"send\",\"key\":\"?([^\",]+)\"?,\"value\":([0-9]+) ]]; then
        send "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
    else
        places=${request#*\"value\":\{} places=${places%%\}*}
        IFS=, read -r -a each <<<"${places//\"/}"
        poll "${each[@]}"
    fi
done

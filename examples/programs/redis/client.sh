#!/bin/bash
# A log for each key in a list of Redis, whose places are the offsets, for
# `shalott test --workload partitions --client client.sh`.

answer() { # TYPE, and what else it says
    printf '{"id": %d, "type": "%s"%s}\n' "$id" "$1" "$2"
}

connect() {
    [ -n "$connected" ] && return
    timeout 1 bash -c "exec 4<>/dev/tcp/$SHALOTT_HOST/$SHALOTT_PORT" 2>/dev/null || return 1
    exec 3<>"/dev/tcp/$SHALOTT_HOST/$SHALOTT_PORT" && connected=yes
}

take() { # a line of what Redis says, without its end
    read -r -t 3 -u 3 line || return 1
    line=${line%$'\r'}
}

ask() { # WORD ...: what comes back is in the list $said; $refused: Redis did nothing
    local words="*$#\r\n" count
    for word in "$@"; do words+="\$${#word}\r\n$word\r\n"; done
    printf '%b' "$words" >&3
    said=() refused=""
    take || return 1
    case $line in
        -*) refused=${line#-} && return 1 ;;
        :*) said=("${line#:}") ;;
        \**) for ((count = ${line#\*}; count > 0; count--)); do
            take && take && said+=("$line") || return 1
        done ;;
    esac
}

failed() { # what is to be said of a request that was not answered, or refused
    if [ -n "$refused" ]; then
        answer fail ", \"error\": \"${refused//\"/}\""
    else
        answer info ', "error": "no answer"'
    fi
}

poll() { # KEY:OFFSET ...
    local found="" pairs at
    for place in "$@"; do
        at=${place#*:} pairs=""
        ask LRANGE "${place%:*}" "$at" $((at + 99)) || { failed; return; }
        for value in "${said[@]}"; do pairs+=", [$((at++)), $value]"; done
        found+=", \"${place%:*}\": [${pairs:2}]"
    done
    answer ok ", \"value\": {${found:2}}"
}

while read -r request; do
    [[ $request =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    if ! connect; then
        answer fail ', "error": "no connection"'
    elif [[ $request =~ \"f\":\"send\",\"key\":\"?([^\",]+)\"?,\"value\":([0-9]+) ]]; then
        if ask RPUSH "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"; then
            answer ok ", \"value\": $((said - 1))"
        else
            failed
        fi
    else
        places=${request#*\"value\":\{} places=${places%%\}*}
        IFS=, read -r -a each <<<"${places//\"/}"
        poll "${each[@]}"
    fi
done

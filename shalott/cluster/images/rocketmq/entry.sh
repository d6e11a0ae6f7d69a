#!/bin/bash
# Runs the services of a node, a Java machine each, until one of them ends: then the node ends, with that one's code.
#   entry.sh CONFIG_DIR DATA_DIR SERVICE ...
# A service's properties are copied to the data directory first: an operator's changes are written there.
config=$1 data=$2
shift 2

# AFTER: what a broker that has nothing yet waits for, "name-servers" or "master", and for how many seconds at most.
# REGISTERS: it is asked to register as soon as it can; who elects it does that elsewhere.
# UNRIVALLED: for how many seconds at most a master that is back waits while there is another.
run() { # service, its properties
    if [ "$1" = broker ] && [ -n "${AFTER:-}" ] && [ ! -d "$data/store" ]; then
        read -r what patience <<<"$AFTER"
        python3 /opt/rocketmq/await_others.py "$2" "$what" "$patience"
        if [ -n "${REGISTERS:-}" ]; then (python3 /opt/rocketmq/await_others.py "$2" registered "$patience" &); fi
    elif [ "$1" = broker ] && [ -n "${UNRIVALLED:-}" ] && [ -z "$promoted" ]; then
        python3 /opt/rocketmq/await_others.py "$2" unrivalled "$UNRIVALLED"
    fi
    printf '%s INFO Shalott [entry] starting\n' "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)" >>"$data/log/$1.log"
    exec /opt/rocketmq/service.sh "$1" "$2" "$data/log/$1.log"
}

mkdir -p "$data/conf" "$data/log"
# An operator's mark: this broker's messages are not to be kept (operator.py).
if [ -e "$data/conf/empty-store" ]; then rm -rf "$data/store" "$data/conf/empty-store"; fi
# Another one: he made it the master in another's place, who may still be named.
promoted=
if [ -e "$data/conf/promoted" ]; then promoted=yes && rm -f "$data/conf/promoted"; fi
for service in "$@"; do
    own=$data/conf/$service.properties
    [ -s "$own" ] || cp "$config/$service.properties" "$own"
    run "$service" "$own" &
done
asked=
trap 'asked=yes' TERM INT
wait -n
code=$?
if [ -n "$asked" ]; then
    wait # tini told them all
    exit 0
fi
kill -TERM $(jobs -p) 2>/dev/null
wait
exit "$code"

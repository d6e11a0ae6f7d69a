#!/bin/bash
# Run once, when the image is made: starts each service, ends it as soon as it serves, and keeps the classes that it loaded
# in an archive, from which later starts map them. A release whose classes can't be archived starts without.
set -u
work=$(mktemp -d)
mkdir -p "$work/log"
cat >"$work/broker.properties" <<PROPERTIES
brokerClusterName=c
brokerName=b
brokerId=0
namesrvAddr=127.0.0.1:9876
storePathRootDir=$work/store
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=60000
maxIndexNum=40000
timerWheelEnable=false
PROPERTIES
cat >"$work/controller.properties" <<PROPERTIES
controllerDLegerGroup=g
controllerDLegerPeers=n0-127.0.0.1:9878
controllerDLegerSelfId=n0
controllerStorePath=$work/controller
PROPERTIES
printf 'listenPort=9876\nenableControllerInNamesrv=true\n' | cat - "$work/controller.properties" >"$work/nameserver.properties"

serves() { # log, output: a service says so when it does
    for _ in $(seq 240); do
        grep -q "boot success" "$1" && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.25
    done
    return 1
}
for service in "$@"; do
    said=$work/$service.out
    /opt/rocketmq/service.sh "$service" "$work/$service.properties" "$work/log/$service.log" \
        -XX:ArchiveClassesAtExit="/opt/rocketmq/$service.jsa" -Xlog:cds=off -Xlog:cds+dynamic=off >"$said" 2>&1 &
    pid=$!
    if serves "$said" "$pid"; then sleep 1; else cat "$said"; fi
    kill -TERM "$pid" 2>/dev/null
    wait "$pid"
done
rm -rf "$work"
ls -l /opt/rocketmq/*.jsa 2>/dev/null || echo "no classes were archived"

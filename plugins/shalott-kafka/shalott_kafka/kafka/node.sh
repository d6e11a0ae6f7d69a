#!/bin/bash
# Becomes the Java machine of a node: node.sh PROPERTIES LOG_DIRECTORY. HEAP: how large; OPTIONS: more options of java.
# A node that has nothing yet gets what formatting gives it.
set -eu
properties=$1 log=$2
if [ ! -s "$log/meta.properties" ]; then
    mkdir -p "$log"
    cp -r /opt/kafka/format/. "$log/"
    grep '^node.id=' "$properties" >>"$log/meta.properties"
    # An operator formats long before the power is lost. Each by itself: of a whole file system's sync
    # (sync -f) a disk in user space, such as loses power here, is not told by the kernel.
    find "$log" -exec sync {} +
    sync "$(dirname "$log")"
fi
options=(
    -Xmx"${HEAP:-256m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k
    -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
)
if [ -f /opt/kafka/classes.jsa ]; then options+=(-XX:SharedArchiveFile=/opt/kafka/classes.jsa -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off); fi
read -ra more <<<"${OPTIONS:-}"
exec java "${options[@]}" ${more[@]+"${more[@]}"} -cp "$(cat /opt/kafka/classpath)" kafka.Kafka "$properties"

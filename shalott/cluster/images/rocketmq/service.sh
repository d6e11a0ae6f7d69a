#!/bin/bash
# Becomes the Java machine of one service: service.sh nameserver|broker|controller CONFIG LOG [option of java ...]
# HEAP_<SERVICE> in the environment are its heap's options. A machine starts from the classes that were archived when the
# image was made.
set -eu
service=$1 config=$2 log=$3
shift 3
case $service in
    nameserver) main=org.apache.rocketmq.namesrv.NamesrvStartup ;;
    broker) main=org.apache.rocketmq.broker.BrokerStartup ;;
    controller) main=org.apache.rocketmq.controller.ControllerStartup ;;
    *) echo "there is no service $service" >&2; exit 64 ;;
esac
archive=/opt/rocketmq/$service.jsa
heap="HEAP_${service^^}"
export ROCKETMQ_HOME=/opt/rocketmq
options=(
    -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:CICompilerCount=1
    -XX:MaxDirectMemorySize=512m -Xss512k -XX:ReservedCodeCacheSize=48m
    -Duser.home=/data -Dshalott.log="$log" -Drmq.logback.configurationFile=/opt/rocketmq/conf/logback.xml
    -Drocketmq.client.logUseSlf4j=true
    -Dtls.server.mode=disabled
    -Dio.netty.allocator.numDirectArenas=2 -Dio.netty.allocator.numHeapArenas=2
    --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
    --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
    --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.math=ALL-UNNAMED
)
if [ -f "$archive" ]; then options+=(-XX:SharedArchiveFile="$archive" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off); fi
read -ra sizes <<<"${!heap:--Xms48m -Xmx256m}"
exec java "${sizes[@]}" "${options[@]}" "$@" -cp "$(cat /opt/rocketmq/classpath)" "$main" -c "$config"

#!/bin/bash
# Run once, when the image is made: formats a directory, from which nodes copy what is the same for all of them, and starts a
# node for a moment, whose classes are kept in an archive from which later starts map them.
set -eu
cd /opt/kafka
printf '%s' "$PWD"/lib/*.jar | sed 's#jar/opt#jar:/opt#g' >classpath
work=$(mktemp -d)
cat >"$work/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/log
PROPERTIES
java -cp "$(cat classpath)" kafka.tools.StorageTool format -t shalottshalottshalot2w -c "$work/server.properties"
cp -r "$work/log" format
grep -vE '^(node|directory)[.]id=' "$work/log/meta.properties" >format/meta.properties
OPTIONS="-XX:ArchiveClassesAtExit=/opt/kafka/classes.jsa" ./node.sh "$work/server.properties" "$work/log" >"$work/said" 2>&1 &
for _ in $(seq 240); do
    if grep -q "Kafka Server started" "$work/said"; then break; fi
    kill -0 $! && sleep 0.25
done
grep "Kafka Server started" "$work/said" || { cat "$work/said"; exit 1; }
kill -TERM $!
wait $! || true # of 143
rm -rf "$work"
ls -l classes.jsa

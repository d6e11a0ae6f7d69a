#!/bin/bash
# Runs the services of a node, a Java machine each: node.sh CONFIG_DIR DATA_DIR SERVICE ...
# broker: Artemis, by CONFIG_DIR/broker.xml. It stops itself when it has lost its lock or a vote, and is then started
# again, in its place: whoever ends the node with it takes the keeper away from the brokers that still need a majority.
# keeper: a server of ZooKeeper, by CONFIG_DIR/keeper.cfg. The node ends with it.
# HEAP: how large a broker's heap is; OPTIONS: more options of java for it.
set -u
config=$1 data=$2
shift 2
usual=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xss512k -cp "$(cat /opt/artemis/classpath)")
read -ra options <<<"${OPTIONS:-}"
if [ -f /opt/artemis/classes.jsa ]; then options+=(-XX:SharedArchiveFile=/opt/artemis/classes.jsa -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off); fi
run() {
    case $1 in
        broker)
            cp "$config/broker.xml" /opt/artemis/instance/etc/broker.xml
            exec java -Xmx"${HEAP:-256m}" ${options[@]+"${options[@]}"} "${usual[@]}" --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED \
                -Djava.security.auth.login.config=/opt/artemis/instance/etc/login.config \
                -Dartemis.home=/opt/artemis -Dartemis.instance=/opt/artemis/instance \
                -Dartemis.instance.etc=/opt/artemis/instance/etc -Ddata.dir="$data/artemis" \
                -Dlog4j2.configurationFile=/opt/artemis/instance/etc/log4j2.properties \
                org.apache.activemq.artemis.cli.Artemis run ;;
        keeper)
            mkdir -p "$data/keeper" && cp "$config/myid" "$data/keeper/myid"
            exec java -Xmx64m "${usual[@]}" -Dzookeeper.admin.enableServer=false \
                org.apache.zookeeper.server.quorum.QuorumPeerMain "$config/keeper.cfg" ;;
    esac
}
asked=
trap 'asked=yes' TERM INT
run_again() {
    trap 'asked=yes' TERM INT # which a shell in the background does not inherit
    while [ -z "$asked" ]; do
        run "$1" &
        wait $!
        [ -n "$asked" ] || sleep 1 # as a service manager waits, which starts it for ever
    done
    kill -TERM $! 2>/dev/null
    wait
}
for service in "$@"; do
    if [ "$service" = broker ]; then run_again broker & else run "$service" & fi
done
wait -n
code=$?
if [ -n "$asked" ]; then
    wait # tini told them all
    exit 0
fi
kill -TERM $(jobs -p) 2>/dev/null
wait
exit "$code"

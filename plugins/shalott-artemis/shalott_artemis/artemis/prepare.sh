#!/bin/bash
# Run once, when the image is made: makes the files that every broker has beside its configuration, and starts one for a moment,
# whose classes are kept in an archive from which later starts map them.
set -eu
cd /opt/artemis
bin/artemis create --silent --user shalott --password shalott --allow-anonymous --no-web --nio --no-autotune instance
printf '%s' "$PWD"/lib/*.jar | sed 's#jar/opt#jar:/opt#g' >classpath
work=$(mktemp -d)
cp instance/etc/broker.xml "$work/"
OPTIONS="-XX:ArchiveClassesAtExit=/opt/artemis/classes.jsa" ./node.sh "$work" "$work/data" broker >"$work/said" 2>&1 &
for _ in $(seq 240); do
    if grep -q "Server is now active" "$work/said"; then break; fi
    kill -0 $! && sleep 0.25
done
grep "Server is now active" "$work/said" || { cat "$work/said"; exit 1; }
pkill -TERM -P $!
wait $! || true # of 143
rm -rf "$work" data
ls -l classes.jsa

#!/bin/sh
# entry.sh NAME CONFIG DATA: a server, and beside it a sentinel if there is a configuration for one. Both write
# their configurations anew, so they lie with the data, and the first ones count only on an empty disk.
set -eu
name=$1 config=$2 data=$3
for file in server.conf sentinel.conf; do
    if [ -e "$config/$file" ] && [ ! -s "$data/$file" ]; then
        cp "$config/$file" "$data/$file.new"
        mv "$data/$file.new" "$data/$file"
    fi
done
cd "$data"
if [ -e sentinel.conf ]; then "$name-sentinel" "$data/sentinel.conf" & fi
exec "$name-server" "$data/server.conf"

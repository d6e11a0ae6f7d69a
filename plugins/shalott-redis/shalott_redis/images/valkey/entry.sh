#!/bin/sh
# entry.sh SERVER CONFIG DATA: a server, and beside it a sentinel if there is a configuration for one. Both write
# their configurations anew, so they lie with the data, and the first ones count only on an empty disk.
set -eu
server=$1 config=$2 data=$3
for file in server.conf sentinel.conf; do
    if [ -e "$config/$file" ] && [ ! -s "$data/$file" ]; then
        cp "$config/$file" "$data/$file.new"
        mv "$data/$file.new" "$data/$file"
    fi
done
cd "$data"
if [ -e sentinel.conf ]; then "${server%server}sentinel" "$data/sentinel.conf" & fi
exec "$server" "$data/server.conf"

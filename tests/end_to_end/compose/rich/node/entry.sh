#!/bin/sh
cd /data
exec redis-server /etc/extra.conf --port "$REDIS_PORT" --bind 0.0.0.0 --maxmemory "$MAXMEM" $(cat /conf/pass.conf | sed 's/^/--/') "$@"

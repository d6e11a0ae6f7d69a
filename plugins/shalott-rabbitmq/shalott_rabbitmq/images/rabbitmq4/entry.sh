#!/bin/sh
# Prepares the data volume and the cluster's cookie, then becomes the command as the package's own user.
set -eu
mkdir -p /data/mnesia /data/log
chown rabbitmq:rabbitmq /data /data/mnesia /data/log
cookie=/var/lib/rabbitmq/.erlang.cookie
rm -f "$cookie"
(umask 377 && printf '%s' "$SHALOTT_COOKIE" >"$cookie")
chown rabbitmq:rabbitmq "$cookie"
export HOME=/var/lib/rabbitmq
# Debian's script of that name hides what is printed, a boot that fails too.
export PATH="/usr/lib/rabbitmq/bin:$PATH"
exec setpriv --reuid rabbitmq --regid rabbitmq --init-groups "$@"

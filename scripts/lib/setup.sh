# Shared by scripts/demo, scripts/test and tox.ini: prepares .venv and the machine. Source it; it defines functions
# and runs nothing.
#
# Rules: never ask a question; install system packages only as root on a machine with apt, otherwise print the
# command that does it; be quick when everything is there; send what is slow and noisy to a log file.
# shellcheck shell=bash

PROJECT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
VENV="$PROJECT_ROOT/.venv"
VENV_STAMP="$VENV/.shalott-installed"
LOG_DIR="$PROJECT_ROOT/build/logs"
SETUP_LOG="$LOG_DIR/setup.log"
APT_REFRESHED=""
DOCKERD_STARTED_PID=""   # set by start_engine when the engine is ours

mkdir -p "$LOG_DIR"

say() { printf '%s\n' "shalott: $*" >&2; }

# run_awaited COMMAND...  runs it and answers its exit code. A signal to this script alone is passed on, and the command
# is given the time to clean up: were it in the foreground, the script would die of SIGTERM and leave it behind.
run_awaited() {
    local child status signalled=yes
    env --default-signal=INT,QUIT "$@" <&0 &
    child=$!
    trap 'signalled=yes' INT     # the terminal sent it to the command too
    trap 'signalled=yes; kill -TERM "$child" 2>/dev/null || true' TERM HUP
    while [ -n "$signalled" ]; do
        signalled="" status=0
        wait "$child" || status=$?
    done
    trap - INT TERM HUP
    return "$status"
}

# --- system packages ---------------------------------------------------------------------------------------------

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

# install_command PACKAGE...  prints what a person would type.
install_command() { printf 'sudo apt-get update && sudo apt-get install -y --no-install-recommends %s' "$*"; }

# one_at_a_time COMMAND...  apt-get does not wait for another apt-get: two scripts of ours side by side do.
one_at_a_time() { flock "$LOG_DIR/apt.lock" "$@"; }

# refresh_packages  reads the package lists once in the life of this shell; a fresh machine has none.
refresh_packages() {
    [ -z "$APT_REFRESHED" ] || return 0
    one_at_a_time apt-get update -q >>"$SETUP_LOG" 2>&1 </dev/null 9>&- && APT_REFRESHED=yes
}

is_packaged() { [ -n "$(apt-cache show "$1" 2>/dev/null)" ]; }

# install_packages PACKAGE...  installs them, or says how to and returns 1.
install_packages() {
    if ! can_install; then
        say "missing: $*. Install with:"
        printf '    %s\n' "$(install_command "$@")" >&2
        return 1
    fi
    say "installing $* (log: ${SETUP_LOG#"$PROJECT_ROOT"/})"
    refresh_packages || true
    if ! DEBIAN_FRONTEND=noninteractive one_at_a_time apt-get install -q -y --no-install-recommends "$@" \
        >>"$SETUP_LOG" 2>&1 </dev/null 9>&-; then
        tail -n 5 "$SETUP_LOG" >&2
        say "could not install $*. Try: $(install_command "$@")"
        return 1
    fi
}

# ensure_commands COMMAND=PACKAGE...  installs the packages of the commands that are absent.
ensure_commands() {
    local pair missing=()
    for pair in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# --- Python ------------------------------------------------------------------------------------------------------

python_works() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# find_python  prints the interpreter to make .venv with: the newest that is tested, then whatever is new enough.
find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 && python_works "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# packaged_python  prints the newest python3.N that this machine's apt offers, or nothing.
packaged_python() {
    local version
    for version in 3.13 3.12 3.11; do
        if is_packaged "python$version-venv"; then
            printf 'python%s\n' "$version"
            return 0
        fi
    done
}

ensure_python() {
    PYTHON="$(find_python)" && return 0
    local package=python3.11
    if can_install; then
        refresh_packages || true
        package="$(packaged_python)"
        if [ -z "$package" ]; then
            say "Python 3.11 or newer is needed, and this machine's apt has none. See https://www.python.org/downloads/"
            return 1
        fi
    fi
    install_packages "$package" "$package-venv" || return 1
    PYTHON="$(find_python)"
}

# Debian ships python3 without ensurepip; python3.N-venv brings it.
ensure_venv_module() {
    "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 && return 0
    install_packages "python$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
}

# ensure_compiler PYTHON  what building the engine takes: a C compiler with its library, and that Python's headers.
ensure_compiler() {
    local missing=()
    printf '#include <stdlib.h>\n' | gcc -E - >/dev/null 2>&1 || missing+=(gcc libc6-dev)
    "$1" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
        || missing+=("$("$1" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')")
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# engine_digest  changes with anything that the engine is built from. _engine.c is written by the build.
engine_digest() {
    (
        cd "$PROJECT_ROOT"
        find setup.py shalott/checkers/engine -maxdepth 1 \( -name '*.[ch]' -o -name build_engine.py -o -name setup.py \) \
            ! -name _engine.c -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    ) | sha256sum
}

# wanted_stamp EXTRAS  what the stamp file must hold: the project's place, its dependencies and the plug-ins', the extras
# installed, and what the engine is built from.
wanted_stamp() {
    printf '%s\n%s\n%s\n%s\n' "$PROJECT_ROOT" \
        "$(cd "$PROJECT_ROOT" && cat pyproject.toml plugins/*/pyproject.toml | sha256sum)" "$1" "$(engine_digest)"
}

# merged_extras EXTRA...  the extras asked for and those already installed, sorted, comma separated.
merged_extras() {
    local installed=""
    [ -f "$VENV_STAMP" ] && installed="$(sed -n 3p "$VENV_STAMP")"
    printf '%s\n' "$installed" "$@" | tr , '\n' | sed '/^$/d' | sort -u | paste -sd, -
}

# setup_venv [EXTRA...]  .venv with the project installed in it, editable. Does nothing when nothing changed. An extra
# with a slash is a plug-in of ours, by its directory: plugins/shalott-nats.
setup_venv() {
    local extras
    exec 9<"$PROJECT_ROOT"     # two scripts at once: the second waits for the first
    flock 9
    extras="$(merged_extras "$@")"
    if [ ! -f "$VENV_STAMP" ] || [ "$(cat "$VENV_STAMP")" != "$(wanted_stamp "$extras")" ] \
        || [ ! -x "$VENV/bin/python" ]; then
        install_venv "$extras" || { exec 9<&-; return 1; }
    fi
    exec 9<&-
}

install_venv() {
    local extras plugins words=()
    extras="$(tr , '\n' <<<"$1" | sed '/\//d' | paste -sd, -)"
    plugins="$(tr , '\n' <<<"$1" | sed -n '/\//p')"
    words=(-e ".${extras:+[$extras]}")
    for plugin in $plugins; do words+=(-e "$plugin"); done
    if ! python_works "$VENV/bin/python"; then
        ensure_python && ensure_venv_module || return 1
        say "making .venv with $("$PYTHON" --version 2>&1)"
        "$PYTHON" -m venv --clear "$VENV" >>"$SETUP_LOG" 2>&1 9>&- || { tail -n 5 "$SETUP_LOG" >&2; return 1; }
    fi
    ensure_compiler "$VENV/bin/python" || return 1
    say "installing Python packages${1:+ (extras: $1)}; the first time takes a minute"
    rm -f "$VENV_STAMP"
    rm -rf "$PROJECT_ROOT/shalott.egg-info"   # of the layout before src/: its entry points would hide ours
    if ! (cd "$PROJECT_ROOT" && "$VENV/bin/python" -m pip install -q --disable-pip-version-check \
        "${words[@]}") >>"$SETUP_LOG" 2>&1 </dev/null 9>&-; then
        tail -n 15 "$SETUP_LOG" >&2
        say "pip could not install the project; the whole log is ${SETUP_LOG#"$PROJECT_ROOT"/}"
        return 1
    fi
    wanted_stamp "$1" >"$VENV_STAMP"
}

# plugins_of WORD...  the directories of the plug-ins that offer one of these systems.
plugins_of() {
    local directory word
    for directory in plugins/*/; do
        for word in "$@"; do
            ! grep -qE "^$word *= *\"shalott_[a-z0-9]+\.[a-z_.]+:" "$directory/pyproject.toml" 2>/dev/null \
                || printf '%s\n' "${directory%/}"
        done
    done | sort -u
}

# --- Docker ------------------------------------------------------------------------------------------------------

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# setup_engine  a Docker engine that answers, with what the backend needs beside it. Returns 1, having said why, if
# there can be none: a local cluster is then what is left.
setup_engine() {
    if ! engine_answers; then
        if [ -n "${DOCKER_HOST:-}" ]; then
            say "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST"
            return 1
        fi
        local missing=()
        if ! command -v docker >/dev/null 2>&1; then
            missing=(docker.io)
            if can_install; then
                refresh_packages || true
                is_packaged docker-cli && missing+=(docker-cli)   # newer releases package the client apart
            fi
            install_packages "${missing[@]}" || return 1
        fi
        engine_answers || start_engine || return 1
    fi
    # nft and tc on the host cut and shape links; without them it is done, more slowly, inside the containers.
    ! can_install || ensure_commands nft=nftables tc=iproute2 || true
}

# start_engine  starts dockerd as root and waits until it answers, for at most 60 s.
start_engine() {
    local log="$LOG_DIR/dockerd.log" deadline
    if [ "$(id -u)" != 0 ]; then
        if [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ]; then
            say "you may not use the Docker engine. Allow it with: sudo usermod -aG docker $(id -un) && newgrp docker"
        else
            say "no Docker engine answers. Start it with: sudo systemctl start docker (or: sudo dockerd &)"
        fi
        return 1
    fi
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v dockerd >/dev/null 2>&1; then
        install_packages docker.io || return 1
        engine_answers && return 0
    fi
    forget_dead_engine
    say "starting dockerd (log: ${log#"$PROJECT_ROOT"/})"
    PATH="$PATH:/usr/sbin:/sbin" setsid dockerd >"$log" 2>&1 </dev/null 9>&- &
    DOCKERD_STARTED_PID=$!
    deadline=$((SECONDS + 60))
    until engine_answers; do
        if ! kill -0 "$DOCKERD_STARTED_PID" 2>/dev/null; then
            DOCKERD_STARTED_PID=""
            tail -n 5 "$log" >&2
            say "dockerd did not start"
            return 1
        fi
        if [ "$SECONDS" -ge "$deadline" ]; then
            say "dockerd did not answer within 60 s; see ${log#"$PROJECT_ROOT"/}"
            stop_engine
            return 1
        fi
        sleep 0.1
    done
}

# forget_dead_engine  removes the pid file of a dockerd that was killed: a new one refuses to start while the file names a
# process that exists, be it a zombie or somebody else's.
forget_dead_engine() {
    local file=/var/run/docker.pid pid
    pid="$(cat "$file" 2>/dev/null)" || return 0
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status"; then
        return 0
    fi
    rm -f "$file"
}

# stop_engine  stops the dockerd that this shell started, and no other.
stop_engine() {
    [ -n "$DOCKERD_STARTED_PID" ] || return 0
    kill "$DOCKERD_STARTED_PID" 2>/dev/null || true
    wait "$DOCKERD_STARTED_PID" 2>/dev/null || true
    DOCKERD_STARTED_PID=""
}

# --- SSH ---------------------------------------------------------------------------------------------------------

# setup_ssh  what hosts in network namespaces are made of, for the tests of the ssh backend. Only root can make any.
setup_ssh() {
    if ! can_install; then
        say "SSH hosts for tests are made as root, on a machine with apt"
        return 1
    fi
    ensure_commands sshd=openssh-server ip=iproute2 iptables=iptables nft=nftables sudo=sudo faketime=faketime
}

# --- Java --------------------------------------------------------------------------------------------------------

# setup_spark  Java and pyspark, for the Spark jobs alone. Without Java pyspark's 850 MB are not fetched.
setup_spark() {
    if [ -z "${JAVA_HOME:-}" ] && ! command -v java >/dev/null 2>&1; then
        install_packages default-jre-headless || return 1
    fi
    setup_venv "$@" spark ${SHALOTT_NIGHTLY:+notebook} # the notebook is run nightly
}

# --- Porcupine ---------------------------------------------------------------------------------------------------

# setup_porcupine  Go, and with it the library that `shalott check --engine porcupine` asks. Go fetches Porcupine.
setup_porcupine() {
    ensure_commands go=golang-go gcc=gcc || return 1
    setup_venv || return 1
    say "building Porcupine; the first time takes a minute"
    "$VENV/bin/python" -m shalott.checkers.porcupine.porcupine
}

# --- Java clients ------------------------------------------------------------------------------------------------

# setup_java_client  a JDK and Maven, and with them RocketMQ's Java client and the bridge to it.
setup_java_client() {
    ensure_commands java=default-jdk-headless javac=default-jdk-headless mvn=maven || return 1
    setup_venv || return 1
    say "fetching RocketMQ's Java client; the first time takes a minute"
    "$VENV/bin/python" -m shalott.clients.java.build
}

# --- a browser ---------------------------------------------------------------------------------------------------

# setup_browser  a chromium, for the tests that look at pages; it comes with a font, or its pages have no letters.
setup_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        ! command -v "$name" >/dev/null 2>&1 || return 0
    done
    install_packages chromium fonts-dejavu-core
}

# setup_disks  the file system on which nodes' data directories lie in runs with power and disk faults. Who is not root
# mounts it with fusermount3.
setup_disks() {
    ensure_commands gcc=gcc || return 1
    if [ "$(id -u)" != 0 ]; then
        ensure_commands fusermount3=fuse3 || return 1
    fi
    setup_venv || return 1
    "$VENV/bin/python" -m shalott.cluster.disks.build
}

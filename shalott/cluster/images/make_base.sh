#!/bin/sh
# Makes the base image that every node image starts from, also on a machine that reaches no container registry.
#
#   make_base.sh [TAG]        (default: debian:bookworm-slim; debian:trixie-slim is of Debian 13)
#
# If the tag exists, nothing is done. Otherwise it is pulled; if that fails, a minimal Debian is made with
# mmdebstrap from the host's own apt sources and imported under the same tag. The host's extra CA certificates
# are baked in, so that https works behind a private certificate authority. Needs root only to install mmdebstrap
# or, for lack of unprivileged user namespaces, to run it.
set -eu

TAG=${1:-debian:bookworm-slim}
case "$TAG" in
    debian:trixie-slim) SUITE=trixie ;;
    *) SUITE=bookworm ;;
esac

say() { echo "make_base: $*" >&2; }

if docker image inspect "$TAG" >/dev/null 2>&1; then
    exit 0
fi
if docker pull -q "$TAG" >/dev/null 2>&1; then
    say "pulled $TAG"
    exit 0
fi
say "no registry gives $TAG: making it with mmdebstrap (about half a minute)"

if ! command -v mmdebstrap >/dev/null 2>&1; then
    if [ "$(id -u)" -ne 0 ]; then
        say "mmdebstrap is missing; install it with: sudo apt-get install -y mmdebstrap"
        exit 3
    fi
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends mmdebstrap; } >/dev/null 2>&1; then
        say "mmdebstrap could not be installed; try: apt-get install -y mmdebstrap"
        exit 3
    fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 143' INT TERM

# The host's sources of this suite, and only the distribution's own: a third party's may need keys or https.
host_sources() {
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        awk -v suite="$SUITE" '
            $1 == "deb" {
                for (i = 2; i <= NF && $i !~ /^[a-z]+:/; i++) continue
                name = $(i + 1)
                if (name == suite || index(name, suite "-") == 1) print
            }' "$file"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        awk -v suite="$SUITE" 'BEGIN { RS = ""; ORS = "\n\n" }
            {
                n = split($0, lines, "\n")
                for (i = 1; i <= n; i++)
                    if (lines[i] ~ /^Suites:/) {
                        m = split(lines[i], words, " ")
                        for (j = 2; j <= m; j++)
                            if (words[j] == suite || index(words[j], suite "-") == 1) { print; next }
                    }
            }' "$file"
    done
}
host_sources >"$work/sources"
# With no sources named mmdebstrap takes its own default: the suite, its updates and its security updates.
set -- "$SUITE" -
if grep -q . "$work/sources"; then
    # mmdebstrap tells the two formats apart by looking at each file.
    grep -E '^deb ' "$work/sources" >"$work/lines.list" || true
    grep -vE '^deb ' "$work/sources" >"$work/blocks.sources" || true
    for file in "$work/lines.list" "$work/blocks.sources"; do
        if grep -q . "$file"; then set -- "$@" "$file"; fi
    done
fi

mkdir -p "$work/ca"
for certificate in /usr/local/share/ca-certificates/*.crt; do
    if [ -f "$certificate" ]; then cp "$certificate" "$work/ca/"; fi
done
cat >"$work/finish" <<HOOK
#!/bin/sh
set -e
mkdir -p "\$1/usr/local/share/ca-certificates"
cp "$work"/ca/* "\$1/usr/local/share/ca-certificates/" 2>/dev/null || true
chroot "\$1" update-ca-certificates >/dev/null
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"\$1/etc/pip.conf"
rm -rf "\$1"/var/lib/apt/lists/* "\$1"/var/cache/apt/*.bin
HOOK
chmod 755 "$work" "$work/ca" "$work/finish"

mmdebstrap --quiet --variant=minbase --include=ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="$work/finish" "$@" >"$work/base.tar"
docker import -c 'CMD ["bash"]' "$work/base.tar" "$TAG" >/dev/null
say "made $TAG"

#!/bin/sh
# Install the system programs that some tests need, where apt and root are at hand; elsewhere say so and go on:
# those tests are then skipped, and with CI=true they fail (tests/fixtures/tools.py).
set -eu

LOG=${1:-system-tools.log}
PATH=$PATH:/usr/sbin

missing=""
command -v promtool >/dev/null || missing="$missing prometheus"
command -v amtool >/dev/null || missing="$missing prometheus-alertmanager"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v chromium >/dev/null || command -v chromium-headless-shell >/dev/null || missing="$missing chromium"
command -v caddy >/dev/null || missing="$missing caddy"
command -v nginx >/dev/null || missing="$missing nginx-light"
command -v openssl >/dev/null || missing="$missing openssl"
command -v g++ >/dev/null || missing="$missing g++"
command -v npm >/dev/null || missing="$missing npm"
# A browser without windows spends a third of the processor on the same pages. Where there is none, Chromium serves; so
# it is asked for once.
quicker=""
command -v chromium-headless-shell >/dev/null || [ -e "$LOG" ] || quicker=" chromium-headless-shell"
[ -n "$missing$quicker" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    [ -z "$missing" ] ||
        echo "Some tests will be skipped: they need the programs of the Debian packages$missing (or the same from elsewhere)."
    exit 0
fi

echo "Installing with apt what some tests need:$missing$quicker (about a minute; log in $LOG)"
# No service may start just because its package is installed for tests: 101 is "action forbidden by policy".
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
installed() {
    [ $# = 0 ] || timeout 600 apt-get install --yes --no-install-recommends "$@" >>"$LOG" 2>&1
}
timeout 60 apt-get update >"$LOG" 2>&1 || true
# shellcheck disable=SC2086  # one word a package
installed $quicker || true
# shellcheck disable=SC2086
if ! installed $missing; then
    echo "apt could not install$missing: the tests that need them will be skipped. The reason is at the end of $LOG."
fi

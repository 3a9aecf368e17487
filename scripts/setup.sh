#!/usr/bin/env bash
# Installs the missing tools that a make target needs. If none are missing, it does nothing, quickly.
#
#   scripts/setup.sh build   a Rust toolchain and a C compiler
#   scripts/setup.sh test    the same, rustfmt, clippy and cargo-nextest; redis-server; python3 and node, for the documentation's
#                            workers; aiosmtpd, a mail server; promtool, for the Prometheus rules; systemd-analyze and
#                            PyYAML, for the files of deploy/; curl; tmux, a terminal; npm, TypeScript, mypy, schemathesis and
#                            generators of clients, for the API and its clients; chromium and the packages of ui/, for the
#                            dashboard
#   scripts/setup.sh bench   the same as build, wrk and nginx; redis-server, node and npm, and BullMQ for it
#   scripts/setup.sh deny    the same as build, and cargo-deny
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

# need_package COMMAND PACKAGE: the Debian package that provides the command.
need_package() {
    command -v "$1" >/dev/null && return
    command -v apt-get >/dev/null || fail "$1 is missing and there is no apt-get: install it (Debian package $2)"
    local as_root=()
    if [[ $EUID -ne 0 ]]; then
        command -v sudo >/dev/null || fail "$1 is missing: run 'apt-get install $2' as root"
        as_root=(sudo)
    fi
    say "installing $2, which brings $1"
    "${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the lists at hand"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >&2 ||
        fail "$1 is missing and '$2' could not be installed"
}

# need_component SUBCOMMAND COMPONENT: a part of the Rust toolchain.
need_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null || fail "cargo $1 is missing and there is no rustup: install the $2 of your Rust toolchain"
    say "installing $2"
    rustup component add "$2" >&2 || fail "cargo $1 is missing and '$2' could not be installed"
}

# need_cargo_tool SUBCOMMAND: a program from crates.io, named cargo-SUBCOMMAND. Built from source: takes minutes.
need_cargo_tool() {
    cargo "$1" --version >/dev/null 2>&1 && return
    say "building cargo-$1, once; this takes a few minutes"
    cargo install --locked "cargo-$1" >&2 || fail "cargo-$1 is missing and could not be installed"
}

# need_node_modules DIR: the packages of its package.json, in exactly those versions.
need_node_modules() {
    [[ "$1/node_modules/.package-lock.json" -nt "$1/package.json" ]] && return
    say "installing the packages of $1"
    npm install --prefix "$1" --no-package-lock --omit=optional --ignore-scripts --no-audit --no-fund >&2 || fail "the packages of $1 could not be installed"
}

# need_locked_modules DIR: the packages of its package-lock.json, and the programs that some of them have per platform.
need_locked_modules() {
    [[ "$1/node_modules/.package-lock.json" -nt "$1/package-lock.json" ]] && return
    say "installing the packages of $1"
    npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund >&2 || fail "the packages of $1 could not be installed"
}

# need_python_packages DIR: the packages of its requirements.txt, in a separate directory next to it.
need_python_packages() {
    [[ "$1/python/.installed" -nt "$1/requirements.txt" ]] && return
    say "installing the Python packages of $1"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$1/python" --upgrade \
        -r "$1/requirements.txt" >&2 || fail "the Python packages of $1 could not be installed (Debian package python3-pip)"
    touch "$1/python/.installed"
}

# need_venv DIR REQUIREMENTS: a separate Python environment with the packages of the file.
need_venv() {
    [[ "$1/.installed" -nt "$2" ]] && return
    python3 -c 'import ensurepip' 2>/dev/null || need_package python3-venv python3-venv
    say "installing the Python packages of $2 into $1"
    { python3 -m venv "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2" >&2; } ||
        fail "the Python packages of $2 could not be installed"
    touch "$1/.installed"
}

need_build() {
    command -v cargo >/dev/null || fail "cargo is missing: install Rust from https://rustup.rs and run this again"
    cargo --version >/dev/null || fail "cargo does not run: the toolchain named in rust-toolchain.toml could not be had"
    need_package cc build-essential
}

case "${1:-}" in
build) need_build ;;
test)
    need_build
    need_component fmt rustfmt
    need_component clippy clippy
    need_cargo_tool nextest
    need_package redis-server redis-server
    need_package python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need_package pip3 python3-pip
    need_python_packages crates/eclusa/tests/it/mail
    need_package node nodejs
    need_package npm npm
    need_node_modules clients/typescript
    need_locked_modules ui
    need_package chromium chromium
    need_venv target/clients-venv clients/requirements.txt
    need_package promtool prometheus
    need_package systemd-analyze systemd
    need_package curl curl
    need_package tmux tmux
    need_python_packages crates/eclusa/tests/it/deploy
    ;;
bench)
    need_build
    need_package wrk wrk
    need_package nginx nginx-light
    need_package redis-server redis-server
    need_package node nodejs
    need_package npm npm
    need_node_modules bench/peers/bullmq
    ;;
deny)
    need_build
    need_cargo_tool deny
    ;;
*) fail "usage: scripts/setup.sh build|test|bench|deny" ;;
esac

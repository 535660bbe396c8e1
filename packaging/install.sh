#!/bin/sh
# Installs exec-server for this account: the binary, manual pages and completions. No root needed, nothing is started.
#
#   install.sh [--prefix DIR] [--sha256 HEX] SOURCE
#
# SOURCE is one of
#   a folder            with SHA256SUMS and exec-server-VERSION-x86_64-linux.tar.gz, as `cargo xtask dist` makes it
#   https://HOST/PATH   the URL of such a folder
#   npm:NAME[@VERSION]  a package of the npm registry that carries the binary
#   pypi:NAME[==VERSION]   a wheel of the Python index that carries the binary
#
# What is fetched is compared with its digest before anything of it is unpacked: that of SHA256SUMS, or that of the registry.
# --sha256 names the digest that the archive must have, for those who know it from somewhere else. --prefix is
# ~/.local unless given. EXEC_SERVER_NPM and EXEC_SERVER_PYPI name other registries.

set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

has() {
    command -v "$1" > /dev/null 2>&1
}

usage() {
    sed -n '2,16s/^# \{0,1\}//p' "$0"
}

# fetch URL FILE
fetch() {
    case $1 in
        https://*) ;;
        http://127.0.0.1[:/]* | http://localhost[:/]*) ;;
        *) fail "refusing to fetch $1: only https:// is safe from changes on the way" ;;
    esac
    if has curl; then
        curl --fail --silent --show-error --location --output "$2" "$1" || fail "cannot fetch $1"
    elif has wget; then
        wget -q -O "$2" "$1" || fail "cannot fetch $1"
    else
        fail "neither curl nor wget is here to fetch $1: fetch it yourself and name the folder"
    fi
}

# digest BITS FILE: SHA-256 or SHA-512, in hex
digest() {
    if has "sha$1sum"; then
        "sha$1sum" "$2" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a "$1" "$2" | cut -d ' ' -f 1
    elif has openssl; then
        openssl dgst "-sha$1" "$2" | sed 's/.* //'
    else
        fail "none of sha$1sum, shasum and openssl is here, so nothing can be verified"
    fi
}

# verify BITS FILE DIGEST WHERE-THE-DIGEST-IS-FROM
verify() {
    [ -n "$3" ] || fail "$4 has no digest of it, so ${2##*/} cannot be verified"
    found=$(digest "$1" "$2")
    [ "$found" = "$3" ] ||
        fail "${2##*/} is not what $4 says: its SHA-$1 is $found and should be $3. Nothing was installed"
}

# from_folder FOLDER-OR-URL: sets archive
from_folder() {
    case $1 in
        *://*) fetch "${1%/}/SHA256SUMS" "$work/SHA256SUMS" ;;
        *)
            [ -f "$1/SHA256SUMS" ] || fail "there is no SHA256SUMS in $1, so nothing can be verified"
            cp "$1/SHA256SUMS" "$work/SHA256SUMS"
            ;;
    esac
    line=$(grep "^[0-9a-f]\{64\}  exec-server-[A-Za-z0-9.+-]*-$machine-linux\.tar\.gz$" "$work/SHA256SUMS" || true)
    [ -n "$line" ] || fail "SHA256SUMS of $1 names no archive for $machine"
    [ "$(echo "$line" | wc -l)" -eq 1 ] || fail "SHA256SUMS of $1 names several archives for $machine: name a folder of one version"
    name=${line#*  }
    archive=$work/$name
    case $1 in
        *://*) fetch "${1%/}/$name" "$archive" ;;
        *)
            [ -f "$1/$name" ] || fail "SHA256SUMS names $name, which is not in $1"
            cp "$1/$name" "$archive"
            ;;
    esac
    verify 256 "$archive" "${line%%  *}" SHA256SUMS
}

# field NAME FILE: the first text of that name in JSON
field() {
    tr -d '\n' < "$2" | sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"
}

# from_npm NAME[@VERSION]
from_npm() {
    name=$1 version=latest
    case ${name#@} in
        *@*) version=${name##*@} name=${name%@*} ;;
    esac
    fetch "${EXEC_SERVER_NPM:-https://registry.npmjs.org}/$(echo "$name" | sed 's|/|%2f|')/$version" "$work/package.json"
    url=$(field tarball "$work/package.json")
    [ -n "$url" ] || fail "the registry names no archive of $name $version"
    archive=$work/package.tgz
    fetch "$url" "$archive"
    expected=$(field integrity "$work/package.json" | tr ' ' '\n' | sed -n 's/^sha512-//p')
    verify 512 "$archive" "$(printf %s "$expected" | base64 -d | od -An -v -tx1 | tr -d ' \n')" "the npm registry"
}

# from_pypi NAME[==VERSION]
from_pypi() {
    name=${1%%==*} version=
    case $1 in
        *==*) version=${1#*==} ;;
    esac
    index=${EXEC_SERVER_PYPI:-https://pypi.org}/simple/$name/
    fetch "$index" "$work/index.html"
    # One link a wheel, the newest last: URL#sha256=HEX
    link=$(sed -n 's/.*href="\([^"]*linux[^"]*_'"$machine"'\.whl#sha256=[0-9a-f]\{64\}\)".*/\1/p' "$work/index.html" |
        { if [ -n "$version" ]; then grep -F -- "-$version-" || true; else cat; fi; } | tail -n 1)
    [ -n "$link" ] || fail "the index has no wheel of $name${version:+ $version} for $machine with a digest"
    url=${link%%#*}
    case $url in
        *://*) ;;
        *) url=$index$url ;;
    esac
    archive=$work/package.whl
    fetch "$url" "$archive"
    verify 256 "$archive" "${link##*#sha256=}" "the Python index"
}

unpack() {
    mkdir "$work/unpacked"
    case $archive in
        *.whl)
            if has unzip; then
                unzip -q "$archive" -d "$work/unpacked"
            elif has python3; then
                python3 -m zipfile -e "$archive" "$work/unpacked"
            elif has bsdtar; then
                bsdtar -xf "$archive" -C "$work/unpacked"
            else
                fail "none of unzip, python3 and bsdtar is here to unpack a wheel"
            fi
            ;;
        *) tar -xzf "$archive" -C "$work/unpacked" ;;
    esac || fail "${archive##*/} cannot be unpacked"
    # A completion has the same name; a program has the four bytes of every ELF file, and two that name its machine.
    binary=$(find "$work/unpacked" -type f -name exec-server | while IFS= read -r file; do
        if [ "$(od -An -tx1 -N 4 "$file" | tr -d ' ')" = 7f454c46 ]; then
            echo "$file"
            break
        fi
    done)
    [ -n "$binary" ] || fail "there is no program exec-server in ${archive##*/}"
    [ "$(od -An -tx1 -j 18 -N 2 "$binary" | tr -d ' ')" = 3e00 ] || fail "exec-server in ${archive##*/} is for another machine than $machine"
    chmod 755 "$binary"
    "$binary" --version > /dev/null || fail "exec-server does not start on this machine"
}

# put FILE TARGET: it appears whole or not at all, also over a program that runs
put() {
    { mkdir -p "${2%/*}" && cp "$1" "$2.new-$$" && mv -f "$2.new-$$" "$2"; } || fail "cannot write $2"
}

# put_all FOLDER TARGET: what the archive has of it
put_all() {
    for file in "${binary%/*}/$1"/*; do
        [ -f "$file" ] || continue
        put "$file" "$2/${file##*/}"
    done
}

prefix=
sha256=
source=
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) [ $# -ge 2 ] || fail "--prefix needs a folder"; prefix=$2; shift ;;
        --sha256) [ $# -ge 2 ] || fail "--sha256 needs a digest"; sha256=$2; shift ;;
        -h | --help) usage; exit 0 ;;
        -*) fail "$1 is not an option; see install.sh --help" ;;
        *) [ -z "$source" ] || fail "one source at a time, not $source and $1"; source=$1 ;;
    esac
    shift
done
[ -n "$source" ] || { usage >&2; fail "name a folder, a URL or a package to install from"; }
[ -n "$prefix" ] || prefix=${HOME:?install.sh: HOME is not set: use --prefix}/.local

[ "$(uname -s)" = Linux ] || fail "exec-server runs on Linux, not on $(uname -s)"
machine=$(uname -m)
case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    *) fail "there is no exec-server for $machine yet, only for x86_64; on aarch64 it may be built from source, untested" ;;
esac

work=$(mktemp -d) || fail "cannot make a temporary folder"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

case $source in
    npm:*) from_npm "${source#npm:}" ;;
    pypi:*) from_pypi "${source#pypi:}" ;;
    *) from_folder "$source" ;;
esac
[ -z "$sha256" ] || verify 256 "$archive" "$sha256" --sha256
unpack
put "$binary" "$prefix/bin/exec-server"
put_all man/man1 "$prefix/share/man/man1"
put_all completions/bash "$prefix/share/bash-completion/completions"
put_all completions/zsh "$prefix/share/zsh/site-functions"
put_all completions/fish "$prefix/share/fish/vendor_completions.d"

echo "installed $("$prefix/bin/exec-server" --version) as $prefix/bin/exec-server"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "$prefix/bin is not in PATH: add it, or call exec-server by its path" ;;
esac

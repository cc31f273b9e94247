#!/bin/sh
# build_peers.sh [VERSION...]
#
# Builds the published peer (flodl as a process, see peer/src/main.rs) in each VERSION named, or in
# every one there is, into $JOINPROTO_PEERS, else ~/.cache/joinproto/peers, as flodl-peer-VERSION.
# A peer that was built from the same sources is left alone.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
sources=$here/peer
out=${JOINPROTO_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/joinproto/peers}

fail() { echo "build_peers: $*" >&2; exit 1; }

fingerprint() {
    (cd "$sources" && cat .cargo/config.toml src/*.rs "$1/Cargo.toml" "$1/Cargo.lock") |
        sha256sum | cut -d' ' -f1
}

is_built() {
    [ -x "$out/flodl-peer-$1" ] && [ "$(cat "$out/flodl-peer-$1.built-from" 2>/dev/null)" = "$2" ]
}

build() {
    version=$1
    want=$(fingerprint "$version")
    if is_built "$version" "$want"; then
        echo "build_peers: flodl-peer-$version is up to date in $out"
        return
    fi
    command -v cargo >/dev/null || fail "cargo is not on PATH; building flodl-peer-$version needs" \
        "Rust 1.91 or newer (https://rustup.rs)"
    echo "build_peers: building flodl-peer-$version into $out (about a minute)"
    # Flags from the outside would take the place of those in .cargo/config.toml, which is found
    # from the working directory.
    (cd "$sources/$version" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_RUSTFLAGS \
        cargo build --release --locked --quiet --target-dir "$out/target-$version") ||
        fail "cargo could not build flodl-peer-$version"
    rm -f "$out/flodl-peer-$version.built-from"
    mv -f "$out/target-$version/release/flodl-peer" "$out/flodl-peer-$version"
    echo "$want" > "$out/flodl-peer-$version.built-from"
    rm -rf "$out/target-$version"
}

[ $# -gt 0 ] || set -- $(cd "$sources" && ls -d [0-9]*)
for version in "$@"; do
    [ -f "$sources/$version/Cargo.toml" ] ||
        fail "no peer version $version; there are: $(cd "$sources" && echo [0-9]*)"
done

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
for version in "$@"; do build "$version"; done

#!/bin/sh
# build_verdicts.sh [VERSION...]
#
# Builds flodl's own decoder as a filter (see verdicts/main.rs) in each VERSION named, or in every
# one that there is a peer of, into $JOINPROTO_PEERS, else ~/.cache/joinproto/peers, as
# flodl-verdicts-VERSION.  One that was built from the same sources is left alone.
#
# The decoder is private to the crate.  Its sources are copied out of Cargo's registry, and one line
# of the copy makes the module public; nothing else is changed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
peer=$here/peer
out=${JOINPROTO_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/joinproto/peers}

fail() { echo "build_verdicts: $*" >&2; exit 1; }

fingerprint() {
    cat "$here/build_verdicts.sh" "$here/verdicts/main.rs" "$peer/.cargo/config.toml" \
        "$peer/$1/Cargo.toml" "$peer/$1/Cargo.lock" | sha256sum | cut -d' ' -f1
}

is_built() {
    [ -x "$out/flodl-verdicts-$1" ] &&
        [ "$(cat "$out/flodl-verdicts-$1.built-from" 2>/dev/null)" = "$2" ]
}

# The crate with its decoder made public, in the folder $2.
open_crate() {
    source=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"flodl-$1" | head -n 1)
    [ -n "$source" ] || fail "Cargo has fetched no sources of flodl $1"
    cp -R "$source" "$2"
    sed 's/^pub(crate) mod wire;$/pub mod wire;/' "$source/src/distributed/mod.rs" \
        > "$2/src/distributed/mod.rs"
    grep -q '^pub mod wire;$' "$2/src/distributed/mod.rs" || fail "flodl $1 has no module wire"
}

build() {
    version=$1
    want=$(fingerprint "$version")
    if is_built "$version" "$want"; then
        echo "build_verdicts: flodl-verdicts-$version is up to date in $out"
        return
    fi
    command -v cargo >/dev/null || fail "cargo is not on PATH; building flodl-verdicts-$version" \
        "needs Rust 1.91 or newer (https://rustup.rs)"
    echo "build_verdicts: building flodl-verdicts-$version into $out (about a minute)"
    work=$out/verdicts-$version
    rm -rf "$work"
    # The manifest is the peer's, which looks for ../src/main.rs.
    mkdir -p "$work/$version" "$work/src"
    cp -R "$peer/.cargo" "$work/.cargo"
    cp "$peer/$version/Cargo.toml" "$peer/$version/Cargo.lock" "$work/$version"
    cp "$here/verdicts/main.rs" "$work/src/main.rs"
    (cd "$work/$version" && cargo fetch --locked --quiet) || fail "cargo could not fetch flodl $version"
    open_crate "$version" "$work/flodl"
    # Flags from the outside would take the place of those in .cargo/config.toml.  The lock file
    # can't stay as it is, for one crate is a folder now; offline, the others are those fetched.
    (cd "$work/$version" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u CARGO_BUILD_RUSTFLAGS \
        cargo build --release --offline --quiet --config "patch.crates-io.flodl.path='../flodl'" \
        --target-dir "$work/target") || fail "cargo could not build flodl-verdicts-$version"
    rm -f "$out/flodl-verdicts-$version.built-from"
    mv -f "$work/target/release/flodl-peer" "$out/flodl-verdicts-$version"
    echo "$want" > "$out/flodl-verdicts-$version.built-from"
    rm -rf "$work"
}

[ $# -gt 0 ] || set -- $(cd "$peer" && ls -d [0-9]*)
for version in "$@"; do
    [ -f "$peer/$version/Cargo.toml" ] ||
        fail "no version $version; there are: $(cd "$peer" && echo [0-9]*)"
done

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
for version in "$@"; do build "$version"; done

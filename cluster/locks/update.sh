#!/usr/bin/env bash
# Resolves pyproject.toml anew into the lock files beside this script. Needs uv and a package index.
#
#   cluster/locks/update.sh [further options of `uv pip compile`, as --upgrade or --upgrade-package dask]
#
# Without --upgrade, versions that a lock already holds stay as they are. Where the cu13 lock changed,
# check-wheels.sh checks the GPU path against it, says what changed in RAPIDS' interfaces, and records them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Whatever index or folder of wheels this machine prefers is its own affair: the locks name none.
unset PIP_FIND_LINKS UV_FIND_LINKS

compile() { # compile LOCK [options]: one lock for every Python >= 3.11, x86-64 and Arm
    local lock=cluster/locks/$1/requirements.lock
    shift
    mkdir -p "$(dirname "$lock")"
    # Wheels only: building a source distribution would fetch its build tools unhashed.
    uv pip compile --quiet --universal --python-version 3.11 --only-binary :all: --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-annotate --no-header "$@" --output-file "$lock"
    echo "$lock: $(grep -c == "$lock") packages"
}

cu13=cluster/locks/cu13/requirements.lock
before=$(sha256sum "$cu13")
for stack in cpu cu12 cu13; do
    # setuptools: the project itself is installed without build isolation, so its backend must be here.
    compile "$stack" pyproject.toml - --extra "$stack" --extra dashboard --extra history --extra mpi "${@}" <<<'setuptools>=77'
done

# The dev lock holds only what comes on top of a stack, so installing it never changes the stack.
mapfile -t in_stack < <(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package=\1/p' cluster/locks/cpu/requirements.lock)
compile dev pyproject.toml --extra dev --constraint cluster/locks/cpu/requirements.lock "${in_stack[@]}" "${@}"

if [ "$before" != "$(sha256sum "$cu13")" ]; then
    echo "The cu13 lock changed; checking the GPU code against its packages."
    cluster/locks/check-wheels.sh --write
fi

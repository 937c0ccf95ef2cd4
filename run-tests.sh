#!/usr/bin/env bash
# Sets up what the tests need and runs them all: linters, types, then pytest.
#
#   ./run-tests.sh [--fast | --soak] [pytest arguments]        e.g. ./run-tests.sh -k bootstrap
#
# --fast: linters, types, and the quick tests that start no cluster; needs no root, installs nothing beside .venv, and
# takes about three minutes on two cores. --soak: also the repetitions that take minutes each.
#
# The tests run in the front door's own .venv with the dev lock on top: so they test what a user gets, a GPU
# machine does not install its stack twice, and as that lock holds no package of the stack, the front door goes on
# re-using .venv as it is. With CI=true a skipped test fails unless it is on the allow-list in tests/conftest.py.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
# shellcheck source=cluster/bootstrap.sh
source "$here/cluster/bootstrap.sh"

# What tests run beside Python, as "command package": a test whose command is missing skips itself and says so.
# Anything that a new test starts is added here.
system_packages=(
    "git git"
    "ip iproute2"
    "sshd openssh-server"
    "ssh openssh-client"
    "slurmctld slurm-wlm"
    "munged munge"
    "faketime faketime"
    "ucx_info ucx-utils"
    "mpirun.openmpi openmpi-bin"
    "flock util-linux"
    "unshare util-linux"
    "mount mount"
    "shellcheck shellcheck"
    "cc gcc"
    "cc libc6-dev"
    "chromium chromium"
    "systemd-analyze systemd"
    "sqlite3 sqlite3"
)

install_system_packages() {
    local entry missing=()
    for entry in "${system_packages[@]}"; do
        type -P "${entry% *}" >/dev/null || missing+=("${entry#* }")
    done
    # In a subshell, because find_python ends the shell where there is none.
    (find_python >/dev/null 2>&1) || missing+=(python3 python3-venv)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! type -P apt-get >/dev/null; then
        say "Not installed here: ${missing[*]}. Tests that need them will be skipped."
        return 0
    fi
    say "Installing ${missing[*]}."
    # Not fatal by itself: what is really needed fails below with its own sentence.
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } </dev/null >/dev/null \
        || say "Installing ${missing[*]} failed; going on without."
}

fast=''
for word; do if [ "$word" = --fast ]; then fast=1; fi; done

if [ -z "$fast" ]; then install_system_packages; fi
stack=$(choose_stack auto)
ensure_venv "$stack" dev

cd "$ROOT"
# Tests start hundreds of interpreters: without stored bytecode each would compile the package anew.
unset PYTHONDONTWRITEBYTECODE
bin=$VENV/bin failed=()
# check NAME COMMAND...: every check runs, so that one round shows everything there is to mend.
check() {
    echo "== $1"
    "${@:2}" || failed+=("$1")
}
# check_beside_tests NAME COMMAND...: the same for checks that take seconds; what they print is shown after the tests.
printed=$(mktemp -d) names=() processes=()
trap 'rm -rf "$printed"' EXIT
check_beside_tests() {
    "${@:2}" >"$printed/${#names[@]}" 2>&1 &
    names+=("$1") processes+=($!)
}
# Each of the processes side by side would compile the loops of merges, and the tests themselves, anew.
"$bin/python" -m tests.helpers.compiled_loops &
loops=$!
if [ -z "$(find tests -name '*pytest*.pyc' -print -quit)" ]; then
    "$bin/python" -m pytest --collect-only -q >/dev/null 2>&1 || true
fi

check_beside_tests "mypy" "$bin/python" -m mypy
check "ruff check" "$bin/python" -m ruff check .
check "ruff format" "$bin/python" -m ruff format --check .
check_beside_tests "import contracts" "$bin/lint-imports" --no-logo --no-cache
if type -P shellcheck >/dev/null; then
    mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)
    check_beside_tests "shellcheck" shellcheck -x "${scripts[@]}"
else
    echo "== shellcheck: skipped, it is not installed"
fi

# Test files run side by side, the longest first; more of them than there are cores, because many tests wait, those of
# clusters most of all. With --fast little waits, and each process imports all tests first. `-n 0`: one after the other.
more=$((${fast:-0} ? 0 : 4))
side_by_side=$(($(nproc) + more < 8 ? $(nproc) + more : 8))
status=0
wait "$loops" || failed+=("compiled loops")
echo "== tests"
"$bin/python" -m pytest -n "$side_by_side" --dist loadfile --no-loadscope-reorder "$@" || status=$?
for number in "${!names[@]}"; do
    echo "== ${names[number]}"
    wait "${processes[number]}" || failed+=("${names[number]}")
    cat "$printed/$number"
done

# The status is pytest's, or 1 where only a check failed; the last line says which.
if [ "$status" != 0 ]; then failed+=(tests); fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "== FAILED: ${failed[*]}"
    exit $((status ? status : 1))
fi
echo "== all passed"

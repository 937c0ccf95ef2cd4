# shellcheck shell=bash
# Everything that turns a fresh clone into a working .venv. Sourced by run-cluster.sh and run-tests.sh; it only
# defines functions, so a test can call each of them alone.
#
# Messages go to standard error: standard output belongs to the merge (`--json` prints one document there).

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
VENV_LOCK=$ROOT/.venv.lock # held while .venv changes; its presence also says that this script made .venv
declare -A VENV_SIZE=([cpu]="1.6 GB" [cu12]="6 GB" [cu13]="5 GB") # measured with du
VENV_STAMP=$VENV/.merge-bench-stack # written last, so a .venv without it is unfinished

say() { printf 'merge_bench: %s\n' "$*" >&2; }
die() { # die STATUS MESSAGE
    say "${@:2}"
    exit "$1"
}

# --- Python -----------------------------------------------------------------------------------------------------

# Prints a Python that can make a virtual environment. $PYTHON decides alone where it is set. A candidate is run
# before it counts: version managers leave commands on PATH that only print an error.
find_python() {
    local python found='' candidates=(python3 python3.13 python3.12 python3.11 python3.14)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for python in "${candidates[@]}"; do
        "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || continue
        # Debian and Ubuntu ship Python without ensurepip; `python -m venv` then leaves a .venv without pip.
        if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            type -P "$python"
            return
        fi
        found=${found:-$(type -P "$python")}
    done
    if [ -n "$found" ]; then
        die 3 "$found cannot create virtual environments; install its venv module" \
            "(Debian and Ubuntu: apt-get install python3-venv) or set PYTHON=/path/to/python3 to another Python."
    fi
    if [ -n "${PYTHON:-}" ]; then die 3 "PYTHON=$PYTHON is not a Python from 3.11 to 3.14."; fi
    die 3 "No Python from 3.11 to 3.14 is on PATH; install one (Debian 12 and later: apt-get install python3" \
        "python3-venv) or set PYTHON=/path/to/python3."
}

# --- which stack ------------------------------------------------------------------------------------------------

# Prints the stack that this machine can run. CUDA 13 needs driver 580 and compute capability 7.5 on every GPU.
detect_stack() {
    local gpus driver capability stack=cu13
    type -P nvidia-smi >/dev/null || { echo cpu; return; }
    if ! gpus=$(timeout 30 nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader 2>&1) \
        || ! [[ $gpus =~ ^[0-9]+\.[0-9.]+,\ *[0-9]+\.[0-9]+ ]]; then
        say "nvidia-smi lists no usable GPU (${gpus%%$'\n'*}); using the cpu packages."
        echo cpu
        return
    fi
    while IFS=', ' read -r driver capability; do
        [[ $driver =~ ^[0-9]+\. && $capability =~ ^[0-9]+\.[0-9]+$ ]] || stack=cu12
        # 9.0 -> 90, so that versions compare as whole numbers.
        if [ "$stack" = cu13 ] && { [ "${driver%%.*}" -lt 580 ] || [ "${capability/./}" -lt 75 ]; }; then
            stack=cu12
        fi
    done <<<"$gpus"
    echo "$stack"
}

# choose_stack ASKED: the stack to run with. Asked for by name, it wins and .venv is rebuilt for it. Otherwise a
# .venv that exists stays: it may have been set up for compute nodes from a login node that has no GPU.
choose_stack() {
    local asked=$1 have='' detected
    if [ -f "$VENV_STAMP" ]; then have=$(sed -n 's/^stack=//p' "$VENV_STAMP"); fi
    if [ "$asked" != auto ]; then
        if [ -n "$have" ] && [ "$have" != "$asked" ]; then
            say ".venv contains the $have packages; replacing them with the $asked packages."
        fi
        echo "$asked"
        return
    fi
    detected=$(detect_stack)
    if [ -n "$have" ] && [ "$have" != "$detected" ]; then
        say ".venv contains the $have packages, but this machine supports $detected; using $have" \
            "(to change, run ./run-cluster.sh --setup-only --stack $detected)."
        echo "$have"
        return
    fi
    echo "$detected"
}

# --- the virtual environment ------------------------------------------------------------------------------------

lock_file() { printf '%s\n' "$ROOT/cluster/locks/$1/requirements.lock"; }
checksum() { sha256sum <"$1" | cut -d' ' -f1; }

# What the stamp must say for .venv to be usable as it is. The Python is asked, not remembered, so one that was
# removed or upgraded to another minor version counts as stale, as does a repository that was moved.
wanted_stamp() { # wanted_stamp STACK
    local version
    version=$("$VENV/bin/python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    printf 'stack=%s\nlock=%s\npython=%s\nroot=%s\n' "$1" "$(checksum "$(lock_file "$1")")" "$version" "$ROOT"
}

venv_is_current() { # venv_is_current STACK
    local want
    [ -f "$VENV_STAMP" ] && want=$(wanted_stamp "$1") && [ "$want" = "$(cat "$VENV_STAMP")" ]
}

# The project's metadata (version, entry points) is installed apart, so a change of it costs seconds, not minutes.
project_is_current() { [ "$(cat "$VENV/.merge-bench-project" 2>/dev/null)" = "$(checksum "$ROOT/pyproject.toml")" ]; }
dev_is_current() { [ "$(cat "$VENV/.merge-bench-dev" 2>/dev/null)" = "$(checksum "$(lock_file dev)")" ]; }

packages_in() { grep -c '^[A-Za-z0-9][^ ]*==' "$1"; } # packages_in LOCK

# count_packages LOG TOTAL: shows what pip does: on a terminal a count, elsewhere a line each half minute.
count_packages() {
    local log=$1 total=$2 line n=0 doing said=$SECONDS
    while true; do
        if IFS= read -r -t "${MERGE_BENCH_SETUP_SILENCE:-30}" line; then
            printf '%s\n' "$line" >>"$log"
            if [[ $line == Collecting* ]]; then n=$((n + 1)); fi
        elif [ $? -le 128 ]; then
            return
        fi
        doing="  $n of $total packages downloaded"
        if [ "$n" -ge "$total" ]; then doing="  $total packages downloaded, installing them"; fi
        if [ -t 2 ]; then
            printf '\r%s' "$doing" >&2
        elif [ $((SECONDS - said)) -ge "${MERGE_BENCH_SETUP_SILENCE:-30}" ]; then
            said=$SECONDS
            say "${doing#  }"
        fi
    done
}

# pip_install TOTAL OPTIONS: pip without the user's own packages or PYTHONPATH in its way. On standard input: what takes
# the place of {} in the options, ended by \0 each. A pip for each, two at once, because one unpacks on one core. What
# they print goes to a log; it is shown when one fails.
pip_install() {
    local log=$VENV/.merge-bench-setup.log total=$1
    if ! xargs -0 -P 2 -I{} "$VENV/bin/python" -I -m pip install --no-user --no-deps --no-compile \
        --disable-pip-version-check --progress-bar off "${@:2}" 2>&1 | count_packages "$log" "$total"; then
        tail -n 12 "$log" >&2
        die 3 "Installing packages failed (last lines above; full log: $log). If this machine has no network, run" \
            "./run-cluster.sh --setup-only --stack cpu|cu12|cu13 on another machine that shares this file system."
    fi
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# install_lock LOCK: each half of its packages by a pip.
install_lock() {
    local half=$VENV/.merge-bench-half
    rm -f "$half".*
    awk -v half="$half" '/^[A-Za-z0-9]/ { n++ } n { print >(half "." n % 2) }' "$1"
    printf '%s\0' "$half".* | pip_install "$(packages_in "$1")" --require-hashes --only-binary :all: -r {}
    rm -f "$half".*
}

# Stores bytecode, on all cores: a user who cannot write here would compile everything at each start. What no run imports
# is left out, a third of it.
compile_packages() {
    "$VENV/bin/python" -I -m compileall -qq -j 0 -x '/tests/|/site-packages/(pip|setuptools)/' \
        "$VENV/lib" "$ROOT/merge_bench" >>"$VENV/.merge-bench-setup.log" 2>&1 || true
}

build_venv() { # build_venv STACK
    local stack=$1 lock python output
    lock=$(lock_file "$stack")
    python=$(find_python)
    say "Setting up ${VENV##*/} with the $stack packages: $(packages_in "$lock") packages, ${VENV_SIZE[$stack]} on disk;" \
        "this takes one to a few minutes, only once."
    rm -f "$VENV_STAMP" # first, so that an interrupted removal is seen as unfinished
    rm -rf "$VENV"
    output=$("$python" -m venv "$VENV" 2>&1) || die 3 "$python could not create $VENV: ${output##*$'\n'}"
    install_lock "$lock"
    install_project
    compile_packages
    wanted_stamp "$stack" >"$VENV_STAMP"
}

install_project() {
    # The build backend comes from the lock: build isolation would fetch it without a hash. `compat` adds this folder to
    # Python's path. Without it a hook finds the package, but only after the current folder: in the folder above a clone
    # named merge_bench Python would take the clone itself for the package.
    printf '%s\0' "$ROOT" | pip_install 1 --no-build-isolation --config-settings editable_mode=compat -e {}
    checksum "$ROOT/pyproject.toml" >"$VENV/.merge-bench-project"
}

# ensure_venv STACK [dev]: leaves a .venv with the stack, this project and, where asked, what tests need. Touches
# neither network nor disk where that is so already.
ensure_venv() {
    local stack=$1 dev=${2:-}
    [ -f "$(lock_file "$stack")" ] || die 2 "--stack must be cpu, cu12 or cu13, not '$stack'."
    complete() { venv_is_current "$stack" && project_is_current && { [ -z "$dev" ] || dev_is_current; }; }
    if complete; then return; fi
    if [ -e "$VENV" ] && [ ! -e "$VENV_LOCK" ]; then
        die 3 "$VENV was not created by this script and is not changed; remove or rename it, and start again."
    fi
    if [ -f "$VENV_STAMP" ] && [ ! -O "$VENV" ] && [ ! -x "$VENV/bin/python" ]; then
        die 3 "You cannot execute the Python of .venv ($(readlink "$VENV/bin/python")), which another user set up. Ask that" \
            "user to run 'rm -r $VENV; PYTHON=/usr/bin/python3 ./run-cluster.sh --setup-only', or use a clone of your own."
    fi
    [ -w "$ROOT" ] || die 3 ".venv must be set up, but $ROOT is not writable;" \
        "run ./run-cluster.sh --setup-only as the owner of that folder."
    (
        # pip catches Ctrl-C and ends like any failure; without this it would be reported as one.
        trap 'say "Interrupted; the next start sets up .venv again."; exit 130' INT
        if type -P flock >/dev/null && ! flock -n 9; then
            say "Another process is setting up .venv; waiting for it."
            flock 9
        fi
        if ! venv_is_current "$stack"; then build_venv "$stack"; fi
        if ! project_is_current; then install_project; fi
        if [ -n "$dev" ] && ! dev_is_current; then
            say "Installing the test packages into ${VENV##*/}."
            install_lock "$(lock_file dev)"
            checksum "$(lock_file dev)" >"$VENV/.merge-bench-dev"
        fi
    ) 9>"$VENV_LOCK"
}

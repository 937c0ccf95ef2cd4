#!/usr/bin/env bash
# The front door: sets up .venv where needed, then launches a cluster, merges, reports and takes everything down.
# `./run-cluster.sh --help` explains. Launching and teardown are done in Python; this script only finds it.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
# shellcheck source=cluster/bootstrap.sh
source "$here/cluster/bootstrap.sh"

usage() {
    cat <<'TEXT'
Usage: ./run-cluster.sh [CONFIG] [OPTION]...

Starts a Dask cluster with the settings of CONFIG, merges two distributed dataframes over UCX, verifies the result,
prints a report, and stops the cluster. CONFIG is a file, or the name of a file in configs/ (default: default.cfg).
The first start installs packages into .venv from a lock file with hashes; later starts do not need the network.

Options of this script (in any place after CONFIG):
  --setup-only              set up .venv and exit; run this on a login node if compute nodes have no network
  --stack cpu|cu12|cu13     package set to install into .venv (default: the set that .venv already contains, else
                            the one that this machine's GPUs and driver support)
  --help                    show this text and the options of the merge

Environment variables:
  PYTHON                    the Python that creates .venv
  MERGE_BENCH_RESULTS       folder for results (default: results/ in the folder of this script)

All other options are passed to `python -m merge_bench run`; for example, --ucx auto|wheel|system chooses which UCX
to load.
TEXT
}

# find_config NAME: prints the path, as merge_bench/config/shipped.py finds it: what the user sees from where they stand
# comes before configs/. It is looked up here so that a misspelt name is told before anything is installed.
find_config() {
    local path known=() candidates=("$1")
    if [[ $1 != */* ]]; then candidates+=("$1.cfg" "$ROOT/configs/$1" "$ROOT/configs/$1.cfg"); fi
    for path in "${candidates[@]}"; do
        if [ -e "$path" ] && [ ! -d "$path" ]; then
            printf '%s\n' "$path"
            return
        fi
    done
    for path in "$ROOT"/configs/*.cfg; do
        if [ -e "$path" ]; then known+=("${path##*/}"); fi
    done
    die 2 "There is no config '$1' in the current folder or in configs/; configs/ contains: ${known[*]:-none}."
}

# take_ucx VALUE: the merge chooses; a mistake is told before anything is installed.
take_ucx() {
    case $1 in auto | wheel | system) ;; *) die 2 "--ucx must be auto, wheel or system, not '$1'." ;; esac
    run_options+=(--ucx "$1")
}

config='' stack=auto setup_only='' help='' names_config='' run_options=()
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    config=$1
    shift
fi
while [ $# -gt 0 ]; do
    case $1 in
    --setup-only) setup_only=yes ;;
    --stack | --ucx)
        [ $# -gt 1 ] || die 2 "$1 needs a value (see --help)."
        if [ "$1" = --stack ]; then stack=$2; else take_ucx "$2"; fi
        shift
        ;;
    --stack=*) stack=${1#*=} ;;
    --ucx=*) take_ucx "${1#*=}" ;;
    -h | --help) help=yes ;;
    --config | --config=* | --configs | --configs=*)
        names_config=yes
        run_options+=("$1")
        ;;
    *) run_options+=("$1") ;;
    esac
    shift
done

if [ -n "$help" ]; then
    usage
    if [ -f "$VENV_STAMP" ]; then
        echo
        exec "$VENV/bin/python" -P -m merge_bench run --help
    fi
    exit 0
fi

# Mistakes first: nobody should wait for an installation to learn of a misspelt name.
case $stack in auto | cpu | cu12 | cu13) ;; *) die 2 "--stack must be cpu, cu12 or cu13, not '$stack'." ;; esac
if [ -n "$config" ] || { [ -z "$names_config" ] && [ -z "$setup_only" ]; }; then
    config=$(find_config "${config:-default.cfg}")
fi

stack=$(choose_stack "$stack")
ensure_venv "$stack"
if [ -n "$setup_only" ]; then
    say "Ready: .venv contains the $stack packages."
    exit 0
fi

# The user's folder is for finding their files; results have one place unless they say otherwise.
export MERGE_BENCH_RESULTS=${MERGE_BENCH_RESULTS:-$ROOT/results}
# -P: a file in the user's folder must not pass for one of Python's modules.
exec "$VENV/bin/python" -P -m merge_bench run ${config:+--config "$config"} ${run_options[@]+"${run_options[@]}"}

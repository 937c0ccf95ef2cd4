#!/usr/bin/env bash
# Checks the GPU code against the packages of the cu13 lock file, without a GPU. Needs a package index and a C compiler.
#
#   cluster/locks/check-wheels.sh [--folder DIR] [--write]
#
# --folder DIR   folder for the packages (about 5 GB); reused while the lock file stays the same.
#                Default: merge_bench/wheels-cu13 in $XDG_CACHE_HOME or ~/.cache.
# --write        write the interfaces to tests/data/rapids-api.json; without it, only compare them with that file.
#
# Exit status: 0 all checks passed, 1 a check failed, 2 wrong usage, 3 the packages could not be installed.
set -euo pipefail
# shellcheck source=cluster/bootstrap.sh
source "$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)/../bootstrap.sh"

folder=${XDG_CACHE_HOME:-$HOME/.cache}/merge_bench/wheels-cu13 write=()
while [ $# -gt 0 ]; do
    case $1 in
        --folder)
            [ -n "${2:-}" ] || die 2 "--folder needs a folder name."
            folder=$2
            shift 2
            ;;
        --write)
            write=(--write)
            shift
            ;;
        -h | --help)
            sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
            exit 0
            ;;
        *) die 2 "check-wheels.sh has no option '$1'; it takes --folder DIR and --write." ;;
    esac
done

# Installed like .venv on a machine with GPUs, in another place. The project itself is not: it is read from here, so
# that all checkouts can share the folder.
mkdir -p "$(dirname "$folder")"
VENV=$(cd "$(dirname "$folder")" && pwd -P)/$(basename "$folder")
VENV_LOCK=$VENV.lock VENV_STAMP=$VENV/.merge-bench-stack
install_project() { :; }
project_is_current() { :; }
wanted_stamp() { # wanted_stamp STACK
    printf 'lock=%s\npython=%s\n' "$(checksum "$(lock_file "$1")")" "$("$VENV/bin/python" -I -V 2>/dev/null)"
}
export VENV_LOCK VENV_STAMP # used by the functions of bootstrap.sh
say "Folder for the packages of the cu13 lock: $VENV."
ensure_venv cu13 dev

cd "$ROOT"
unset PYTHONPATH PYTHONHOME LD_LIBRARY_PATH LD_PRELOAD
exec "$VENV/bin/python" -m tests.rapids "${write[@]}"

"""Program of cluster/locks/check-wheels.sh: one line for each check, then a summary. Status 0 or 1."""

from __future__ import annotations

import sys

from tests.rapids.checks import everything


def main() -> int:
    """Run all checks; `--write` updates the record."""
    passed = failed = 0
    for result in everything(write="--write" in sys.argv[1:]):
        print(f"{'PASS' if result.passed else 'FAIL'}  {result.name:<9} {result.text}", flush=True)
        for line in result.details:
            print(f"      {'':<9} {line}", flush=True)
        passed, failed = passed + result.passed, failed + (not result.passed)
    print(f"{passed} checks passed, {failed} failed. Without a GPU: nothing was allocated, copied or joined.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

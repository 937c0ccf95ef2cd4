"""`python -m merge_bench`, and the command `merge-bench`. Readable for Python 3.6, as `config/installation.py` says."""

import gc
import json
import signal
import sys

from merge_bench.config.installation import block_imports, unusable_python_message


def main() -> None:
    """Run the command line, or say in one sentence why this Python cannot."""
    # Until a command handles Ctrl-C itself, it ends this process: nothing was started yet. Python's KeyboardInterrupt
    # may be lost while libraries are imported, because some of them catch everything.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sentence = unusable_python_message(sys.argv[1:])
    if sentence is not None:
        sys.stderr.write(f"merge_bench: {sentence}\n")
        if "--json" in sys.argv:
            print(json.dumps({"error": {"code": "usage", "message": sentence, "host": None, "rank": None}}))
        sys.exit(2)
    # Imports make many objects and no garbage: to look for it as often as usual takes a run 0.1 s of CPU (AMD EPYC).
    gc.set_threshold(100_000, 50, 100)
    block_imports("rmm")
    from merge_bench.cli import main as command

    command()


if __name__ == "__main__":
    main()

"""The commands in the README and the docs, and which of them ``--soak`` runs: `examples.toml` has an entry for each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ROOT / "docs" / "decisions.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path != DECISIONS),
]
_CALL = re.compile(
    r"(?:^|.*[\s/])(?:python -m (merge_bench|benchmarks\.\w+)|(merge-bench)|\./(run-cluster\.sh))(?=\s|$)(.*)"
)
_REMARK = re.compile(r"(?<=\S)\s{2,}.*|\s(?:>>?|\||\|\||&&|&)(?:\s.*|$)|\s+#.*")
_CUT = re.compile(r"…|\[|<|:::")
_NO_CALL = ("#", "merge_bench:")


@dataclass(frozen=True)
class Example:
    """A command of a page.

    `program`: ``merge_bench``, ``run-cluster.sh`` or ``benchmarks.NAME``; `words`: its options.
    """

    page: str
    program: str
    words: str

    @property
    def key(self) -> str:
        """Its name in `examples.toml`: the words, after any other program than merge_bench."""
        return self.words if self.program == "merge_bench" else f"{self.program} {self.words}".strip()


def examples(page: Path) -> Iterator[Example]:
    """The commands of a page, in indented lines; a backslash goes on in the next line, two spaces begin a remark.

    Lines that show a syntax or are cut short are left out.
    """
    text = re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in re.findall(r"^ {4,}(?:\$ )?(\S.*)$", text, re.M):
        if line.startswith(_NO_CALL) or (found := _CALL.match(line)) is None:
            continue
        module, script, shell, rest = found.groups()
        words = _REMARK.sub("", rest, count=1).strip()
        if not _CUT.search(words):
            yield Example(page.name, module or ("merge_bench" if script else shell), words)


def all_examples() -> list[Example]:
    """Those of all pages."""
    return [example for page in PAGES for example in examples(page)]


@dataclass(frozen=True)
class Table:
    """`runs`: what ``--soak`` runs for a command, by its key; `reasons`: why a command cannot be run, by its key."""

    runs: dict[str, str]
    reasons: dict[str, str]


def read_table() -> Table:
    """`examples.toml`."""
    found = tomllib.loads(Path(__file__).with_name("examples.toml").read_text(encoding="utf-8"))
    unchanged = {key: key for key in found["unchanged"]}
    return Table(unchanged | found["smaller"], {key: reason for reason, keys in found["not"].items() for key in keys})

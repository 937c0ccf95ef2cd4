"""Generated configs: text of the reader's grammar, shell-like soup, and what real bash makes of a text."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import strategies as st

NAMES = ("A", "B", "UCX_TLS", "_x9")
ENVIRONMENT = {"HOME": "/home/u", "IN_ENV": "from env", "EMPTY": ""}

_plain = st.text(alphabet="abzAZ019_./,:%+@^-*?[]!é", max_size=6)
_spaced = st.text(alphabet="ab1 \t,;&|<>()#*~{}=:é!", max_size=8)
_single = _spaced.map(lambda text: f"'{text}'")
_references = st.sampled_from(["$A", "${A}", "$IN_ENV", "${IN_ENV}", "${EMPTY}", "$HOME", "${UCX_TLS}"])
_escapes = st.sampled_from([r"\ ", r"\$", r"\"", r"\'", r"\\", r"\;", r"\#", r"\~", r"\{", r"\a", "\\\n"])
_quoted_piece = st.one_of(
    _spaced,
    _references,
    st.sampled_from([r"\$", r"\"", r"\\", r"\a", "$", "$ ", "~", "'", "\\\n", "${NO:-x}", "${NO:-}"]),
)
_double = st.lists(_quoted_piece, max_size=4).map(lambda pieces: '"' + "".join(pieces) + '"')


def _with_default(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.sampled_from(["NO", "A", "EMPTY", "IN_ENV"])
    return st.builds(lambda n, dash, word: f"${{{n}{dash}{word}}}", name, st.sampled_from([":-", "-"]), words)


_pieces = st.recursive(
    st.one_of(
        _plain,
        _single,
        _double,
        _references,
        _escapes,
        st.sampled_from(["~", "~/x", ":~", "$", "=", "#", "{a,b}", "{1..3}"]),
    ),
    lambda words: _with_default(st.lists(words, max_size=3).map("".join)),
    max_leaves=4,
)
_words = st.lists(_pieces, max_size=4).map("".join)
_assignments = st.builds(lambda name, word: f"{name}={word}", st.sampled_from(NAMES), _words)
_lines = st.one_of(
    st.sampled_from(["", "  ", "# comment; `touch pwned`", "\t#", "export A"]),
    _assignments,
    st.builds(lambda line: f"export {line}  # why", _assignments),
    st.lists(_assignments, min_size=2, max_size=3).map("  ".join),
    st.lists(_assignments, min_size=2, max_size=3).map(lambda parts: "export " + "\t".join(parts)),
)
# A is set first, so that most references resolve.
configs = st.lists(_lines, max_size=6).map(lambda lines: "\n".join(["A=first", *lines]))

_PIECES = r"""
    = = = ' " \ $ ${ } { :- - : ~ / # ; & | < > ( ) ` $( $(( )) <( * ? [ ] ! += , .. ^ % >pwned $(>pwned) `>pwned` é 1
    $A ${A} ${A:- ${A:= ${A@P} ${!A} ${#A} $' $" $[ $1 $_ $$ RANDOM UID IFS PS4 A[0] A=( <<E
"""
_WITH_BLANKS = ["\n", "\n", " ", "\t", "export -p", "f() {", "\\\n", "\r\n"]
_COMMANDS = "export unset eval source if then declare readonly A=a"
_TOKENS = [*NAMES, *_PIECES.split(), *_WITH_BLANKS, "function f ", *(f"{word} " for word in _COMMANDS.split())]
_DANGERS = ["$(>pwned)", "`>pwned`", "${A:-$(>pwned)}", "<(>pwned)", ";>pwned", ">pwned", "$((A=7))", "$[A=7]", "{x,y}"]
_soup = st.lists(st.sampled_from(_TOKENS), max_size=10).map("".join)
_soup_in_a_word = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["A=", "export A=", "export B=1 A=", 'A="', "A=${NO:-", 'A="${NO:-']),
    st.lists(st.one_of(st.sampled_from(_TOKENS), st.sampled_from(_DANGERS)), max_size=2).map("".join),
    st.sampled_from(["", '"', "}", '}"', "\nB=$A"]),
    st.lists(st.sampled_from(_TOKENS), max_size=1).map("".join),
)
soups = st.one_of(_soup, _soup_in_a_word)


def bash_values(
    texts: Sequence[str], environment: Mapping[str, str], folder: Path, names: Sequence[str] = NAMES
) -> list[dict[str, str]]:
    """What `names` are after bash sourced each of `texts` in a shell of its own, in the empty `folder`."""
    for index, text in enumerate(texts):
        (folder / f"{index}.cfg").write_text(text.replace("\r\n", "\n"), encoding="utf-8")
    script = (
        f"for ((i = 0; i < {len(texts)}; i++)); do ( source ./$i.cfg 2>>errors\n"
        f"for n in {' '.join(names)}; do [[ -v $n ]] && printf '%s\\0%s\\0' $n \"${{!n}}\"; done ); printf '\\0'; done"
    )
    shell = ["bash", "--noprofile", "--norc", "-c", script]
    done = subprocess.run(shell, cwd=folder, env=dict(environment), capture_output=True, check=True, timeout=120)
    fields = done.stdout.decode().split("\0")
    found: list[dict[str, str]] = [{} for _ in texts]
    index = at = 0
    while index < len(texts):
        if fields[at] == "":
            index, at = index + 1, at + 1
        else:
            found[index][fields[at]] = fields[at + 1]
            at += 2
    return found

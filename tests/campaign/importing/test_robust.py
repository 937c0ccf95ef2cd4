"""How texts are kept (labels, quotes, colours, encodings, lines of others) changes no figure, and damage is refused."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.campaign.importers import load_format_reader
from merge_bench.campaign.importing import import_file, recognise_format
from merge_bench.campaign.printed_text import PrintedText
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from tests.campaign.importing import samples
from tests.campaign.importing.test_foreign_lines import NOISE, SMI, UCX_TABLE
from tests.campaign.importing.test_formats import PRINTED, nccl_document, shuffles

TEXTS = {
    "osu_bw": samples.OSU_BW,
    "osu_alltoallv": samples.OSU_ALLTOALLV,
    "osu_allreduce": samples.OSU_ALLREDUCE.partition("\n")[2],
    "nccl-tests": samples.NCCL_HEAD + samples.NCCL_RING.partition("\n")[2],
    "nccl-tests 2.19.6": (PRINTED / "nccl-tests-2.19.6-iterations.txt").read_text(),
    "pdsds": samples.PDSDS.partition("\n")[2],
    "pdsh summary": samples.PDSH_SUMMARY,
    "rapidsmpf means": samples.RAPIDSMPF_MEANS,
    "rapidsmpf runs": "\n".join(shuffles(ranks=2, runs=2, warmups=1)),
    "rapidsmpf statistics": samples.RAPIDSMPF_OLD_STATISTICS,
    "ucx_perftest": (PRINTED / "ucx_perftest-1.21.0-batch.txt").read_text(),
    "ucx_perftest -f": (PRINTED / "ucx_perftest-1.21.0-batch-final.txt").read_text(),
    "ucx_perftest -v": (PRINTED / "ucx_perftest-1.21.0-batch-csv.txt").read_text(),
}
# Of UCX 1.21.0, which ran here: tests/data/printed.
UCX_LOG = (PRINTED / "ucx_perftest-1.21.0-tag_bw-64K.txt").read_text().splitlines()[5:32]
SMI_TOPOLOGY = ["\tGPU0\tGPU1\tmlx5_0\tCPU Affinity", "GPU0\t X \tNV2\tNODE\t0,2,4,6,8,10", "0", "real\t0m4.21s"]


def read(content: str | bytes, name: str = "printed.txt") -> list[dict[str, Any]]:
    """The measurements in a text, without the time of the import, and what UCX's log adds."""
    text = PrintedText.decode(Path(name), content if isinstance(content, bytes) else content.encode(), "any")
    result = load_format_reader(recognise_format(text)).read(text)
    lines = [json.loads(msgspec.json.encode(line)) for line in result.measurements]
    own = ("time", "method", "requested", "selected", "protocol")
    return [{key: value for key, value in line.items() if key not in own} for line in lines]


def each_line(change: Callable[[str], str]) -> Callable[[str], str | bytes]:
    return lambda content: "\n".join(map(change, content.splitlines()))


WAYS: dict[str, Callable[[str], str | bytes]] = {
    "srun --label": each_line(lambda line: f"0: {line}"),
    "mpirun --tag-output": each_line(lambda line: f"[1,0]<stdout>:{line}"),
    "mpirun --output tag": each_line(lambda line: f"[1,0]<stdout>: {line}"),
    "mpirun --timestamp-output": each_line(lambda line: f"Sun Dec 24 09:52:05 2017[1,0]<stdout>:{line}"),
    "rrun --tag-output in a log": each_line(lambda line: f"2025-10-31T21:05:50.1557619Z [0] {line}"),
    "an actor of Ray": each_line(lambda line: f"(Shuffler pid=2376537, ip=10.0.0.7) {line}"),
    "quoted": each_line(lambda line: f"> {line}"),
    "quoted twice": each_line(lambda line: f">> {line}"),
    "coloured": each_line(lambda line: f"\x1b[38;5;12m{line}\x1b[m"),
    "CRLF": each_line(lambda line: f"{line}\r"),
    "with a byte order mark": lambda content: content.encode("utf-8-sig"),
    "UTF-16": lambda content: content.encode("utf-16"),
    "in fences": lambda content: f"Hello,\n```\n{content}\n```\nThanks",
    "nvidia-smi around": lambda content: "\n".join([*SMI, content, *SMI, *SMI_TOPOLOGY]),
    "UCX's log before": lambda content: "\n".join([*UCX_LOG, *UCX_TABLE, content]),
    "UCX's log after": lambda content: "\n".join([content, *UCX_LOG, *UCX_TABLE]),
    "UCX's log between": lambda content: "\n".join(line for each in content.splitlines() for line in (each, *UCX_LOG)),
    "UCX's log of another rank": lambda content: "\n".join(
        line for each in content.splitlines() for line in (f"0: {each}", *(f"17: {line}" for line in UCX_LOG))
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TEXTS)
def test_kept_in_any_way_a_text_has_the_figures_of_the_plain_one(name: str, way: str) -> None:
    assert read(WAYS[way](TEXTS[name])) == read(TEXTS[name])


FOREIGN = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([*UCX_LOG, *UCX_TABLE, *SMI, *NOISE, *SMI_TOPOLOGY])), max_size=20
)


@given(name=st.sampled_from(list(TEXTS)), lines=FOREIGN)
def test_lines_of_others_anywhere_change_no_figure(name: str, lines: list[tuple[int, str]]) -> None:
    noisy = TEXTS[name].splitlines()
    for place, line in lines:
        noisy.insert(place, line)
    assert read("\n".join(noisy)) == read(TEXTS[name])


@given(name=st.sampled_from(list(TEXTS)), share=st.floats(0, 1))
def test_a_cut_text_is_refused_or_has_the_first_figures(name: str, share: float) -> None:
    whole, content = read(TEXTS[name]), TEXTS[name].rstrip("\n")
    with contextlib.suppress(UsageError):
        found = read(content[: int(share * len(content))])
        assert 0 < len(found) <= len(whole)
        for mine, plain in zip(found, whole, strict=False):
            values, all_values = figures(mine), figures(plain)
            assert values == {name: all_values.get(name) for name in values}


def figures(line: dict[str, Any]) -> dict[str, Any]:
    """What a line of the records says; values of a command each by itself, as a cut text has fewer.

    A number of iterations that was cut cannot be noticed.
    """
    flat = {key: value for key, value in line.items() if key not in ("values", "wall_seconds", "iterations")}
    return flat | line.get("values", {})


REFUSED = [
    ("hello\n", "printed.txt fits none of the formats cudf-merge, nccl-tests, osu, cudf-polars, rapidsmpf"),
    (samples.UCX_LOG, "fits none of the formats"),
    (samples.NCCL_HEAD, "fits none of the formats"),
    ("", "printed.txt is empty"),
    (
        samples.OSU_BW + samples.NCCL_RING,
        "printed.txt has output of nccl-tests (line 27) and osu (line 1); put each into",
    ),
    (samples.OSU_BW + samples.OSU_BW, "line 26 of printed.txt: a second osu_bw begins; put each run into its own file"),
    (samples.OSU_BW + "1   1.53\n", "expected a size above 4194304, found 1"),
    (samples.OSU_BW.replace("1785.15", "1785.1"), "'4194304              1785.1' is not a whole row of osu_bw"),
    (samples.OSU_BW.replace("1785.15", ""), "'4194304' is not a whole row of osu_bw; the text is cut or damaged"),
    ("\n".join(samples.OSU_BW.splitlines()[:2]), "it ends at line 2, before the first row of osu_bw"),
    (samples.OSU_BW.splitlines()[0], "has no heading '# Size …' for osu_bw of line 1"),
    (samples.OSU_BW.replace("Bandwidth (MB/s)", "Bandwidth [MB/s]"), "line 2 of printed.txt: the columns"),
    (samples.NCCL_WRONG, "nccl-tests reports a wrong result: 2 values are out of bounds"),
    (samples.NCCL_RING + samples.NCCL_RING, "a second table of an unnamed collective begins"),
    (samples.NCCL_RING.rpartition("# Avg")[0], "has no line 'Avg bus bandwidth' for the table of line 2"),
    (samples.NCCL_RING.replace("   536870912     134217728", "#   536870912   13"), "rows are missing or damaged"),
    (samples.NCCL_RING.replace("93.46", "39.46"), "have a mean bus bandwidth of 89.901 GB/s, but the text has 95.3009"),
    (samples.NCCL_RING.replace(" 97.09      0", ""), "is not a whole row of nccl-tests; the text is cut or damaged"),
    ('{"nccl_version": ' + '{"a":' * 100_000, "is not one whole JSON document"),
    (nccl_document()[:-200], "is not one whole JSON document"),
    (nccl_document(out_of_bounds={"count": 4, "okay": "false"}), "reports a wrong result: 4 values out of bounds"),
    (nccl_document(results=[]), "has no results with an average_bus_bandwidth"),
    (nccl_document(results=[{"size": None, "in_place": {"time": 1}}]), "the JSON document has no number 'size'"),
    (samples.PDSH_WRONG + samples.PDSDS, "line 1 of printed.txt: the benchmark reports a wrong result of query 4"),
    (samples.PDSDS.replace("0.4179s", "0.41"), "'0.41' is not a time such as 1.3267s; the text is cut or damaged"),
    (samples.PDSDS + samples.PDSDS, "query 17 has a second iteration 0; put each run into its own file"),
    (samples.PDSDS.replace("Query 19 - Iteration 0", "Query 19 - Iteration 1"), "has no iteration 0 of query 19"),
    (samples.PDSDS + samples.PDSH_SUMMARY, "has no time of query 1, which its summary has"),
    (samples.RAPIDSMPF_MEANS * 2, "the statistic spill-bytes-host-to-device of rank 0 is there twice"),
    (samples.RAPIDSMPF_MEANS.splitlines()[-1] + "\nelapsed: 1 sec", "a second run of rank 0 begins"),
    (samples.RAPIDSMPF_OLD_STATISTICS.replace("616.85 ms", "616.85 m"), "'616.85 m' is not the value of a statistic"),
    (samples.RAPIDSMPF_OLD_STATISTICS.partition(".85 ms\n")[0], "'616' is not the value of a statistic"),
    (samples.RAPIDSMPF_MEANS.replace("38.62 GiB/s", "38.62 GiB"), "'38.62 GiB' is not a rate"),
    (samples.RAPIDSMPF_MEANS.replace("(avg 1.86 GiB)", "(avg"), "'3.73 GiB (avg' is not the value of a statistic"),
    (samples.RAPIDSMPF_MEANS.replace("3.09 sec", "3.09"), "'3.09' is not a time; the text is cut or damaged"),
    (samples.RAPIDSMPF_JSON[:-20], "is not one whole JSON document"),
    ("Statistics:\n - shuffle-payload-recv:  1.12 GiB\n", "has no time: neither a line 'elapsed: …'"),
    ("\n".join(shuffles(ranks=2, runs=2, warmups=1)[:-1]), "where rank 1 has 2 of 3 runs"),
    (samples.UCX_PERFTEST_CUT, "has not a line 'Final: …' below the heading of line 4"),
    (samples.UCX_PERFTEST_TITLED, "the text has no message size; add the output of the server"),
    (TEXTS["ucx_perftest"] + TEXTS["ucx_perftest"], "there is a second result of tag_lat with 8 bytes"),
    (TEXTS["ucx_perftest"].replace("706231      706231", "706231"), "is not a whole row; the text is cut or damaged"),
    (TEXTS["ucx_perftest"].replace("tag_bw/4096---", "tag_bw/8192---"), "is not 8192 bytes ÷ its time"),
]


@pytest.mark.parametrize(("content", "sentence"), REFUSED)
def test_what_is_no_whole_output_of_one_run_is_refused_in_a_sentence(content: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)) as error:
        read(content)
    assert "\n" not in str(error.value)


def test_a_refused_file_leaves_no_result(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(samples.UCX_PERFTEST_CUT)
    with pytest.raises(UsageError):
        import_file(tmp_path / "a.txt", tmp_path / "results")
    assert not (tmp_path / "results").exists()


NINES = "9" * 5000
HOSTILE = [
    samples.OSU_BW.replace("1.53", f"{NINES}.00"),
    samples.OSU_BW.replace("4194304", NINES),
    samples.OSU_BW.replace("4194304", "9" * 15),
    samples.OSU_ALLREDUCE.replace("-np 96", f"-np {NINES}"),
    samples.NCCL_RING.replace("8589934592", NINES),
    samples.NCCL_RING.replace(" 10052 ", " 1e999 "),
    samples.NCCL_HEAD.replace("iters: 20", f"iters: {NINES}") + samples.NCCL_RING,
    nccl_document(nccl_version=int("9" * 4000)),
    nccl_document(config={"nthreads": 10**12, "ngpus": 10**12, "devices": [{"hostname": "a"}]}),
    samples.PDSDS.replace("Iteration 0", "Iteration 999999"),
    samples.PDSDS.replace("Query 17", f"Query {NINES}"),
    samples.PDSDS.replace("1.3267", f"{NINES}.0000"),
    samples.RAPIDSMPF_MEANS.replace("3.09 sec", f"{NINES} sec"),
    samples.RAPIDSMPF_MEANS.replace("3.09 sec", f"{'9' * 18} d"),
    samples.RAPIDSMPF_MEANS.replace("3.73 GiB (avg 1.86 GiB)", "1e999"),
    samples.RAPIDSMPF_OLD_STATISTICS.replace("0:0", f"{NINES}:0"),
    TEXTS["ucx_perftest"].replace("3.974     3.974", f"3.974     {NINES}"),
    TEXTS["ucx_perftest"].replace("1.92       1.92", f"1.92       {NINES}"),
    TEXTS["ucx_perftest"].replace("tag_lat/8--", f"tag_lat/{NINES}--"),
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_numbers_that_cannot_be_are_refused_in_a_sentence_or_left_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(content)
    try:
        campaign = read_campaign(import_file(tmp_path / "a.txt", tmp_path / "results"))
    except UsageError:
        assert not (tmp_path / "results").exists()
    else:
        assert campaign.records.stat().st_size < 2_000_000


LONG = ["1 " * 200_000, "=" * 400_000, "> " * 200_000, "+a" + "-" * 400_000, "[0] " * 100_000]


def replaced(value: Any, new: Any) -> list[Any]:
    """A JSON value with `new` in each of its places, one after the other."""
    if isinstance(value, dict):
        return [new, *({**value, key: each} for key, old in value.items() for each in replaced(old, new))]
    if isinstance(value, list):
        pairs = [(at, each) for at, old in enumerate(value[:2]) for each in replaced(old, new)]
        return [new, *([*value[:at], each, *value[at + 1 :]] for at, each in pairs)]
    return [new]


@pytest.mark.parametrize("new", [None, 1, -1, "x", [], {}, [1], True], ids=repr)
def test_json_of_another_shape_is_refused_or_read(new: Any) -> None:
    for document in (nccl_document(), samples.RAPIDSMPF_JSON):
        for changed in replaced(json.loads(document), new):
            with contextlib.suppress(UsageError):
                assert read(json.dumps(changed, indent=2))


@pytest.mark.parametrize("line", LONG, ids=["numbers", "separator", "quotes", "batch", "labels"])
def test_long_lines_take_no_long_time(line: str) -> None:
    began = time.process_time()
    for content in (samples.OSU_BW, samples.RAPIDSMPF_MEANS, TEXTS["ucx_perftest"], samples.NCCL_RING, samples.PDSDS):
        with contextlib.suppress(UsageError):
            read(f"{content}{line}\n")
    assert time.process_time() - began < 5


def test_the_format_can_be_forced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(samples.OSU_BW + samples.NCCL_RING)
    for name in ("osu", "nccl-tests"):
        assert import_file(tmp_path / "a.txt", tmp_path / "results", format=name).is_dir()
    with pytest.raises(UsageError, match="has no heading of ucx_perftest"):
        import_file(tmp_path / "a.txt", tmp_path / "results", format="ucx_perftest")


@pytest.mark.parametrize(
    "line", ["mpirun noticed that process rank 1 exited on signal 9", "1: srun: error: node2: Killed"]
)
def test_a_run_that_failed_is_imported_with_a_warning(line: str) -> None:
    text = PrintedText.decode(Path("a"), f"{samples.OSU_BW}{line}\n".encode(), "any")
    (first, *_) = load_format_reader("osu").read(text).warnings
    assert first.code == "imported-error"

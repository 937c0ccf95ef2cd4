"""Datasets as the rest of the program gets them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import to_builtins

from merge_bench.analysis import published
from merge_bench.campaign.importing import import_file
from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.helpers.documents import summarized
from tests.helpers.strict_records import validate

NETWORK = {
    "nthu-hw4-latency": (92, 4),
    "nthu-hw4-bandwidth": (69, 3),
    "krakow-mpi-delay": (4, 4),
    "cuhk-reduce-scatter": (28, 2),
    "hust-rma-put": (42, 2),
}
CAMPAIGNS = {"gadi-v100-optimized-small": 9.28, "gadi-v100-optimized-large": 12.37}
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "published.md"


def test_every_dataset_says_what_it_is_and_where_it_is_from() -> None:
    found = published.datasets()
    assert set(found) == {*NETWORK, *CAMPAIGNS, "gadi-v100", "gadi-dgx-a100", "gadi-v100-settings"}
    for name, data in found.items():
        assert data.name == name
        told = (data.title, data.what, data.cite, data.authors, data.hardware, data.method, data.published_units)
        assert all(told)
        assert data.source
        assert data.notes
        assert data.path.exists()


def test_the_documentation_names_every_dataset() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in published.datasets() if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", NETWORK)
def test_network_rows_are_whole_series_by_size(name: str) -> None:
    rows = published.network_rows(name)
    count, series = NETWORK[name]
    assert len(rows) == count
    keys = list(dict.fromkeys(row.series_key for row in rows))
    assert len(keys) == series
    assert [row.series_key for row in rows] == [key for key in keys for row in rows if row.series_key == key]
    for key in keys:
        sizes = [row.size for row in rows if row.series_key == key]
        assert sizes == sorted(set(sizes))
    assert {row.source for row in rows} == {published.dataset(name).cite}
    assert {row.probe for row in rows} <= {"mpi", "rma", "reduce-scatter"}
    assert all(row.seconds is not None or row.bandwidth is not None for row in rows)


def test_the_invalid_column_is_left_out() -> None:
    assert {row.config for row in published.network_rows("nthu-hw4-bandwidth")} == {
        "NTHU HW4 after (all)",
        "NTHU HW4 two nodes",
        "NTHU HW4 one node",
    }


def test_rows_tell_requested_and_selected_transports_where_published() -> None:
    rows = published.network_rows("nthu-hw4-latency")
    before = next(row for row in rows if row.config == "NTHU HW4 before (ud_verbs)")
    assert before.requested == {"UCX_NET_DEVICES": "ibp3s0:1", "UCX_TLS": "ud_verbs"}
    assert before.seconds is not None
    assert before.seconds.median == 1.73e-6
    apart = next(row for row in rows if row.placement == "two-hosts")
    assert apart.selected == ("rc_verbs", "tcp")


def test_a_reduce_scatter_row_has_its_vector_its_ranks_extremes_and_its_doubt() -> None:
    rows = {(row.config, row.size): row for row in published.network_rows("cuhk-reduce-scatter")}
    ucp = rows["CUHK UCP", 2**18]
    assert ucp.count == 2**16
    assert ucp.seconds is not None
    assert ucp.bandwidth is not None
    assert (ucp.seconds.median, ucp.seconds_ranks) == (46.07e-6, (45.68e-6, 46.44e-6))
    assert (ucp.bandwidth.median, ucp.bandwidth_ranks) == (4.27e9, (4.23e9, 4.30e9))
    assert ucp.note is None
    sharp = rows["CUHK SHARP", 2**18]
    assert sharp.seconds is not None
    assert sharp.seconds.median == 25.60e-6
    assert sharp.note is not None
    assert "a quarter" in sharp.note


def test_rows_name_their_tests_as_our_own_measurements_do() -> None:
    tests = {name: {row.test for row in published.network_rows(name)} for name in NETWORK}
    assert tests == {
        "nthu-hw4-latency": {"osu_latency"},
        "nthu-hw4-bandwidth": {"osu_bw"},
        "krakow-mpi-delay": {"std-delay", "buff-delay"},
        "cuhk-reduce-scatter": {"ucc-sharp", "ucc-ucp"},
        "hust-rma-put": {"put-overlapping", "put-non-overlapping"},
    }


def test_rows_become_json_with_their_source() -> None:
    row = to_builtins(published.network_rows("krakow-mpi-delay")[0])
    assert (row["seconds"], row["size"], row["placement"]) == (2.8e-7, 1, "one-host")
    assert row["source"].startswith("AGH Kraków")


def test_merge_results_have_every_cell() -> None:
    small = published.merge_results("gadi-v100")
    assert len(small) == 8
    large = published.merge_results("gadi-dgx-a100")
    assert len(large) == 10
    am = {(r.config, r.metric): r.published for r in large if r.rows_per_chunk == 25_000_000}
    assert am["optimized", "throughput"] == "34.89 GiB/s"
    assert am["optimized-rndv-auto", "throughput"] == "89.00 GiB/s"
    assert {r.hardware for r in large} == {"NCI Gadi, 2 DGX-A100 with 8 NVIDIA A100 each"}


def test_effects_without_a_number_have_none() -> None:
    effects = {effect.label: effect for effect in published.settings_effects("gadi-v100-settings")}
    nothing = effects["GPUDirect RDMA"]
    assert (nothing.value, nothing.ratio, nothing.published) == (None, None, None)
    assert nothing.note is not None
    pools = [e for e in published.settings_effects("gadi-v100-settings") if e.label.startswith("RMM pool")]
    assert [(e.beside, e.published) for e in pools] == [
        ("default", "4.74 GiB/s"),
        ("default", "4.35 GiB/s"),
        ("optimized", "8.98 GiB/s"),
        ("optimized", "8.25 GiB/s"),
        ("optimized", "8.27 GiB/s"),
    ]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_published_campaign_is_what_importing_its_text_makes(name: str, tmp_path: Path) -> None:
    folder = published.campaign_folder(name)
    stored = read_campaign(folder)
    for line in stored.records.read_bytes().splitlines():
        validate(line)
    made = read_campaign(import_file(folder / "logs" / f"{name}.out", tmp_path))
    assert [_timeless(line) for line in made.launches[0].iterations] == [
        _timeless(line) for line in stored.launches[0].iterations
    ]
    source, now = stored.head.imported_from, made.head.imported_from
    assert source is not None
    assert now is not None
    assert (source.sha256, source.headline) == (now.sha256, now.headline)
    assert stored.head.plans == made.head.plans
    assert stored.head.campaign_id == name
    document = summarized(stored)
    assert document["imported"]["headline"]["throughput_bytes_per_second"] == pytest.approx(CAMPAIGNS[name] * 2**30)
    assert document["verified"] is False


def test_an_unknown_name_is_answered_with_the_names() -> None:
    with pytest.raises(UsageError, match=r"no published dataset 'nthu'; choose from .*hust-rma-put.*nthu-hw4-latency"):
        published.network_rows("nthu")


def test_a_dataset_of_another_kind_is_answered_with_those_of_the_right_one() -> None:
    with pytest.raises(
        UsageError, match="gadi-v100' contains merge results, not network measurements; choose a dataset from cuhk"
    ):
        published.network_rows("gadi-v100")
    with pytest.raises(UsageError, match="hust-rma-put' contains network measurements, not effects of settings"):
        published.settings_effects("hust-rma-put")
    with pytest.raises(UsageError, match="not merge results; choose a dataset from gadi-dgx-a100, gadi-v100"):
        published.merge_results("hust-rma-put")


def test_a_broken_link_to_the_data_is_said(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("none")
    with pytest.raises(UsageError, match=r"link is missing or broken; .* symbolic link to results/published"):
        published.datasets(link)


def _timeless(line: s.IterationLine) -> tuple[object, ...]:
    return line.index, line.wall_seconds, line.imported

"""Our source and our fakes against the recorded interfaces of RAPIDS (tests/data/rapids-api.json)."""

from __future__ import annotations

import copy
import enum
import types
from typing import Any

import pytest

from tests.helpers import fake_nvml, fake_rapids
from tests.rapids import fakes, fitting, options, packages, record, sources
from tests.rapids.record import Recorded
from tests.rapids.uses import Reading

ENGINE, MEMORY = "merge_bench/merge/engines/cudf.py", "merge_bench/merge/engines/gpu_memory.py"
RECORD = "cluster/locks/check-wheels.sh --write installs what is locked and records it"


@pytest.fixture(scope="module")
def library() -> Recorded:
    return Recorded(record.read())


@pytest.fixture(scope="module")
def ours(library: Recorded) -> dict[str, Reading]:
    return sources.read(library)


def misfits(file: str, ours: dict[str, Reading], right: str, wrong: str) -> list[str]:
    """What is wrong with a file of ours in which some words are others."""
    text, library = (sources.ROOT / file).read_text(), ours[file].library
    assert right in text
    changed = sources.reading(text.replace(right, wrong), file, library, ours[file].others)
    return list(fitting.misfits(changed, library))


# --- as things are --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_call_of_ours_fits_the_recorded_parameters(library: Recorded, ours: dict[str, Reading]) -> None:
    wrong = [f"{name}: {line}" for name, reading in ours.items() for line in fitting.misfits(reading, library)]
    assert not wrong, [*wrong, RECORD]
    calls = {name: sum(use.positional is not None for use in reading.uses) for name, reading in ours.items()}
    assert calls[ENGINE] >= 25
    assert calls[MEMORY] >= 13
    assert calls["merge_bench/host/gpu.py"] >= 15


@pytest.mark.slow
def test_fakes_have_the_recorded_parameters_and_values(library: Recorded, ours: dict[str, Reading]) -> None:
    assert list(fakes.ours(library, ours.values())) == []


def test_dask_cuda_worker_has_every_option_that_it_is_given(library: Recorded) -> None:
    taken = library.document["dask cuda worker"]
    given = options.given()
    assert all(len(words) > 10 for words in given)
    assert [problem for words in given for problem in options.unknown(words, taken)] == []


def test_the_record_is_of_the_locked_versions(library: Recorded) -> None:
    locked = packages.locked()
    versions = library.document["packages"]
    assert len(versions) >= 10
    assert {name: locked.get(name) for name in versions} == versions, RECORD


def test_the_record_is_written_as_it_is_made(library: Recorded) -> None:
    assert record.text(library.document) == record.FILE.read_text()


# --- what is wrong is found -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("plc.join.inner_join(", "plc.join.inner_joint(", "pylibcudf.join has no inner_joint"),
        ("seed=PARTITION_SEED", "seeds=PARTITION_SEED", "unexpected keyword argument 'seeds'"),
        ("nullable, len(nullable), stream", "nullable, stream", "missing a required argument: 'keep_threshold'"),
        ("Policy.NULLIFY, stream=self._stream)", "Policy.NULLIFY, 1, 2, 3, 4)", "too many positional"),
        ("OutOfBoundsPolicy.DONT_CHECK", "OutOfBoundsPolicy.NO_CHECK", "OutOfBoundsPolicy has no NO_CHECK"),
        ("int(table.num_rows())", "int(table.row_count())", "pylibcudf.table.Table has no row_count"),
        ("stream=self._stream).release()", "stream=self._stream).release(1)", "release(): too many positional"),
        ("data.nbytes, data)", "data.length, data)", "gpumemoryview has no length"),
        ("existing_pool.pool_size()", "existing_pool.size_of_pool()", "PoolMemoryResource has no size_of_pool"),
        ("counted.peak_bytes", "counted.most_bytes", "rmm.statistics.Statistics has no most_bytes"),
        ("import rmm.statistics", "import rmm.counters", "there is no rmm.counters"),
    ],
)  # fmt: skip
def test_a_wrong_call_in_the_engine_is_found(ours: dict[str, Reading], right: str, wrong: str, message: str) -> None:
    file = ENGINE if right in (sources.ROOT / ENGINE).read_text() else MEMORY
    found = misfits(file, ours, right, wrong)
    assert any(message in line for line in found), found


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "_call_nvml(nvml.nvmlDeviceGetName, handle)",
            "_call_nvml(nvml.nvmlDeviceGetName)",
            "missing a required argument",
        ),
        ("nvml.nvmlSystemGetDriverVersion", "nvml.nvmlSystemVersion", "pynvml has no nvmlSystemVersion"),
        ("nvml.NVML_CLOCK_MEM", "nvml.NVML_CLOCK_MEMORY", "pynvml has no NVML_CLOCK_MEMORY"),
        ("pci.busId", "pci.bus_id", "a result of pynvml has no bus_id"),
    ],
)
def test_a_wrong_question_to_nvml_is_found(ours: dict[str, Reading], right: str, wrong: str, message: str) -> None:
    found = misfits("merge_bench/host/gpu.py", ours, right, wrong)
    assert any(message in line for line in found), found


def fake_modules(path: str, value: Any) -> dict[str, types.ModuleType]:
    """The fakes with one name replaced."""
    made = fake_rapids.modules()
    module, _, name = path.rpartition(".")
    root, *inner = module.split(".")
    found = made[root]
    for part in inner:
        found = getattr(found, part)
    setattr(found, name, value)
    return made


def swapped(keys: Any, input: Any, num_partitions: Any, hash_function: Any = 1, seed: int = 0, stream: Any = None,
            mr: Any = None) -> None: ...  # fmt: skip


def another_default(input: Any, stream: Any = None, mr: Any = 0) -> None: ...


def required(source_table: Any, keys: Any, keep_threshold: Any, stream: Any, mr: Any = None) -> None: ...


class Equality(enum.IntEnum):
    EQUAL = 1
    UNEQUAL = 0


class Policy(enum.IntEnum):
    WRAP = 7


class TableWithoutCall:
    def __init__(self, columns: Any, num_rows: int | None = None) -> None: ...

    @property
    def num_rows(self) -> int:
        return 0

    @staticmethod
    def from_arrow(table: Any, dtype: Any = None, stream: Any = None, mr: Any = None) -> None: ...


@pytest.mark.parametrize(
    ("path", "fake", "message"),
    [
        ("pylibcudf.partitioning.hash_partition", swapped, "takes (keys, input"),
        ("pylibcudf.contiguous_split.pack", another_default, "mr=0)"),
        (
            "pylibcudf.stream_compaction.drop_nans",
            required,
            "the real one (source_table, keys, keep_threshold, stream=None",
        ),
        ("pylibcudf.types.NullEquality", Equality, "NullEquality.EQUAL: 1, and the real value is 0"),
        ("pylibcudf.copying.OutOfBoundsPolicy", Policy, "OutOfBoundsPolicy.WRAP: RAPIDS has no such name"),
        ("pylibcudf.Table", TableWithoutCall, "Table.num_rows: a property, and the real one is none"),
        ("pylibcudf.Table", TableWithoutCall, "Table.from_arrow: takes (table,"),
        ("rmm.mr.pool", print, "rmm.mr.pool: RAPIDS has no such name"),
    ],
)
def test_a_fake_that_differs_is_found(library: Recorded, path: str, fake: Any, message: str) -> None:
    found = list(fakes.differences(fake_modules(path, fake), {}, {"pylibcudf.Table"}, library))
    assert any(message in line for line in found), found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nvmlDeviceGetSerialNumbers": lambda: 0}, "nvmlDeviceGetSerialNumbers: there is no such name"),
        ({"NVML_CLOCK_MEM": 1}, "NVML_CLOCK_MEM: 1, and the real value is 2"),
        ({"nvmlDeviceGetName": lambda: ""}, "nvmlDeviceGetName: takes 0 arguments, and the real one (handle)"),
        ({"nvmlDeviceGetName": ValueError}, "nvmlDeviceGetName: a type, and the real one is a function"),
    ],
)
def test_a_fake_management_library_that_differs_is_found(
    library: Recorded, changed: dict[str, Any], message: str
) -> None:
    fake = fake_nvml.library()
    vars(fake).update(changed)
    assert list(fakes.management(fake, library)) == [f"pynvml.{message}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preload-nanny", "module"], "--preload-nanny is no option"),
        (["--nthreads"], "--nthreads needs a value"),
        (["--protocol", "--name", "worker-0"], "--protocol needs a value"),
        (["8786"], "8786 is no option"),
    ],
)
def test_a_wrong_option_is_found(library: Recorded, words: list[str], message: str) -> None:
    assert message in "\n".join(options.unknown(words, library.document["dask cuda worker"]))


def test_what_changed_is_told(library: Recorded) -> None:
    other = copy.deepcopy(dict(library.document))
    assert list(record.differences(library.document, other)) == []
    other["packages"]["rmm-cu13"] = "99.1.0"
    other["names"]["pylibcudf.join.inner_join"]["call"] = "(left, right)"
    del other["members"]["pylibcudf.table.Table"]["num_rows"]
    other["dask cuda worker"]["--new"] = {"value": False, "default": None}
    old = library.document["packages"]["rmm-cu13"]
    found = list(record.differences(library.document, other))
    assert len(found) == 4
    assert f"changed: packages rmm-cu13 was {old}, is 99.1.0" in found
    assert any(line.startswith("changed: pylibcudf.join.inner_join was function (left_keys") for line in found)
    assert any(line.startswith("gone: pylibcudf.table.Table.num_rows") for line in found)
    assert any(line.startswith("new: dask cuda worker --new") for line in found)

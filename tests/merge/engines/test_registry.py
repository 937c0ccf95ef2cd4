"""The registry: what the engines' files say of them, read without loading them, and what is made from it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from merge_bench.campaign import add_registry_values
from merge_bench.campaign.machine_checks import check_engine
from merge_bench.campaign.make_plan import choose_engine
from merge_bench.config.options import BY_KEY, RunOptions
from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.merge.engines import (
    EngineDescription,
    choose_auto_engine,
    default_engine,
    describe_engine,
    engine_descriptions,
    engine_names,
    engine_option_help,
    import_engine_class,
)
from merge_bench.merge.engines.cpu_base import HostEngine
from merge_bench.merge.workload.tables import refuse_unsupported_types
from tests.helpers import merge_cases
from tests.helpers.members import add_member, install_empty
from tests.helpers.runs import ROOT, environment, run

TOY = '''"""An engine that nothing else in the package knows of."""

from __future__ import annotations

import pyarrow as pa

from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.cpu_base import HostEngine

ENGINE = EngineDescription(
    name="toy", help="joins with Arrow", attribute="ToyEngine", packages=("pyarrow",), place=99, in_parts=True,
    refuses=(("boolean", "it is a toy"),), kept_bytes=100,
)


class ToyEngine(HostEngine):
    """Joins with Arrow."""

    name = ENGINE.name

    def join_tables(self, left, right):
        return left.join(right, list(self.columns.keys), join_type="inner")
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineDescription:
    """An engine in a folder of its own, which the registry has beside that of the package."""
    add_member(monkeypatch, engines, tmp_path, "toy", TOY)
    return describe_engine("toy")


@pytest.fixture
def pylibcudf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the engine cudf, without which it is not chosen."""
    install_empty(monkeypatch, tmp_path, "pylibcudf")


@pytest.mark.parametrize("engine", engine_descriptions(), ids=engine_names())
@pytest.mark.usefixtures("pylibcudf")
def test_what_is_read_is_what_the_module_has(engine: EngineDescription) -> None:
    made = import_engine_class(engine.name)
    assert isinstance(made, type)
    assert engine == sys.modules[made.__module__].ENGINE
    assert made.name == engine.name
    assert engine.in_parts == hasattr(made, "join_part")
    assert engine.device_memory != issubclass(made, HostEngine)
    assert engine.help
    assert "\n" not in engine.help
    for kind, _ in engine.refuses:
        assert callable(getattr(pa.types, f"is_{kind}"))


def test_files_that_engines_share_are_no_engines() -> None:
    files = {path.stem for path in Path(engines.__path__[0]).glob("*.py")}
    assert {"__init__", "base", "cpu_base", "hash_join_loops", "gpu_memory"} <= files - set(engine_names())
    assert len(set(engine_names())) == len(engine_names()) >= 4


def test_host_memory_comes_first_in_lists() -> None:
    on_gpus = [engine.device_memory for engine in engine_descriptions()]
    assert on_gpus == sorted(on_gpus)
    assert engine_names()[:3] == ("native", "polars", "pandas")
    assert engine_names()[-1] == "cudf"


def test_an_unknown_engine() -> None:
    for ask in (describe_engine, functools.partial(refuse_unsupported_types, columns=[])):
        with pytest.raises(UsageError) as caught:
            ask("spark")
        assert str(caught.value) == f"there is no engine 'spark'; the engines are {', '.join(engine_names())}"


@pytest.mark.usefixtures("pylibcudf")
def test_auto_takes_the_first_that_can_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {
        (gpus, dask): choose_auto_engine(has_gpus=gpus, needs_dask=dask).name for gpus in (0, 1) for dask in (0, 1)
    } == {
        (0, 0): "native",
        (0, 1): "pandas",
        (1, 0): "cudf",
        (1, 1): "cudf",
    }
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    assert choose_auto_engine(has_gpus=True).name == "native"
    assert choose_auto_engine(has_gpus=True, needs_dask=True).name == "pandas"
    assert default_engine(device_memory=True).device_memory


def test_an_engine_without_its_package_or_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = describe_engine("cudf")
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(UsageError) as caught:
        check_engine(engine, {}, 1, here=True)
    asked = "--engine cudf and --memory cuda"
    assert str(caught.value).startswith(f"{asked} each need the package pylibcudf; run: ")
    with pytest.raises(UsageError) as caught:
        check_engine(engine, {}, 0, here=True)
    assert str(caught.value) == f"{asked} need an NVIDIA GPU, but none is visible on this host"
    check_engine(engine, {}, 0, here=False)


def test_engines_that_dask_has_not_are_refused() -> None:
    for engine in engine_descriptions():
        options = RunOptions(engine=engine.name, exchange="dask")
        if engine.dask_backend is None:
            with pytest.raises(UsageError) as caught:
                choose_engine(options, gpus=False)
            assert str(caught.value) == (
                f"--exchange dask does not support --engine {engine.name}; use --engine pandas or cudf"
            )
        else:
            assert choose_engine(options, gpus=False) == engine


def test_the_help_and_the_choices_list_all() -> None:
    option = add_registry_values(BY_KEY["engine"])
    assert option.placeholder.removesuffix("[,…]").split("|") == ["auto", *engine_names()]
    assert "auto: cudf on GPUs, else native; " in option.help
    for engine in engine_descriptions():
        assert f"{engine.name}: {engine.help}" in option.help


def test_every_engine_is_documented() -> None:
    text = (ROOT / "docs" / "merging.md").read_text(encoding="utf-8")
    for name in engine_names():
        assert f"\n| `{name}` |" in text
    options = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8").replace("\\|", "|")
    assert f"| `--engine {add_registry_values(BY_KEY['engine']).placeholder}` |" in options


def test_listing_engines_loads_no_library() -> None:
    heavy = "numpy|pyarrow|numba|polars|pandas|duckdb|pylibcudf"
    code = (
        "import re, sys\nfrom merge_bench.merge.engines import engine_names\nassert 'native' in engine_names()\n"
        f"print([m for m in sys.modules if re.fullmatch({heavy!r}, m)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("case", ["integers", "strings", "several keys"])
def test_a_file_in_the_folder_is_an_engine(toy: EngineDescription, case: str) -> None:
    assert toy.help == "joins with Arrow"
    assert engine_names()[-2:] == ("toy", "cudf")
    assert "toy: joins with Arrow; cudf:" in engine_option_help()
    ours = merge_cases.merge("toy", case, 2, merge_cases.copy_host)
    theirs = merge_cases.merge("polars", case, 2, merge_cases.copy_host)
    assert merge_cases.rows_of(ours.select(theirs.column_names).cast(theirs.schema)) == merge_cases.rows_of(theirs)


def test_what_such_an_engine_refuses_is_refused(toy: EngineDescription) -> None:
    refuse_unsupported_types(toy.name, [("c", pa.int64())])
    with pytest.raises(UsageError, match=r"column 'c' has type bool, which engine toy cannot merge \(it is a toy\)"):
        refuse_unsupported_types(toy.name, [("c", pa.bool_())])


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, to which one file was added."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "merge_bench", folder / "merge_bench")  # with what is compiled
    (folder / "merge_bench" / "merge" / "engines" / "toy.py").write_text(TOY)
    return folder


def command(package: Path, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "merge_bench", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment(folder, {"PYTHONPATH": str(package), "COLUMNS": "200", **more}),
    )


@pytest.mark.slow
def test_one_file_more_is_all_that_the_command_needs(package: Path, tmp_path: Path) -> None:
    shown = command(package, tmp_path, "run", "--help").stdout
    assert f"--engine auto|{'|'.join(engine_names()[:-1])}|toy|cudf" in shown
    assert "toy: joins with Arrow" in re.sub(r"\s+", " ", shown)
    refused = command(package, tmp_path, "--dry-run", "--engine", "spark")
    assert refused.returncode == 2
    assert f"'spark' is not one of auto, {', '.join(engine_names()[:-1])}, toy, cudf" in refused.stderr
    taken = command(package, tmp_path, "--dry-run", "--chunk", "1000", MERGE_BENCH_ENGINE="toy")
    assert taken.returncode == 0, taken.stderr


@pytest.mark.cluster
def test_one_file_more_is_all_that_a_run_needs(package: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(package), str(ROOT)])
    asked = ("--engine", "toy", "--workers", "1", "--chunk", "2000", "--iterations", "2", "--pipeline", "on")
    finished = run(tmp_path, *asked, environ={"PYTHONPATH": path}).check_ended(0)
    assert finished.document["verified"]
    assert finished.document["plan"]["engine"] == "toy"

"""What others read about the project by machine: the package's metadata, and how to cite it."""

from __future__ import annotations

import re
import tomllib

import yaml

from merge_bench.config.installation import __version__
from tests.project.scripts import ROOT, STACKS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())


def classified(kind: str) -> set[str]:
    """What follows `kind` in the classifiers."""
    return {each.removeprefix(f"{kind} :: ") for each in PROJECT["classifiers"] if each.startswith(f"{kind} :: ")}


def test_the_pythons_are_those_that_the_front_door_takes() -> None:
    found = re.search(r"\(3, (\d+)\) <= sys\.version_info < \(3, (\d+)\)", (ROOT / "cluster/bootstrap.sh").read_text())
    assert found
    first, end = map(int, found.groups())
    assert classified("Programming Language :: Python") == {"3 :: Only", *(f"3.{minor}" for minor in range(first, end))}
    assert PROJECT["requires-python"] == f">=3.{first}"


def test_the_versions_of_cuda_are_those_of_the_stacks() -> None:
    versions = classified("Environment :: GPU :: NVIDIA CUDA")
    assert versions == {stack.removeprefix("cu") for stack in STACKS if stack.startswith("cu")}


def test_nothing_says_a_licence_or_an_address_that_the_owner_has_not_chosen() -> None:
    assert not {"license", "license-files", "urls"} & PROJECT.keys()
    assert not classified("License")
    assert (
        not {"license", "license-url", "doi", "identifiers", "url", "repository", "repository-code"} & CITATION.keys()
    )


def test_the_changelog_has_this_version_below_what_is_unreleased() -> None:
    releases = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert [name for name, _ in releases[:2]] == ["Unreleased", __version__]
    assert [bool(date) for _, date in releases] == [False, *(True for _ in releases[1:])]


def test_the_citation_is_of_this_version_and_agrees_with_the_package() -> None:
    assert (CITATION["cff-version"], CITATION["type"], CITATION["title"]) == ("1.2.0", "software", "merge_bench")
    assert CITATION["message"]
    assert CITATION["version"] == __version__
    assert CITATION["authors"] == PROJECT["authors"]
    assert (CITATION["abstract"], CITATION["keywords"]) == (PROJECT["description"], PROJECT["keywords"])

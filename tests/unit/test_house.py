"""What the repository promises to whoever clones it."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text()
    return {canonicalize_name(package): version for package, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.M)}


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_hashed_and_name_no_host_and_no_path(name: str) -> None:
    text = (ROOT / name).read_text()
    blocks = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    assert len(blocks) == len(pins(name)) > 50
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.findall(r"https?:|file://|--index|--find-links|--trusted|^-|@ ", text, re.M)


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    runtime = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    for name, wanted in (
        ("requirements.txt", runtime),
        ("requirements-dev.txt", [*runtime, *(one for extra in extras.values() for one in extra)]),
    ):
        pinned = pins(name)
        for requirement in map(Requirement, wanted):
            assert pinned.get(canonicalize_name(requirement.name)) in requirement.specifier, (name, requirement)


def test_both_requirements_files_pin_the_same_versions() -> None:
    assert pins("requirements.txt").items() <= pins("requirements-dev.txt").items()


def test_make_has_every_target_that_is_promised_and_help_names_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("help", "setup", "run", "demo", "test", "check", "bench", "faults", "verify"):
        assert re.search(rf"^{target}:.*## ", makefile, re.M), target
    assert "make check test" in (ROOT / ".ci/run").read_text()


def test_every_file_has_one_subject_and_stays_readable() -> None:
    """Files are split by noun before 400 lines; nothing is called after what it is not."""
    for folder in ("services", "shared", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text().splitlines()) < 400, path
            assert path.stem not in {"utils", "common", "helpers", "manager"}, path

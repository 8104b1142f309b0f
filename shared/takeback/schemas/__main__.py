"""`python -m takeback.schemas --check`: the files are what the code says, and an older reader can follow; else exit 1.

`--write` makes them so, and refuses what an older reader cannot follow unless the schema's version was raised.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from takeback.schemas.compatible import breaking
from takeback.schemas.documents import documents, schemas

_REPOSITORY = Path(__file__).parents[3]


def main(arguments: list[str] | None = None) -> int:
    """0 when all is well; 1 after naming on standard error each file that is not."""
    parser = argparse.ArgumentParser(prog="python -m takeback.schemas", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="name what differs and what breaks an older reader")
    what.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--folder", type=Path, default=_REPOSITORY / "schemas")
    parser.add_argument("--since", default="HEAD", help="the revision whose schemas an older reader knows")
    chosen = parser.parse_args(arguments)
    wanted = documents()
    wrong = broken(older(chosen.folder, chosen.since))
    if chosen.write and not wrong:
        write(chosen.folder, wanted)
    wrong += drift(chosen.folder, wanted)
    for line in wrong:
        print(line, file=sys.stderr)  # noqa: T201
    if wrong:
        print(_advice(chosen.write), file=sys.stderr)  # noqa: T201
    return 1 if wrong else 0


def drift(folder: Path, wanted: Mapping[str, bytes]) -> list[str]:
    """What is missing in *folder*, differs there, or has no business there."""
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    told = [f"{name}: no message has this schema" for name in sorted(there - wanted.keys())]
    for name, content in sorted(wanted.items()):
        if name not in there:
            told.append(f"{name}: is missing")
        elif (folder / name).read_bytes() != content:
            told.append(f"{name}: is not what the code says")
    return told


def broken(known: dict[str, dict[str, Any]]) -> list[str]:
    """What somebody who has the schemas *known*, by file, cannot follow any more."""
    today = {f"{schema.name}.json": schema for schema in schemas()}
    told = [f"{name}: was removed" for name in sorted(known.keys() - today.keys())]
    for name, old in sorted(known.items()):
        schema = today.get(name)
        if schema is None or schema.document["version"] > old["version"]:
            continue
        for direction in sorted(schema.directions):
            told += [f"{name}: {place}" for place in breaking(old, schema.document, direction)]
    return told


def older(folder: Path, revision: str) -> dict[str, dict[str, Any]]:
    """The JSON Schemas of *folder* as of *revision*; as they lie there where it is in no repository."""
    found = {}
    archive = subprocess.run(
        ["git", "-C", str(folder.parent), "archive", "--format=tar", revision, folder.name],  # noqa: S607
        capture_output=True,
        check=False,
    )
    if archive.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            for member in files:
                if member.name.endswith(".json") and (content := files.extractfile(member)):
                    found[str(Path(member.name).relative_to(folder.name))] = json.load(content)
        return found
    return {str(path.relative_to(folder)): json.loads(path.read_bytes()) for path in folder.rglob("*.json")}


def write(folder: Path, wanted: Mapping[str, bytes]) -> None:
    """Makes *folder* hold what is *wanted* and nothing else."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if str(path.relative_to(folder)) not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _advice(writing: bool) -> str:
    if writing:
        return (
            "An older reader could not follow; nothing was written. Make the change one that it can follow, or raise the "
            "schema's version in takeback/schemas/versions.py with a decision record."
        )
    return "Run: python -m takeback.schemas --write"


if __name__ == "__main__":
    sys.exit(main())

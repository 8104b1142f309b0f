"""The schemas are what the code says, and an older reader is never left behind (issue 2, item 10)."""

import copy
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from takeback.messages.doors import DOORS
from takeback.messages.events import EVENT_DATA
from takeback.schemas.__main__ import broken, drift, main, older
from takeback.schemas.compatible import breaking
from takeback.schemas.documents import documents, schemas

ENTRY = "events/entry.committed.json"
CALL = "http/CallRequest.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Schemas as they were written for this version of the code, in no repository."""
    assert main(["--write", "--folder", str(tmp_path / "schemas")]) == 0
    return tmp_path / "schemas"


def test_the_same_messages_give_the_same_bytes_in_every_process() -> None:
    script = "import sys, takeback.schemas.documents as d; sys.stdout.buffer.write(b''.join(d.documents().values()))"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert other.stdout == b"".join(documents().values())


def test_what_was_written_is_no_drift(folder: Path) -> None:
    assert main(["--check", "--folder", str(folder)]) == 0


@pytest.mark.parametrize("name", [ENTRY, CALL, "asyncapi.yaml", "openapi.yaml"])
def test_a_file_that_differs_or_is_missing_is_named(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    assert main(["--check", "--folder", str(folder)]) == 1
    assert f"{name}: is not what the code says" in capsys.readouterr().err
    (folder / name).unlink()
    assert drift(folder, documents()) == [f"{name}: is missing"]


def test_a_file_that_no_message_has_is_named_and_removed_by_writing(folder: Path) -> None:
    (folder / "events" / "left.over.yaml").write_text("")
    assert drift(folder, documents()) == ["events/left.over.yaml: no message has this schema"]
    assert main(["--write", "--folder", str(folder)]) == 0
    assert not (folder / "events" / "left.over.yaml").exists()


def _older(folder: Path, name: str, change: Any) -> None:
    document = json.loads((folder / name).read_bytes())
    change(document)
    (folder / name).write_text(json.dumps(document))


def test_a_member_that_an_older_reader_knows_may_not_go(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither checking nor writing lets it pass; nothing is written."""
    _older(folder, ENTRY, lambda old: old["$defs"]["Entry"]["properties"].update(mood={"type": "string"}))
    before = (folder / ENTRY).read_bytes()
    assert main(["--check", "--folder", str(folder)]) == 1
    assert f"{ENTRY}: /data/entry/mood: was removed" in capsys.readouterr().err
    assert main(["--write", "--folder", str(folder)]) == 1
    assert (folder / ENTRY).read_bytes() == before


def test_a_member_that_was_optional_may_not_become_required(folder: Path) -> None:
    _older(folder, CALL, lambda old: old["required"].remove("server"))
    assert broken(older(folder, "HEAD")) == [f"{CALL}: /server: became required"]


def test_a_value_that_an_older_client_sends_may_not_be_refused(folder: Path) -> None:
    _older(folder, "http/MemberRequest.json", lambda old: old["properties"]["role"]["enum"].append("observer"))
    assert broken(older(folder, "HEAD")) == [
        "http/MemberRequest.json: /role: values that were allowed are gone: observer"
    ]


def test_a_value_that_an_older_reader_does_not_know_may_not_come(folder: Path) -> None:
    _older(folder, ENTRY, lambda old: old["$defs"]["Entry"]["properties"]["tier"]["enum"].remove("critical"))
    assert broken(older(folder, "HEAD")) == [f"{ENTRY}: /data/entry/tier: values that were not foreseen: critical"]


def test_a_whole_message_may_not_go(folder: Path) -> None:
    (folder / "events/entry.lost.json").write_text((folder / ENTRY).read_text())
    assert broken(older(folder, "HEAD")) == ["events/entry.lost.json: was removed"]


def test_a_raised_version_lets_a_change_pass(folder: Path) -> None:
    _older(folder, ENTRY, lambda old: old.update(version=0) or old["required"].clear())
    assert broken(older(folder, "HEAD")) == []


def test_a_new_optional_member_breaks_nobody(folder: Path) -> None:
    _older(folder, ENTRY, lambda old: old["$defs"]["Entry"]["properties"].pop("approval"))
    _older(folder, CALL, lambda old: old["properties"].pop("preview"))
    assert broken(older(folder, "HEAD")) == []


def test_the_committed_schemas_are_what_an_older_reader_knows(tmp_path: Path) -> None:
    """The reader of yesterday is the revision, and not the files that lie there."""
    folder = tmp_path / "schemas"
    main(["--write", "--folder", str(folder)])
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    committed = older(folder, "HEAD")
    (folder / ENTRY).write_text("{}")
    assert older(folder, "HEAD") == committed
    assert committed == {f"{schema.name}.json": schema.document for schema in schemas()}


@pytest.mark.parametrize("schema", schemas(), ids=lambda schema: schema.name)
def test_each_schema_is_a_valid_one_and_follows_itself(schema) -> None:
    jsonschema_rs.meta.validate(schema.document)
    for direction in ("in", "out"):
        assert breaking(schema.document, copy.deepcopy(schema.document), direction) == []


_leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 1},
        {"enum": ["a", "b"]},
        {"enum": ["a"]},
        {"type": "string", "maxLength": 2},
    ]
)
_values = st.one_of(st.none(), st.integers(-2, 3), st.sampled_from(["a", "b", "abc"]))


@st.composite
def _objects(draw: st.DrawFn) -> dict[str, Any]:
    members = draw(
        st.dictionaries(
            st.sampled_from(["x", "y", "z"]),
            st.one_of(_leaves, st.builds(lambda leaf: {"anyOf": [leaf, {"type": "null"}]}, _leaves)),
        )
    )
    required = [name for name in sorted(members) if draw(st.booleans())]
    return {"type": "object", "properties": members, "required": required}


@given(_objects(), _objects(), st.dictionaries(st.sampled_from(["x", "y", "z"]), _values))
def test_what_is_called_compatible_is_readable_by_an_older_reader(old, new, value) -> None:
    """Soundness: whatever may be written under the new schema is valid under the old one, member by member."""
    if not breaking(old, new, "out") and jsonschema_rs.is_valid(new, value):
        known = {name: inner for name, inner in value.items() if name in new["properties"]}
        assert jsonschema_rs.is_valid(old, known)


@given(_objects(), _objects(), st.dictionaries(st.sampled_from(["x", "y", "z"]), _values))
def test_what_is_called_compatible_takes_what_an_older_client_sends(old, new, value) -> None:
    """Soundness the other way round, for requests, which name all their members."""
    sealed = old | {"additionalProperties": False}, new | {"additionalProperties": False}
    if not breaking(*sealed, "in") and jsonschema_rs.is_valid(sealed[0], value):
        assert jsonschema_rs.is_valid(sealed[1], value)


def test_the_bus_document_names_every_event_and_every_reference_leads_somewhere(folder: Path) -> None:
    document = yaml.safe_load((folder / "asyncapi.yaml").read_text())
    assert document["channels"].keys() == EVENT_DATA.keys()
    _references_resolve(document, folder)
    for name, channel in document["channels"].items():
        assert channel["address"] == f"takeback.{{campaign}}.{name}"


def test_the_doors_document_names_every_door_and_every_reference_leads_somewhere(folder: Path) -> None:
    document = yaml.safe_load((folder / "openapi.yaml").read_text())
    named = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert named == {(door.method, door.path) for door in DOORS}
    operations = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(operations)) == len(operations)
    _references_resolve(document, folder)
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def _references_resolve(document: Any, folder: Path) -> None:
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            reference = item.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                found = document
                for part in reference[2:].split("/"):
                    found = found[part]
            elif isinstance(reference, str):
                assert (folder / reference).exists(), reference
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def test_no_two_doors_are_the_same() -> None:
    for one, other in itertools.combinations(DOORS, 2):
        assert (one.method, one.path) != (other.method, other.path)

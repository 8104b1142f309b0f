"""What is wrong with a manifest is said with its line and the reason (J15)."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recorder.manifest import BadManifest, against, read_manifest
from tests.servers_lab import pantry, wiki

GOOD = """\
takeback: 1
records:
  note:
    uri: "n://note/{path}"
    read: {call: read_note, arguments: {path: "${keys.path}"}, value: result.text}
    fields: {text: "${value}"}
operations:
  read_note: {reads: true}
  write_note:
    changes: {record: note, keys: {path: "${arguments.path}"}}
    undo:
      - when: before.exists
        steps: {call: write_note, arguments: {path: "${keys.path}", text: "${wanted.text}"}}
      - {level: none, why: "this server deletes nothing"}
"""


def findings(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(BadManifest) as bad:
        read_manifest(text)
    return [(finding.line, finding.where, finding.reason) for finding in bad.value.findings]


@pytest.mark.parametrize("text", [GOOD, pantry.MANIFEST, wiki.MANIFEST])
def test_a_manifest_in_order_is_the_same_from_yaml_and_json_and_has_one_hash(text: str) -> None:
    document = yaml.safe_load(text)
    assert read_manifest(text).hash == read_manifest(document).hash == read_manifest(json.dumps(document)).hash


@pytest.mark.parametrize(
    ("was", "is_", "line", "reason"),
    [
        ("${keys.path}\"}, value", "${key.path}\"}, value", 5, "there is no key here; there are keys"),
        ("value: result.text", "value: result.", 5, "yntax error"),
        ("{text: \"${value}\"}", "{text: \"${valu}\"}", 6, "there is no valu"),
        ("record: note, keys", "record: nota, keys", 10, "there is no record nota; there are note"),
        ("keys: {path: \"${arg", "keys: {pfad: \"${arg", 10, "the keys of note are path"),
        ("${arguments.path}", "${result.text}", 10, "new: true"),
        ("when: before.exists", "when: befor.exists", 12, "there is no befor"),
        ("      - when: before.exists\n        steps", "      - steps", 12, "only the last way back has no `when`"),
        ("call: write_note, arg", "calls: write_note, arg", 13, "there is no such setting"),
        (", why: \"this server deletes nothing\"", "", 14, "says why"),
        ("level: none", "level: partial", 14, "has steps"),
        ("takeback: 1", "takeback: 2", 1, "Input should be 1"),
        ("read_note: {reads: true}", "read_note: {undo: {level: none, why: x}}", 5, "is no read"),
        ("  read_note: {reads: true}\n", "  write_note: {reads: true}\n", 9, "twice"),
        ("n://note/{path}", "note", 4, "no scheme"),
        ("reads: true", "reads: true, tier: [", 8, "no YAML"),
        ("${keys.path}\"}, value", "${keys.pathh}\"}, value", 5, "there is no pathh in keys; there are path"),
        ("path: \"${keys.path}\", text", "path: \"${keys.id}\", text", 13, "there is no id in keys; there are path"),
        ("${wanted.text}", "${wanted.txet}", 13, "there is no txet in wanted; there are text"),
        ("${wanted.text}", "${before.fields.txet.trim()}", 13, "there is no txet in before.fields; there are text"),
        ("${wanted.text}", "${records.note.now.fields.txet}", 13, "there is no txet in records.note.now.fields"),
        ("${wanted.text}", "${records.nota.before.version}", 13, "there is no nota in records; there are note"),
        ("when: before.exists", "when: before.exist", 12, "there is no exist in before"),
        ("  write_note:\n", "  write_note:\n    window: 7\n", 10, "7 is no ISO 8601 duration"),
        ("  write_note:\n", "  write_note:\n    window: 1:00:00\n", 10, "is no ISO 8601 duration, which begins with P"),
        ("  write_note:\n", "  write_note:\n    window: \"01:00:00\"\n", 10, "'01:00:00' is no ISO 8601 duration"),
    ],
)  # fmt: skip
def test_a_finding_names_its_line_and_the_reason(was: str, is_: str, line: int, reason: str) -> None:
    assert was in GOOD
    found = findings(GOOD.replace(was, is_, 1))
    assert any(at == line and reason in f"{where} {said}" for at, where, said in found), found


@pytest.mark.parametrize(
    "text",
    [
        "${wanted.text + 'keys.nowhere'}",
        "${has(wanted.txet) ? 'a' : wanted.text}",
        "${[wanted].map(keys, keys.nowhere)[0]}",
        "${arguments.anything.at.all}",
        "${keys.path.startsWith('/') ? wanted.text : ''}",
    ],
)
def test_what_may_be_there_is_no_finding(text: str) -> None:
    assert read_manifest(GOOD.replace("${wanted.text}", text)).manifest is not None


def test_computed_fields_may_have_any_name() -> None:
    computed = GOOD.replace('{text: "${value}"}', "\"${{'text': value}}\"").replace("wanted.text", "wanted.whatever")
    assert read_manifest(computed).manifest is not None


def test_a_write_without_a_way_back_and_a_way_back_without_a_record_are_refused() -> None:
    """J8: never an inverse without reading the state."""
    head = "takeback: 1\noperations:\n  x: "
    assert "says its way back" in findings(head + "{tier: low}")[0][2]
    assert "without reading" in findings(head + "{undo: {steps: {call: y}}}")[0][2]


def test_what_does_not_fit_the_server_is_found() -> None:
    checked = read_manifest(GOOD)
    path = {"type": "object", "properties": {"path": {}}, "required": ["path"]}
    both = {"type": "object", "properties": {"path": {}, "text": {}}, "required": ["path", "text"]}
    assert against(GOOD, checked.manifest, {"read_note": path, "write_note": both, "other": {}}) == []
    found = [str(f) for f in against(GOOD, checked.manifest, {"read_note": path, "write_note": path})]
    assert found == ["line 13: operations.write_note.undo.0.steps.0.arguments: write_note takes no text; it takes path"]
    more = {**both, "required": ["path", "text", "mode"]}
    assert "needs mode" in str(against(GOOD, checked.manifest, {"read_note": path, "write_note": more})[0])
    gone = [str(f) for f in against(GOOD, checked.manifest, {"write_note": both})]
    assert [line.split(":")[0] for line in gone] == ["line 8", "line 5"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["takeback", "records", "operations", "read", "undo", "x"]), inner,
                                      max_size=4), max_leaves=10))  # fmt: skip
def test_whatever_comes_is_read_or_refused(document: object) -> None:
    text = yaml.safe_dump(document)
    try:
        read_manifest(text)
    except BadManifest as bad:
        assert bad.findings

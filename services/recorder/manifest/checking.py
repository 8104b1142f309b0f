"""Checking a manifest: the model it is, or what is wrong with it, each finding with line, place and reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from recorder.manifest import expressions, shapes, uris
from recorder.manifest.functions import fingerprint
from recorder.manifest.model import Branch, Case, Change, Manifest, Operation, Read, Reference, UndoStep
from recorder.manifest.shapes import Known, unknown
from recorder.manifest.source import BadManifest, Finding, Place, loaded

_BOUND: Final = re.compile(r"\.(?:map|filter|all|exists|exists_one)\(\s*([A-Za-z_]\w*)\s*,")


@dataclass(frozen=True, slots=True)
class Checked:
    """A manifest as it was read: the model, the document that is kept, and its hash."""

    manifest: Manifest
    document: dict[str, Any]
    hash: str


def read(source: str | Mapping[str, Any]) -> Checked:
    """The manifest in *source*, YAML text or a JSON object. Raises `BadManifest`."""
    document, lines = loaded(source)
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise BadManifest(
            [lines.finding(_place(item["loc"]), _said(item)) for item in error.errors(include_url=False)]
        ) from error
    findings = [lines.finding(place, reason) for place, reason in _crosswise(manifest)]
    if findings:
        raise BadManifest(sorted(findings, key=lambda finding: finding.line or 0))
    return Checked(manifest, document, fingerprint(document).removeprefix("sha256:"))


def against(
    source: str | Mapping[str, Any], manifest: Manifest, tools: Mapping[str, Mapping[str, Any]], *, http: bool = False
) -> list[Finding]:
    """What in *manifest*, read from *source*, does not fit the server whose *tools* (input schema by name) are these.

    *http*: a plain HTTP server, whose operations are the manifest's own.
    """
    _, lines = loaded(source)
    return [lines.finding(place, reason) for place, reason in _fitting(manifest, tools, http)]


def _place(loc: tuple[str | int, ...]) -> Place:
    return tuple(part for part in loc if part != "[key]")


def _said(item: Mapping[str, Any]) -> str:
    match item["type"]:
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such setting"
    return str(item["msg"]).removeprefix("Value error, ")


# --- what parts say of each other ---------------------------------------------------------------------------------------


def _crosswise(manifest: Manifest) -> Iterator[tuple[Place, str]]:
    for name, record in manifest.records.items():
        place: Place = ("records", name)
        keys = uris.keys_of(record.uri)
        known: Known = {"keys": shapes.of_keys(record)}
        for index, step in enumerate(record.read):
            at = (*place, "read", index)
            yield from _reading(manifest, at, step, known)
            known = {**known, step.id or "value": None}
        for attribute in ("exists", "version"):
            source = getattr(record, attribute)
            if source is not None:
                yield from _names((*place, attribute), [source], known)
        yield from _names((*place, "fields"), expressions.expressions_in(record.fields), known)
        for index, state in enumerate(record.unrestorable):
            sources = [state.when, *expressions.expressions_in(state.why)]
            yield from _names((*place, "unrestorable", index), sources, known)
        if not keys:
            yield (*place, "uri"), "it has no {key}: all records would be one"
        if {step.id for step in record.read} & {"keys", "result"}:
            yield (*place, "read"), "keys and result are taken; choose another id"
    for name, operation in manifest.operations.items():
        yield from _operation(manifest, ("operations", name), operation)
    for index, case in enumerate(manifest.conformance):
        yield from _case(manifest, ("conformance", index), case)


def _case(manifest: Manifest, place: Place, case: Case) -> Iterator[tuple[Place, str]]:
    if case.call not in manifest.operations:
        yield (*place, "call"), f"there is no operation {case.call}; there are {_listed(manifest.operations)}"
    doings = [*case.prepare, *case.meanwhile, *case.cleanup]
    sources = expressions.expressions_in([case.arguments, *(doing.arguments for doing in doings)])
    yield from _names(place, sources, unknown("scratch"))


def _operation(manifest: Manifest, place: Place, operation: Operation) -> Iterator[tuple[Place, str]]:
    records: Known = {"records": shapes.of_records(manifest, operation.changes)}
    done = {**unknown("arguments", "reads", "result"), **records}
    yield from _names((*place, "reads"), [operation.reads], unknown("arguments"))
    if operation.request is not None:
        request = operation.request
        sources = [
            *expressions.expressions_in(request.path.replace("${+", "${")),
            *expressions.expressions_in([request.query, request.headers, request.json_, request.text, request.base64]),
        ]
        yield from _names((*place, "request"), sources, unknown("arguments"))
        if operation.input is None:
            yield (*place, "input"), "it is missing: an operation of a plain HTTP server describes its arguments"
    for index, step in enumerate(operation.before):
        yield from _reading(manifest, (*place, "before", index), step, unknown("arguments", "reads"), checkpoints=True)
        if step.id is None:
            yield (*place, "before", index), "it has no id, so nothing could name what it found"
    for index, step in enumerate(operation.after):
        yield from _reading(manifest, (*place, "after", index), step, unknown("arguments", "reads", "result"))
        if step.id is None:
            yield (*place, "after", index), "it has no id, so nothing could name what it found"
    yield from _names((*place, "fails"), [operation.fails], done)
    yield from _names((*place, "nothing"), [operation.nothing], done)
    for index, use in enumerate(operation.uses):
        yield from _reference(manifest, (*place, "uses", index), use, unknown("arguments", "result"))
    names: list[str] = []
    for index, change in enumerate(operation.changes):
        at = (*place, "changes", index)
        yield from _reference(manifest, at, change, done)
        if change.name in names:
            yield at, f"two changes are called {change.name}; give one another name with `as`"
        names.append(change.name)
        if change.new and not _mentions(change, "result") and not (operation.after and _mentions(change, "reads")):
            yield (*at, "new"), "its key does not come from the result, so the record can be read before the call"
        own = shapes.of_change(manifest, change)
        foretelling = {
            **unknown("arguments", "reads"),
            **records,
            **{name: own[name] for name in ("before", "keys", "item")},
        }
        yield from _names((*at, "leaves"), expressions.expressions_in(change.leaves), foretelling)
        if change.foretells and change.new:
            yield (*at, "leaves"), "a record whose key comes from the result is not known before it"
        if not change.new and _mentions(change, "result"):
            yield (
                at,
                "its key comes from the result: say `new: true`, or take the key from the arguments or the pre-state",
            )
        yield from _branches(manifest, (*at, "undo"), change.undo or [], [change], operation.changes)
    yield from _branches(manifest, (*place, "undo"), operation.undo or [], operation.changes, operation.changes)


def _branches(
    manifest: Manifest, place: Place, branches: list[Branch], changes: list[Change], every: list[Change]
) -> Iterator[tuple[Place, str]]:
    late = unknown("now", "wanted", "fields", "steps")
    own = shapes.of_change(manifest, changes[0]) if changes else {}
    known = {**unknown("arguments", "reads", "result"), "records": shapes.of_records(manifest, every)}
    known |= {name: shape for name, shape in own.items() if name not in late}
    for index, branch in enumerate(branches):
        at = (*place, index)
        said = [*branch.losses, branch.why or "", *branch.side_effects]
        yield from _names(at, [branch.when, *expressions.expressions_in(said)], known)
        if index < len(branches) - 1 and branch.when == "true":
            yield at, "what stands behind it is never reached: only the last way back has no `when`"
        here = {**late, **known, **own}
        for number, step in enumerate(branch.steps):
            yield from _undo_step(manifest, (*at, "steps", number), step, here)
        for name, becomes in branch.becomes.items():
            change = next((change for change in changes if change.name == name), None)
            if change is None:
                yield (*at, "becomes", name), f"there is no such change; there are {_listed(c.name for c in changes)}"
            elif change.record in manifest.records:
                keys = uris.keys_of(manifest.records[change.record].uri)
                if set(becomes) != set(keys):
                    yield (*at, "becomes", name), f"the keys of {change.record} are {_listed(keys)}"
            its_own = {} if change is None else shapes.of_change(manifest, change)
            yield from _names((*at, "becomes", name), expressions.expressions_in(becomes), {**here, **its_own})


def _undo_step(manifest: Manifest, place: Place, step: UndoStep, known: Known) -> Iterator[tuple[Place, str]]:
    inner = {**known, **(unknown("item") if step.each is not None else {})}
    yield from _names((*place, "when"), [step.when], inner)
    if step.each is not None:
        yield from _names((*place, "each"), [step.each], known)
    yield from _names((*place, "arguments"), expressions.expressions_in(step.arguments), inner)
    for attribute in ("fails", "conflict", "value"):
        source = getattr(step, attribute)
        if source is not None:
            yield from _names((*place, attribute), [source], {**inner, "result": None})
    called = manifest.operations.get(step.call)
    if step.server is None and step.reads and called is not None and not called.only_reads:
        yield (*place, "call"), f"{step.call} is no read"
    if step.pages is not None:
        if not step.reads:
            yield (*place, "pages"), "only a read answers in pages"
        yield from _paging(place, step.pages, inner)


def _reading(
    manifest: Manifest, place: Place, step: Read, known: Known, *, checkpoints: bool = False
) -> Iterator[tuple[Place, str]]:
    yield from _names((*place, "when"), [step.when], known)
    yield from _names((*place, "arguments"), expressions.expressions_in(step.arguments), known)
    for attribute in ("absent", "fails", "value"):
        source = getattr(step, attribute)
        if source is not None:
            yield from _names((*place, attribute), [source], {**known, "result": None})
    called = manifest.operations.get(step.call)
    if not checkpoints and step.server is None and called is not None and not called.only_reads:
        yield (*place, "call"), f"{step.call} is no read (`reads: true`): looking at a record must not change it"
    if step.pages is not None:
        yield from _paging(place, step.pages, known)


def _paging(place: Place, pages: Any, known: Known) -> Iterator[tuple[Place, str]]:
    here = {**known, "result": None}
    yield from _names((*place, "pages", "items"), [pages.items], here)
    yield from _names((*place, "pages", "more"), [pages.more], here)
    yield from _names((*place, "pages", "next"), expressions.expressions_in(pages.next), here)


def _reference(
    manifest: Manifest, place: Place, reference: Reference | Change, known: Known
) -> Iterator[tuple[Place, str]]:
    record = manifest.records.get(reference.record)
    if record is None:
        yield (*place, "record"), f"there is no record {reference.record}; there are {_listed(manifest.records)}"
    elif set(reference.keys) != set(uris.keys_of(record.uri)):
        yield (*place, "keys"), f"the keys of {reference.record} are {_listed(uris.keys_of(record.uri))}"
    if reference.each is not None:
        yield from _names((*place, "each"), [reference.each], known)
    inner = {**known, **(unknown("item") if reference.each is not None else {})}
    yield from _names((*place, "keys"), expressions.expressions_in(reference.keys), inner)


def _names(place: Place, sources: Iterable[str], known: Known) -> Iterator[tuple[Place, str]]:
    for source in sources:
        bound = set(_BOUND.findall(source))
        missing = sorted(expressions.names_in(source) - set(known) - bound)
        if missing:
            yield place, f"{source}: there is no {', '.join(missing)} here; there are {_listed(known)}"
        for reason in dict.fromkeys(shapes.misnamed(source, known, bound)):
            yield place, f"{source}: {reason}"


def _mentions(change: Change, name: str) -> bool:
    sources = [*expressions.expressions_in(change.keys), *([change.each] if change.each is not None else [])]
    return any(name in expressions.names_in(source) for source in sources)


# --- what it says of the server ---------------------------------------------------------------------------------------


def _fitting(manifest: Manifest, tools: Mapping[str, Mapping[str, Any]], http: bool) -> Iterator[tuple[Place, str]]:
    for name, operation in manifest.operations.items():
        place: Place = ("operations", name)
        if http and operation.request is None:
            yield place, "it has no `request`: of a plain HTTP server everything is said here"
        if not http and operation.request is not None:
            yield (*place, "request"), "only operations of a plain HTTP server have one"
        if name not in tools:
            yield place, f"the server has no operation of this name; it has {_listed(tools)}"
    for place, step in _steps(manifest):
        if step.server is not None:
            continue
        schema = tools.get(step.call)
        if schema is None:
            yield (*place, "call"), f"the server has no {step.call}; it has {_listed(tools)}"
            continue
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and schema.get("additionalProperties") is not True:
            given = set(step.arguments) | set(step.pages.next if step.pages is not None else ())
            others = sorted(given - set(properties))
            if others:
                yield (
                    (*place, "arguments"),
                    f"{step.call} takes no {', '.join(others)}; it takes {_listed(properties)}",
                )
        missing = sorted(set(schema.get("required") or ()) - set(step.arguments))
        if missing:
            yield (*place, "arguments"), f"{step.call} needs {', '.join(missing)}"


def steps_of(manifest: Manifest, operation: str) -> set[str]:
    """The tools of the server itself that reading and taking back *operation* use: what its pin depends on."""
    found = manifest.operations[operation]
    records = {change.record for change in found.changes} & set(manifest.records)
    wanted = [
        step
        for place, step in _steps(manifest)
        if place[:2] == ("operations", operation) or (place[0] == "records" and place[1] in records)
    ]
    return {step.call for step in wanted if step.server is None} - {operation}


def _steps(manifest: Manifest) -> Iterator[tuple[Place, Read | UndoStep]]:
    for name, record in manifest.records.items():
        for index, read_step in enumerate(record.read):
            yield ("records", name, "read", index), read_step
    for name, operation in manifest.operations.items():
        place: Place = ("operations", name)
        for index, read_step in enumerate(operation.before):
            yield (*place, "before", index), read_step
        for index, read_step in enumerate(operation.after):
            yield (*place, "after", index), read_step
        ways = [((*place, "undo"), operation.undo or [])]
        ways += [((*place, "changes", n, "undo"), change.undo or []) for n, change in enumerate(operation.changes)]
        for at, branches in ways:
            for index, branch in enumerate(branches):
                for number, step in enumerate(branch.steps):
                    yield (*at, index, "steps", number), step


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:12]) + (", …" if len(found) > 12 else "") if found else "none"

"""An ordinary MCP server that has never heard of undo, and lies as ordinary servers do: errors in prose, creates that skip
what exists, deletes of nothing that succeed, other ids for what is made again, deletes that cascade."""

from __future__ import annotations

import asyncio
import itertools
import json
import posixpath
from dataclasses import dataclass, field
from typing import Any

from mcp.server import MCPServer


@dataclass
class Pantry:
    """What the server keeps, and how often each tool changed something."""

    notes: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    stock: dict[str, int] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    after_write: Any = None
    lies: bool = False
    lose: str | None = None
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def wrote(self, what: str) -> None:
        self.writes.append(what)
        if self.after_write is not None:
            self.after_write(what)


def pantry_server(pantry: Pantry) -> MCPServer:
    """The server over *pantry*. No tool declares anything, and none says what it did in a structured way."""
    server = MCPServer("pantry")

    @server.tool(structured_output=False)
    def read_note(path: str) -> str:
        """Read a note."""
        return pantry.notes.get(path, f"Error: ENOENT: no such note '{path}'")

    @server.tool(structured_output=False)
    async def write_note(path: str, text: str, dryRun: bool = False) -> str:  # noqa: N803
        """Write a note; with dryRun only say what would be."""
        if text == "full":
            return "Error: ENOSPC: no space left"
        if dryRun:
            return f"would write {len(text)} characters to {path}"
        if pantry.lose == "not done":
            await pantry.go_on.wait()
        if not pantry.lies:
            pantry.notes[posixpath.normpath(path)] = text
        pantry.wrote("write_note")
        if pantry.lose == "done":
            await pantry.go_on.wait()
        return f"Successfully wrote to {path}"

    @server.tool(structured_output=False)
    async def move_note(source: str, destination: str) -> str:
        """Move a note."""
        if pantry.lose == "not moved":
            await pantry.go_on.wait()
        if source not in pantry.notes or destination in pantry.notes:
            return "Error: cannot move"
        pantry.notes[destination] = pantry.notes.pop(source)
        pantry.wrote("move_note")
        return f"Successfully moved {source} to {destination}"

    @server.tool(structured_output=False)
    def list_tasks(cursor: str = "") -> str:
        """Two tasks a page."""
        tasks = list(pantry.tasks.values())
        start = int(cursor or 0)
        more = {"next": str(start + 2)} if start + 2 < len(tasks) else {}
        return json.dumps({"tasks": tasks[start : start + 2], **more})

    @server.tool(structured_output=False)
    def add_tasks(titles: list[str]) -> str:
        """Add tasks; what exists is skipped without a word."""
        known = {task["title"] for task in pantry.tasks.values()}
        for title in titles:
            if title not in known:
                number = f"t{next(pantry.numbers)}"
                pantry.tasks[number] = {"id": number, "title": title, "done": False}
        pantry.wrote("add_tasks")
        return "ok"

    @server.tool(structured_output=False)
    def add_task(title: str) -> str:
        """Add a task, and say its id in prose."""
        number = f"t{next(pantry.numbers)}"
        pantry.tasks[number] = {"id": number, "title": title, "done": False}
        pantry.wrote("add_task")
        return f"Task #{number} was added."

    @server.tool(structured_output=False)
    def finish_task(id: str) -> str:  # noqa: A002
        """Mark a task as done."""
        if id in pantry.tasks:
            pantry.tasks[id]["done"] = True
        pantry.wrote("finish_task")
        return "ok"

    @server.tool(structured_output=False)
    def update_task(id: str, title: str | None = None, done: bool | None = None) -> str:  # noqa: A002
        """Change a task."""
        if title is not None:
            pantry.tasks[id]["title"] = title
        if done is not None:
            pantry.tasks[id]["done"] = done
        pantry.wrote("update_task")
        return "ok"

    @server.tool(structured_output=False)
    def remove_task(id: str) -> str:  # noqa: A002
        """Remove a task and its links; of an unknown one too."""
        pantry.tasks.pop(id, None)
        pantry.links = [link for link in pantry.links if id not in link]
        pantry.wrote("remove_task")
        return "deleted"

    @server.tool(structured_output=False)
    def links() -> str:
        """All links between tasks."""
        return json.dumps(pantry.links)

    @server.tool(structured_output=False)
    def link(a: str, b: str) -> str:
        """Link two tasks."""
        pantry.links.append((a, b))
        pantry.wrote("link")
        return "ok"

    @server.tool(structured_output=False)
    def stock_of(item: str) -> str:
        """How many there are."""
        return f"{item}: {pantry.stock[item]} pieces" if item in pantry.stock else "unknown item"

    @server.tool(structured_output=False)
    def take(item: str, count: int) -> str:
        """Take some; a negative count puts some back."""
        if not pantry.lies:
            pantry.stock[item] = pantry.stock.get(item, 0) - count
        pantry.wrote("take")
        return "ok"

    @server.tool(structured_output=False)
    def tell(text: str) -> str:
        """Tell everybody."""
        pantry.sent.append(text)
        pantry.wrote("tell")
        return "told"

    return server


MANIFEST = """
takeback: 1
server: pantry

records:
  note:
    uri: "pantry://note/{+path}"
    read:
      call: read_note
      arguments: {path: "${keys.path}"}
      absent: "result.text.startsWith('Error: ENOENT')"
      fails: result.isError || result.text.startsWith('Error')
      value: result.text
    fields: {text: "${value}"}
    unrestorable:
      - when: value.contains('\\ufffd')
        why: it is no UTF-8 text, and this server writes nothing else
  task:
    uri: "pantry://task/{id}"
    read:
      call: list_tasks
      pages:
        items: json(result.text).tasks
        more: has(json(result.text).next)
        next: {cursor: "${json(result.text).next}"}
    exists: value.exists(task, task.id == keys.id)
    fields: "${without(one(value.filter(task, task.id == keys.id)), ['id'])}"
  titled:
    uri: "pantry://titled/{title}"
    read:
      call: list_tasks
      pages:
        items: json(result.text).tasks
        more: has(json(result.text).next)
        next: {cursor: "${json(result.text).next}"}
    exists: value.exists(task, task.title == keys.title)
    fields: "${one(value.filter(task, task.title == keys.title))}"
  link:
    uri: "pantry://link/{a}/{b}"
    read: {call: links, value: json(result.text)}
    exists: value.exists(pair, pair == [keys.a, keys.b])
    fields: {linked: true}
  stock:
    uri: "pantry://stock/{item}"
    read:
      call: stock_of
      arguments: {item: "${keys.item}"}
      absent: result.text == 'unknown item'
      value: int(capture(result.text, '([-0-9]+) pieces'))
    fields: {count: "${value}"}
    relative: [count]

operations:
  read_note:
    reads: true
    fails: result.text.startsWith('Error')
    uses: {record: note, keys: {path: "${canonical(arguments.path)}"}}
  list_tasks: {reads: true}
  links: {reads: true}
  stock_of: {reads: true}

  write_note:
    tier: medium
    redo: true
    window: P30D
    reads: has(arguments.dryRun) && arguments.dryRun
    fails: result.text.startsWith('Error')
    changes:
      record: note
      keys: {path: "${canonical(arguments.path)}"}
      leaves: {text: "${arguments.text}"}
    undo:
      - when: before.exists
        steps:
          call: write_note
          arguments: {path: "${keys.path}", text: "${wanted.text}"}
          fails: result.text.startsWith('Error')
      - level: partial
        losses: ["a copy of the new note stays in /trash"]
        sideEffects: ["${keys.path} is moved to /trash"]
        steps:
          call: move_note
          arguments: {source: "${keys.path}", destination: "/trash${keys.path}.${sha256(now.fields.text)}"}
          fails: result.text.startsWith('Error')

  move_note:
    window: P30D
    fails: result.text.startsWith('Error')
    changes:
      - {as: source, record: note, keys: {path: "${canonical(arguments.source)}"}}
      - {as: destination, record: note, keys: {path: "${canonical(arguments.destination)}"}}
    undo:
      when: "!records.destination.before.exists"
      steps:
        call: move_note
        arguments: {source: "${records.destination.keys.path}", destination: "${keys.path}"}
        fails: result.text.startsWith('Error')

  add_tasks:
    window: P7D
    changes:
      each: arguments.titles
      record: titled
      keys: {title: "${item}"}
      undo: {steps: {call: remove_task, arguments: {id: "${now.fields.id}"}}}

  add_task:
    window: P7D
    changes: {record: task, new: true, keys: {id: "${capture(result.text, '#(t[0-9]+)')}"}}
    undo: {steps: {call: remove_task, arguments: {id: "${keys.id}"}}}

  finish_task:
    window: P7D
    changes: {record: task, keys: {id: "${arguments.id}"}}
    undo: {steps: {call: update_task, arguments: {id: "${keys.id}", done: "${wanted.done}"}}}

  update_task:
    window: P7D
    changes: {record: task, keys: {id: "${arguments.id}"}}
    undo: {steps: {call: update_task, arguments: {id: "${keys.id}", title: "${wanted.title}", done: "${wanted.done}"}}}

  remove_task:
    tier: high
    window: P7D
    before: {id: links, call: links, value: json(result.text)}
    changes:
      - {record: task, keys: {id: "${arguments.id}"}}
      - each: reads.links.filter(pair, arguments.id in pair)
        record: link
        keys: {a: "${item[0]}", b: "${item[1]}"}
    undo:
      level: partial
      losses: ["it comes back under another number"]
      steps:
        - {id: made, call: add_task, arguments: {title: "${before.fields.title}"}, value: "capture(result.text, '#(t[0-9]+)')"}
        - {call: update_task, arguments: {id: "${steps.made}", done: "${before.fields.done}"}}
        - each: records.link.map(other, other.keys)
          call: link
          arguments: {a: "${item.a == keys.id ? steps.made : item.a}", b: "${item.b == keys.id ? steps.made : item.b}"}
      becomes:
        task: {id: "${steps.made}"}
        link: {a: "${keys.a == arguments.id ? steps.made : keys.a}", b: "${keys.b == arguments.id ? steps.made : keys.b}"}

  link:
    window: P7D
    changes: {record: link, keys: {a: "${arguments.a}", b: "${arguments.b}"}}
    undo: {level: manual, why: "take the link out in the application"}

  take:
    window: P7D
    changes: {record: stock, keys: {item: "${arguments.item}"}}
    undo:
      steps:
        call: take
        arguments: {item: "${keys.item}", count: "${after.fields.count - before.fields.count}"}

  tell:
    tier: high
    undo: {level: none, why: "what was told is told"}
"""

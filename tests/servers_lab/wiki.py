"""A plain HTTP server with ETags. *enforces*: a write whose If-Match fails gets 412; else they are only sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route


@dataclass
class Wiki:
    """What the server keeps, and every request that changed something."""

    enforces: bool = True
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    conditions: list[str | None] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def put(self, name: str, title: str, text: str) -> None:
        """Write a page, as anybody would."""
        self.pages[name] = {"title": title, "text": text, "etag": f'"{next(self.numbers)}"'}


def wiki_app(wiki: Wiki) -> Starlette:
    """The server over *wiki*."""

    def answer(page: dict[str, Any], status: int = 200) -> Response:
        return JSONResponse(
            {"title": page["title"], "text": page["text"]}, status, headers={"ETag": page["etag"], "X-Server": "wiki"}
        )

    async def one(request: Request) -> Response:
        name = request.path_params["name"]
        wiki.authorizations.append(request.headers.get("authorization"))
        page = wiki.pages.get(name)
        if request.method == "GET":
            return answer(page) if page is not None else JSONResponse({"error": "no such page"}, 404)
        body = await request.json() if request.method == "PUT" else None
        if wiki.meanwhile is not None:
            wiki.meanwhile()
            page = wiki.pages.get(name)
        condition = request.headers.get("if-match")
        wiki.conditions.append(condition)
        if wiki.enforces and condition is not None and (page is None or page["etag"] != condition):
            return JSONResponse({"error": "somebody was faster"}, 412)
        wiki.writes.append(f"{request.method} {name}")
        if request.method == "DELETE":
            return Response(status_code=204) if wiki.pages.pop(name, None) else JSONResponse({}, 404)
        assert body is not None
        wiki.put(name, body["title"], body["text"])
        return answer(wiki.pages[name], 200 if page else 201)

    async def elsewhere(request: Request) -> Response:
        return RedirectResponse("http://169.254.169.254/latest")

    return Starlette(
        routes=[
            Route("/v1/pages/{name:path}", one, methods=["GET", "PUT", "DELETE"]),
            Route("/v1/moved", elsewhere),
        ]
    )


MANIFEST = """
takeback: 1
server: wiki
records:
  page:
    uri: "wiki://page/{+name}"
    read:
      call: get_page
      arguments: {name: "${keys.name}"}
      absent: result.status == 404
    fields: {title: "${value.body.title}", text: "${value.body.text}"}
    version: value.headers.etag
operations:
  get_page:
    reads: true
    input: {type: object, properties: {name: {type: string}}, required: [name]}
    request: {method: GET, path: "/pages/${+arguments.name}"}
    uses: {record: page, keys: {name: "${arguments.name}"}}
  put_page:
    tier: medium
    window: P7D
    input:
      type: object
      properties: {name: {type: string}, title: {type: string}, text: {type: string}, ifMatch: {type: string}}
      required: [name, title, text]
    request:
      method: PUT
      path: "/pages/${+arguments.name}"
      headers: {If-Match: "${get(arguments, 'ifMatch', null)}"}
      json: {title: "${arguments.title}", text: "${arguments.text}"}
    changes: {record: page, keys: {name: "${arguments.name}"}}
    undo:
      - when: before.exists
        steps:
          call: put_page
          arguments: {name: "${keys.name}", title: "${wanted.title}", text: "${wanted.text}", ifMatch: "${now.version}"}
          conflict: result.status == 412
      - steps:
          call: delete_page
          arguments: {name: "${keys.name}", ifMatch: "${now.version}"}
          conflict: result.status == 412
  delete_page:
    tier: high
    window: P7D
    input:
      type: object
      properties: {name: {type: string}, ifMatch: {type: string}}
      required: [name]
    request:
      method: DELETE
      path: "/pages/${+arguments.name}"
      headers: {If-Match: "${get(arguments, 'ifMatch', null)}"}
    changes: {record: page, keys: {name: "${arguments.name}"}}
    undo:
      when: before.exists
      steps:
        call: put_page
        arguments: {name: "${keys.name}", title: "${before.fields.title}", text: "${before.fields.text}"}
  wander:
    reads: true
    input: {type: object}
    request: {method: GET, path: /moved}
"""

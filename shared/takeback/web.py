"""What every HTTP door shares: problems as RFC 9457 documents, guarded JSON in, orjson out, health and metrics."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from takeback import json
from takeback.errors import PROBLEM_JSON, Problem, invalid, not_found
from takeback.ids import is_valid_id

log = structlog.get_logger()
Model = TypeVar("Model")


Endpoint = Callable[[Request], Awaitable[Response]]


class App(FastAPI):
    """A FastAPI application that leads Starlette's plain routes of its routers straight to their endpoints.

    What lies between costs a journaled call as much as its policy, its resources and its intake together.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._straight: list[Route] = []

    def include_router(self, router: APIRouter, **options: Any) -> None:
        """Adds the routes of *router*; errors of the plain ones are told by the same handlers."""
        super().include_router(router, **options)
        self._straight += [route for route in router.routes if type(route) is Route]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            for route in self._straight:
                if scope["method"] in (route.methods or ()) and (found := route.path_regex.match(scope["path"])):
                    scope["path_params"] = found.groupdict()
                    await (await self._answered(Request(scope, receive), route.endpoint))(scope, receive, send)
                    return
        await super().__call__(scope, receive, send)

    async def _answered(self, request: Request, endpoint: Endpoint) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            handlers = (self.exception_handlers.get(kind) for kind in type(error).__mro__)
            told: Any = next(handler for handler in handlers if handler is not None)(request, error)
            response: Response = await told if inspect.isawaitable(told) else told
            return response


def create_app(title: str, not_ready: Callable[[], Awaitable[dict[str, str]]]) -> App:
    """A FastAPI application with the shared error handlers, `/healthz`, `/readyz` and `/metrics`."""
    app = App(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_bad_parameters)
    app.add_exception_handler(Exception, _on_defect)

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return answer({"status": "ok"})

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        wrong = await not_ready()
        return answer({"status": "not ready", "wrong": wrong} if wrong else {"status": "ready"}, 503 if wrong else 200)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return app


async def read_json(request: Request) -> Any:
    """The request's body as guarded JSON (`takeback.json.parse`); an empty body reads as an empty object."""
    body = await read_body(request)
    return json.parse(body) if body else {}


async def read_body(request: Request) -> bytes:
    """The request's bytes; raises `Problem` 413 as soon as they pass the limit, before the rest is read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > json.MAX_BODY_BYTES:
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > json.MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


async def read(request: Request, model: type[Model] | TypeAdapter[Model]) -> Model:
    """The request's body as a *model*; raises `Problem` 422 that names each member that is off."""
    return validate(await read_json(request), model)


def validate(value: Any, model: type[Model] | TypeAdapter[Model]) -> Model:
    """*value* as a *model*; raises `Problem` 422 that names each member that is off."""
    try:
        if isinstance(model, TypeAdapter):
            return model.validate_python(value)
        if issubclass(model, BaseModel):
            return model.model_validate(value)
        return TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        wrong = [{"field": ".".join(map(str, item["loc"])), "reason": item["msg"]} for item in error.errors()]
        told = "; ".join(f"{item['field'] or 'body'}: {item['reason']}" for item in wrong[:5])
        raise invalid(f"The body is not as it should be: {told}.", errors=wrong) from error


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """*value* as a JSON response."""
    return Response(json.compact(value), status, headers, "application/json")


def checked_id(value: str) -> str:
    """*value* when it is an id, else the same 404 as for an id that does not exist."""
    if not is_valid_id(value):
        raise not_found()
    return value


def problem_response(problem: Problem) -> Response:
    """*problem* as its HTTP response."""
    return Response(json.dumps(problem.document()), problem.status, problem.headers, PROBLEM_JSON)


def _too_large() -> Problem:
    return Problem(413, "too-large", f"The body is larger than {json.MAX_BODY_BYTES} bytes. Nothing was changed.")


async def _on_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem_response(problem)


async def _on_http_exception(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem_response(not_found())
    return problem_response(Problem(error.status_code, "refused", f"{error.detail}. Nothing was changed."))


async def _on_bad_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:5])
    return problem_response(invalid(f"The request is not as it should be: {told}."))


async def _on_defect(request: Request, error: Exception) -> Response:
    log.error("request failed", path=request.url.path, exc_info=error)
    return problem_response(
        Problem(
            500, "defect", "This is a defect of Takeback. What was changed is in the journal; read the entry again."
        )
    )

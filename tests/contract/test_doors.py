"""The table of doors, from which OpenAPI is generated, is what the three services really serve."""

import importlib
import inspect
import pkgutil
import re
from types import ModuleType
from typing import Any

import pytest
from fastapi import APIRouter

import notifier.api
import notifier.deliveries.doors
import planner.api
import recorder.api
from notifier.streams import Streams
from takeback.messages.doors import DOORS


def _without_parts(make: Any) -> Any:
    """What *make* makes when every part that it is handed is missing: routes need none to be listed."""
    return make(*[None] * len(inspect.signature(make).parameters))


def _routers(service: str) -> list[APIRouter]:
    modules: dict[str, list[ModuleType]] = {
        "recorder": [
            importlib.import_module(f"recorder.api.{module.name}")
            for module in pkgutil.iter_modules(recorder.api.__path__)
        ],
        "planner": [planner.api],
        "notifier": [notifier.api, notifier.deliveries.doors],
    }
    found = [_without_parts(module.router) for module in modules[service] if hasattr(module, "router")]
    return [*found, _without_parts(Streams).router()] if service == "notifier" else found


@pytest.mark.parametrize("service", ["recorder", "planner", "notifier"])
def test_a_service_serves_the_doors_of_the_table_and_no_others(service: str) -> None:
    served = {
        (method, re.sub(r":path}", "}", route.path))
        for router in _routers(service)
        for route in router.routes
        for method in getattr(route, "methods", {"GET"})
    }
    assert served == {(door.method, door.path) for door in DOORS if door.service == service}

"""The OpenAPI document names every route and record, and is a valid one."""

import json
import re

import jsonschema_rs
import pytest

from palyra.gateway.http.route import HttpRouteTable, Unread
from palyra.gateway.routes.table import ROUTES, document
from tests.gateway.scene import Scene


def test_every_route_is_in_the_document() -> None:
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}  # type: ignore[attr-defined]
    assert described == {(route.method, route.path) for route in ROUTES}


def test_every_reference_leads_somewhere() -> None:
    text = str(document())
    references = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert references <= set(document()["components"]["schemas"])  # type: ignore[index]


def test_records_are_valid_schemas() -> None:
    components = document()["components"]
    for name, schema in components["schemas"].items():  # type: ignore[index]
        jsonschema_rs.meta.validate({**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"})
        assert name


def test_document_has_the_parts_that_openapi_demands() -> None:
    whole = document()
    assert whole["openapi"] == "3.1.0"
    assert set(whole["info"]) >= {"title", "version"}  # type: ignore[call-overload]
    operations = [operation for item in whole["paths"].values() for operation in item.values()]  # type: ignore[attr-defined]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for operation in operations:
        assert all(re.fullmatch("[1-5][0-9][0-9]", status) for status in operation["responses"])
        assert all("description" in response for response in operation["responses"].values())


def test_parameters_of_a_path_are_declared() -> None:
    for path, item in document()["paths"].items():  # type: ignore[attr-defined]
        for operation in item.values():
            declared = {part["name"] for part in operation.get("parameters", []) if part["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))


def test_limits_of_members_are_told() -> None:
    run = document()["components"]["schemas"]["RunBody"]  # type: ignore[index]
    assert run["additionalProperties"] is False
    assert run["required"] == ["text"]
    assert run["properties"]["text"] == {"type": "string", "minLength": 1, "maxLength": 200_000}


def test_bodies_are_required_where_a_member_is() -> None:
    paths = document()["paths"]
    assert paths["/api/v1/runs"]["post"]["requestBody"]["required"]  # type: ignore[index]
    assert not paths["/api/v1/sessions"]["post"]["requestBody"]["required"]  # type: ignore[index]
    assert all("requestBody" not in paths[route.path]["get"] for route in ROUTES if route.method == "GET")  # type: ignore[index]
    assert all(route.body is Unread for route in ROUTES if route.method in ("GET", "DELETE"))


async def test_document_is_served(scene: Scene) -> None:
    assert (await scene.ask("GET", "/api/v1/openapi.json")).json == json.loads(json.dumps(document()))


def test_route_is_in_the_table_once() -> None:
    with pytest.raises(Exception, match="twice"):
        HttpRouteTable((*ROUTES, ROUTES[0]))

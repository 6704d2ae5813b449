"""The OpenAPI document: problems as they are sent, the key as a bearer scheme."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import MEDIA_TYPE, TITLES, Problem

DESCRIPTION: Final = """\
Alerts on prices and rolling changes: created PENDING, ACTIVE once the matcher holds them, TRIGGERED exactly once with
evidence to check, delivered at least once under one stable id. All errors are problems of RFC 9457."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for these statuses."""
    titles = dict(reversed(TITLES.values()))
    return {
        status: {
            "description": titles[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def install_openapi(app: FastAPI) -> None:
    """Serve /openapi.json with FastAPI's own validation error replaced by Problem."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
            schemas = made["components"]["schemas"]
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= problem.pop("$defs", {})
            schemas["Problem"] = problem
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for operation in (o for path in made["paths"].values() for o in path.values()):
                _validation_errors_are_problems(operation)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way


def _validation_errors_are_problems(operation: dict[str, Any]) -> None:
    answer = operation["responses"].get("422")
    if answer is not None and "application/json" in answer.get("content", {}):
        operation["responses"] |= {str(status): content for status, content in problems(422).items()}

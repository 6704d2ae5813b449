"""Every error leaves as application/problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from psycopg import OperationalError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
MAX_FIELD_ERRORS: Final = 20
TITLES: Final[dict[str, tuple[int, str]]] = {
    "bad-request": (400, "The request cannot be read"),
    "unauthorized": (401, "No valid API key"),
    "forbidden": (403, "The key may not do this"),
    "quota-exceeded": (403, "The quota is used up"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "conflict": (409, "It is in another state"),
    "too-large": (413, "The request is too large"),
    "invalid": (422, "The request is not valid"),
    "idempotency-key-reused": (422, "The idempotency key was used for another request"),
    "not-configured": (501, "Not set up here"),
    "internal": (500, "Internal error"),
    "unavailable": (503, "Not available for the moment"),
}

log = structlog.get_logger()


class FieldError(BaseModel):
    """One field that is wrong."""

    field: str = Field(examples=["body.threshold_bps"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class Problem(BaseModel):
    """RFC 9457: what went wrong, in words for a person and a `type` for a program."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"title": "Problem"})

    type: str = Field(examples=["/problems/invalid"])
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = Field(default=None, description="each wrong field, for /problems/invalid")


class ProblemError(Exception):
    """Raised anywhere in a request; leaves as a problem. `code` is a key of TITLES; `more` are extension members."""

    def __init__(
        self, code: str, detail: str, *, field: str | None = None, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers or {}
        self.more = more


def not_found(what: str) -> ProblemError:
    """The same answer for what does not exist and for what is another owner's."""
    return ProblemError("not-found", f"There is no such {what}.")


def problem_response(
    code: str, detail: str, *, headers: dict[str, str] | None = None, status: int | None = None, **more: Any
) -> JSONResponse:
    default_status, title = TITLES[code]
    status = status or default_status
    body = {"type": f"/problems/{code}", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def install_problems(app: FastAPI) -> None:
    """Make every kind of failure of `app` a problem."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_unavailable)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    more = dict(error.more)
    if error.field is not None:
        more["errors"] = [{"field": error.field, "message": error.detail}]
    return problem_response(error.code, error.detail, headers=error.headers, **more)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """What was sent is not repeated: it may hold secrets, or text that can't be encoded."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(e["type"] == "json_invalid" for e in found):
        return problem_response("bad-request", "The body is not JSON.")
    fields = [{"field": _path(e["loc"]), "message": _clean(e["msg"])} for e in found[:MAX_FIELD_ERRORS]]
    detail = "; ".join(f"{f['field']}: {f['message']}" for f in fields[:3])
    return problem_response("invalid", detail + ("; …" if len(found) > 3 else ""), errors=fields)


def _path(location: Sequence[str | int]) -> str:
    return _clean(".".join(map(str, location)))[:200]


def _clean(text: str) -> str:
    text = text.removeprefix("Value error, ")
    return text.encode("utf-8", "replace").decode("utf-8", "replace")[:500]


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem_response("not-found", "There is no such page.", headers=headers)
    if error.status_code == 405:
        return problem_response("method-not-allowed", f"{request.method} is not possible here.", headers=headers)
    detail = _clean(str(error.detail))
    return problem_response("bad-request", detail, headers=headers, status=error.status_code)


async def _on_unavailable(request: Request, error: Exception) -> Response:
    log.warning("database away", error=str(error), kind=type(error).__name__, path=request.url.path)
    return problem_response(
        "unavailable",
        "The database does not answer; try again. A create that is sent again with the same Idempotency-Key "
        "happens once.",
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


async def _on_unexpected(request: Request, error: Exception) -> Response:
    log.error("unexpected error", path=request.url.path, method=request.method, exc_info=error)
    return problem_response("internal", "Something went wrong on our side; it has been logged.")

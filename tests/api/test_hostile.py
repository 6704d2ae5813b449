"""Hostile input, wrong credentials, a database that is away: always a problem, never a 5xx that isn't 503."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import make_app
from api.database import PostgresDatabase
from api.settings import MAX_BODY_BYTES, ApiSettings
from ports.secrets import SecretBox
from tests.api.conftest import serve

NASTY = [
    "\x00", "a\x00b", "\ud800", "'; DROP TABLE alerts; --", "%s %(x)s :x", "\\", "{}", "<script>", "\u202e", "AAPL\x00",
    "9" * 400, "-0", "NaN", "１２", "\x1b[2J", "a" * 6_000, "null", "2026-03-01T00:00:00Z\x00",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(NASTY),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
FIELDS = [
    "symbol", "kind", "window", "direction", "threshold_bps", "threshold_percent", "target", "expires_at", "created_at",
    "note", "channels",
]  # fmt: skip


def assert_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert answer.status_code in (statuses or range(400, 500)), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    return problem


def post_raw(api: httpx.Client, headers: dict[str, str], content: bytes) -> httpx.Response:
    return api.post("/v1/alerts", content=content, headers={**headers, "Content-Type": "application/json"})


@given(field=st.sampled_from(FIELDS), value=JSON, price=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_field_is_taken_or_refused(api, admin, gain, field: str, value: object, price: bool) -> None:
    whole = {**gain, "kind": "price", "direction": "ABOVE", "target": "7"} if price else gain
    answer = post_raw(api, admin, json.dumps({**whole, field: value}).encode())
    if answer.status_code != 201:
        assert_problem(answer, 400, 422)


@pytest.mark.parametrize("value", NASTY)
def test_nasty_text_in_queries_headers_and_paths(api, ada, gain, value: str) -> None:
    text = value.encode("utf-8", "surrogatepass")
    for name in ("status", "symbol", "cursor", "limit"):
        query = httpx.QueryParams({name: text.decode("utf-8", "replace")})
        answer = api.get("/v1/alerts", params=query, headers=ada)
        assert_problem(answer, 422)
    printable = text.replace(b"\x00", b"\x01").replace(b"\x1b", b"\x01")
    answer = api.post("/v1/alerts", json=gain, headers={**ada, "Idempotency-Key": printable})  # type: ignore[dict-item]
    assert answer.status_code in (201, 400, 422)
    for address in (value, f"{value}@", f"x@{value}"):
        body = json.dumps({"kind": "email", "address": address}).encode()
        assert_problem(api.post("/v1/channels", content=body, headers={**ada, "Content-Type": "application/json"}), 422)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b"[" * 30_000, b'{"a":' * 10_000, b"\xff\xfe", b"{}" * 2, b"1e999",
        b'{"kind":"change"}',
    ],
)  # fmt: skip
def test_bodies_that_are_no_request(api, ada, body: bytes) -> None:
    assert_problem(post_raw(api, ada, body), 400, 422)


def test_a_body_over_the_limit_is_refused_declared_or_streamed(api, ada, gain) -> None:
    whole = json.dumps({**gain, "x": "y" * MAX_BODY_BYTES}).encode()
    assert_problem(post_raw(api, ada, whole), 413)
    chunks = (whole[i : i + 9_000] for i in range(0, len(whole), 9_000))
    answer = api.post("/v1/alerts", content=chunks, headers={**ada, "Content-Type": "application/json"})
    assert_problem(answer, 413)


def test_what_is_not_there_is_a_problem_too(api, ada) -> None:
    assert_problem(api.get("/v1/nothing", headers=ada), 404)
    assert_problem(api.put("/v1/alerts", headers=ada), 405)


def test_a_note_is_kept_as_it_is(api, ada, gain) -> None:
    for note in ("<script>alert(1)</script>", "x\r\nBcc: y", "📈 Über", "n" * 5_000):
        assert api.post("/v1/alerts", json={**gain, "note": note}, headers=ada).json()["note"] == note


# --- credentials


def routes(api: httpx.Client) -> list[tuple[str, str]]:
    paths = api.get("/openapi.json").json()["paths"]
    return [(m.upper(), p) for p, operations in paths.items() for m in operations if p.startswith("/v1/")]


def test_every_route_wants_a_valid_key(api, owners, sql) -> None:
    owners.create("ada", None)
    keys = {name: owners.create_key("ada", ["alerts", "admin"], None) for name in ("expired", "revoked", "good")}
    sql("UPDATE api_keys SET expires_at = now() - interval '1 s' WHERE key_id = %s", keys["expired"].key_id)
    owners.revoke_key(keys["revoked"].key_id)
    wrong = f"ak_{keys['good'].key_id}_{keys['revoked'].secret}"
    bearers = [keys["expired"].text, keys["revoked"].text, wrong, "ak_0000000000000000_" + "x" * 43, "x", "ak__"]
    refused = [{"Authorization": f"Bearer {b}"} for b in bearers] + [{}, {"Authorization": keys["good"].text}]
    found = routes(api)
    assert len(found) > 20
    for method, path in found:
        for headers in refused:
            answer = api.request(method, path.replace("{", "").replace("}", ""), headers=headers)
            assert_problem(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"


def test_admin_routes_want_the_admin_scope(api, ada) -> None:
    for method, path in routes(api):
        if path.startswith("/v1/admin"):
            assert_problem(api.request(method, path, headers=ada), 403)


def test_a_revocation_takes_two_seconds_at_most(api, owners, clock) -> None:
    owners.create("ada", None)
    key = owners.create_key("ada", ["alerts"], None)
    headers = {"Authorization": f"Bearer {key.text}"}
    assert api.get("/v1/alerts", headers=headers).status_code == 200
    owners.revoke_key(key.key_id)
    clock.now_ms += 2_000
    assert_problem(api.get("/v1/alerts", headers=headers), 401)


def test_secrets_are_not_at_rest(api, ada, sql, settings) -> None:
    made = api.post("/v1/channels", json={"kind": "webhook", "url": "https://example.org/x"}, headers=ada).json()
    (row,) = sql("SELECT secret FROM channels")
    assert made["secret"].startswith("whsec_")
    assert made["secret"].encode() not in bytes(row["secret"])
    assert SecretBox(settings.secret_key or "").open(bytes(row["secret"])) == made["secret"]
    assert "secret" not in api.get("/v1/channels", headers=ada).json()["channels"][0]
    secret = ada["Authorization"].rsplit("_", 1)[1]
    assert secret not in str(sql("SELECT * FROM api_keys"))


# --- the database is away


def test_connections_that_die_are_replaced_unseen(api, ada, gain, sql) -> None:
    for _ in range(3):
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'alerts-api' AND datname = current_database()"
        )
        assert api.post("/v1/alerts", json=gain, headers=ada).status_code in (201, 503)
    assert api.get("/v1/alerts", headers=ada).status_code == 200


def test_without_a_database_it_is_503_and_alive(settings: ApiSettings, clock) -> None:
    dsn = psycopg.conninfo.make_conninfo(settings.postgres_dsn, port=1)
    away = settings.model_copy(update={"postgres_dsn": dsn})
    database = PostgresDatabase.open(away)
    try:
        for url in serve(away, database, clock):
            with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
                assert client.get("/healthz").status_code == 200
                answer = client.get("/readyz")
                assert_problem(answer, 503)
                assert answer.headers["retry-after"] == "1"
    finally:
        database.close()
        assert threading.active_count() < 100


def test_the_app_is_made_without_a_database(settings: ApiSettings, database: PostgresDatabase, clock) -> None:
    document = make_app(settings, database, clock).openapi()
    operations = [o for path in document["paths"].values() for o in path.values()]
    assert len({o["operationId"] for o in operations}) == len(operations)
    assert "HTTPValidationError" not in json.dumps(document)
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"

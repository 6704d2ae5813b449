"""`./alerts admin`: keys, feeds, instruments, splits, resumes, routing, settings. One JSON line on stdout each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from api.keys import new_key
from api.times import EPOCH, parse_time_ms
from contracts.symbols import SymbolError, canonical_symbol
from feeds.sources.plug_ins import check_source
from feeds.sources.source import SourceError
from sql.connection import transaction
from sql.owner_store import OwnerStore
from sql.reference_store import DeclarationError, FeedSettings, ReferenceStore
from stack.errors import StackError
from stack.operator_database import Dsn, Schema, operator_pool

app = typer.Typer(no_args_is_help=True, help="Keys, feeds, instruments, splits, resumes, routing, settings.")

Symbol = Annotated[str, typer.Option("--symbol")]
Time = Annotated[str, typer.Option(help="RFC 3339 with an offset.")]
Milliseconds = Annotated[int | None, typer.Option(min=0)]
Ages = Annotated[
    list[str] | None, typer.Option("--reference-age", help="WINDOW=MILLISECONDS, e.g. 1h=600000; may be repeated.")
]


@app.command("create-key")
def create_key(
    *,
    owner: Annotated[str, typer.Option(help="Made when there is none of this name.")],
    admin: Annotated[bool, typer.Option("--admin", help="Also opens /v1/admin.")] = False,
    expires_at: Annotated[str | None, typer.Option(help="RFC 3339 with an offset; default: never.")] = None,
    max_live_alerts: Annotated[int | None, typer.Option(min=0, help="Quota of a new owner.")] = None,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """A new API key: printed this once, only its hash is kept."""
    expiry = None if expires_at is None else EPOCH + timedelta(milliseconds=_time_ms(expires_at))
    scopes = ["alerts", "admin"] if admin else ["alerts"]
    key = new_key()
    with operator_pool(dsn, schema) as pool, transaction(pool) as connection:
        store = OwnerStore(connection)
        found = store.insert(owner, max_live_alerts) or store.find(owner)
        if found is None:
            raise StackError(f"owner {owner!r} was removed meanwhile", remedy="run the command again")
        store.insert_key(key.key_id, key.hash, found.owner_id, scopes, expiry)
    _say(key_id=key.key_id, key=key.text, owner=owner, owner_id=found.owner_id, scopes=scopes)


@app.command("revoke-key")
def revoke_key(key_id: str, dsn: Dsn = None, schema: Schema = None) -> None:
    """Refuse a key from now on; its public part (ak_<this>_…) names it."""
    with operator_pool(dsn, schema) as pool, transaction(pool) as connection:
        revoked = OwnerStore(connection).revoke_key(key_id)
    if not revoked:
        raise StackError(f"there is no key {key_id!r}")
    _say(key_id=key_id, revoked=True)


@app.command("feed")
def feed(
    *,
    name: Annotated[str, typer.Option("--name")],
    clock_mode: Annotated[str, typer.Option(help="live or replay.")] = "live",
    buckets: Annotated[int, typer.Option(min=1, max=1_024)] = 16,
    reorder_ms: Milliseconds = None,
    max_ahead_ms: Milliseconds = None,
    reference_age: Ages = None,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Declare a feed."""
    if clock_mode not in ("live", "replay"):
        raise StackError(f"--clock-mode {clock_mode!r}", remedy="say live or replay")
    settings = _settings(reorder_ms, max_ahead_ms, reference_age)
    mode: Any = clock_mode
    _declare(dsn, schema, lambda store: store.create_feed(name, buckets, mode, settings), feed=name)


@app.command("settings")
def settings(
    *,
    name: Annotated[str, typer.Option("--feed")],
    reorder_ms: Milliseconds = None,
    max_ahead_ms: Milliseconds = None,
    reference_age: Ages = None,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Change a feed's bounds; what isn't named stays."""
    changed = _settings(reorder_ms, max_ahead_ms, reference_age)
    _declare(dsn, schema, lambda store: store.set_settings(name, changed), feed=name)


@app.command("source")
def source(
    *,
    name: Annotated[str, typer.Option("--feed")],
    file: Annotated[Path | None, typer.Option(help='JSON, `{"kind": "http", …}`: see docs/sources.md.')] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take prices from ticks.v1 alone again.")] = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Say where a feed's prices come from; a running gateway follows within seconds."""
    if (file is None) != remove:
        raise StackError("give either --file or --remove")
    stored = None if file is None else _read_source(file)
    with operator_pool(dsn, schema) as pool:
        try:
            changed = ReferenceStore(pool).set_source(name, stored)
        except DeclarationError as error:
            raise StackError(str(error)) from None
    _say(feed=name, source=stored and stored["kind"], changed=changed)


@app.command("instrument")
def instrument(
    symbol: Symbol,
    name: Annotated[str, typer.Option("--feed")],
    decimals: Annotated[int, typer.Option(min=0, max=18)],
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Declare an instrument of a feed."""
    canonical = _symbol(symbol)
    _declare(dsn, schema, lambda store: store.add_instrument(canonical, name, decimals), symbol=canonical)


@app.command("split")
def split(
    *,
    symbol: Symbol,
    effective_from: Time,
    new_shares: Annotated[int, typer.Option(min=1)],
    old_shares: Annotated[int, typer.Option(min=1)] = 1,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Declare a split: NEW_SHARES for OLD_SHARES from an event time on."""
    canonical, from_ms = _symbol(symbol), _time_ms(effective_from)
    _declare(dsn, schema, lambda store: store.add_split(canonical, from_ms, new_shares, old_shares), symbol=canonical)


@app.command("resume")
def resume(symbol: Symbol, dsn: Dsn = None, schema: Schema = None) -> None:
    """Evaluate a symbol again that a late split suppressed."""
    canonical = _symbol(symbol)
    _declare(dsn, schema, lambda store: store.resume(canonical), symbol=canonical)


@app.command("routing")
def routing(
    symbol: Symbol,
    shards: Annotated[int, typer.Option(min=1, max=1_024)],
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Begin to give a hot symbol shards of its own (1: those of its bucket); `./alerts reshard` also waits for it."""
    canonical = _symbol(symbol)
    _declare(dsn, schema, lambda store: store.set_routing(canonical, shards), symbol=canonical)


def _declare(
    dsn: str | None, schema: str | None, write: Callable[[ReferenceStore], int | None], **said: object
) -> None:
    try:
        with operator_pool(dsn, schema) as pool:
            control_id = write(ReferenceStore(pool))
    except DeclarationError as error:
        raise StackError(str(error)) from None
    _say(**said, control_id=control_id, changed=control_id is not None)


def _settings(reorder_ms: int | None, max_ahead_ms: int | None, ages: list[str] | None) -> FeedSettings:
    parsed: dict[str, int] = {}
    for text in ages or ():
        window, _, age = text.partition("=")
        if not age.isdigit():
            raise StackError(f"--reference-age {text!r}", remedy="write WINDOW=MILLISECONDS, e.g. 1h=600000")
        parsed[window] = int(age)
    try:
        return FeedSettings(reorder_ms, parsed, max_ahead_ms)
    except DeclarationError as error:
        raise StackError(str(error)) from None


def _read_source(file: Path) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_bytes())
        check_source(stored)
    except OSError as error:
        raise StackError(f"the file can't be read: {error.strerror}", where=str(file)) from None
    except ValueError:
        raise StackError("the file holds no JSON", where=str(file)) from None
    except SourceError as error:
        raise StackError(str(error), where=str(file), remedy="see docs/sources.md") from None
    return dict(stored)


def _symbol(text: str) -> str:
    try:
        return canonical_symbol(text)
    except SymbolError as error:
        raise StackError(str(error)) from None


def _time_ms(text: str) -> int:
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise StackError(str(error)) from None


def _say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")

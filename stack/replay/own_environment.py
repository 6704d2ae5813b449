"""An environment for one run: on the running stack or on one started for it, gone afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from api.keys import new_key
from sql.connection import Pool, open_pool, transaction
from sql.owner_store import OwnerStore
from stack.embedded import EmbeddedStack
from stack.environment import Environment
from stack.errors import StackError
from stack.program import Program
from stack.progress import say, step
from stack.replay.api_client import ApiClient
from stack.replay.barriers import Barriers
from stack.status import gather_status

ADMIN_OWNER = "operator"


@dataclass
class OwnEnvironment:
    """What a run needs of its environment. `admin` may do everything."""

    stack: EmbeddedStack
    environment: Environment
    pool: Pool
    admin: ApiClient
    barriers: Barriers
    programs: list[Program]  # of this run, beside the environment's services
    _clients: dict[str, ApiClient] = field(default_factory=dict)

    @property
    def topic_prefix(self) -> str:
        return self.environment.topic_prefix

    @property
    def api_url(self) -> str:
        return self.stack.api_url(self.environment.name)

    def client_of(self, owner: str) -> ApiClient:
        """The owner's key; scope admin too, because a replay says itself when an alert was created."""
        if owner not in self._clients:
            self._clients[owner] = ApiClient(self.api_url, self.new_owner_key(owner, "alerts", "admin"))
        return self._clients[owner]

    def new_owner_key(self, owner: str, *scopes: str) -> str:
        self.admin.create_once("/v1/admin/owners", {"name": owner})
        made = self.admin.request("POST", f"/v1/admin/owners/{owner}/keys", json={"scopes": scopes})
        return str(made["key"])

    def add_program(self, program: Program) -> None:
        """Supervise one more process; it ends with the environment."""
        self.programs.append(program)
        self.stack.add_program(program)

    def close(self) -> None:
        for program in self.programs:
            self.stack.remove_program(program.name)
        for client in (self.admin, *self._clients.values()):
            client.close()
        self.pool.close()


def describe_unwell(stack: EmbeddedStack) -> str:
    """Processes and jobs that are not well, in words; "" when all are."""
    status = gather_status(stack)
    if not status.running:
        return status.problem or "the stack does not run"
    processes = [f"{row.name} ({row.health})" for row in status.processes if row.health not in ("ok", "-")]
    jobs = [f"job {row.name} ({row.state} {row.detail})" for row in status.jobs if row.state != "RUNNING"]
    return ", ".join(processes + jobs)


@contextmanager
def own_environment(
    kind: str, services: tuple[str, ...] | None = None, env: Mapping[str, str] | None = None,
    *, stack: EmbeddedStack | None = None, deadline_s: float = 180.0,
) -> Iterator[OwnEnvironment]:  # fmt: skip
    """`kind` and our pid name it, so that what a killed run left behind is found and removed by the next one.

    The stack (the settings' own when none is given) is stopped afterwards if it was started here.
    """
    stack = stack or EmbeddedStack()
    _end_as_by_ctrl_c()
    started = not stack.supervisor.is_alive()
    try:
        stack.up()
        _remove_left_behind(stack, kind)
        name = f"{kind}-{os.getpid()}"
        environment = Environment(name, f"{name}.", name.replace("-", "_"), env=dict(env or {}))
        if services is not None:
            environment = Environment(
                name, environment.topic_prefix, environment.schema, services=services, env=environment.env
            )
        try:
            with step(f"starting the environment {name}"):
                missing = stack.create_environment(environment)
                if missing:
                    raise StackError(f"this checkout lacks {', '.join(missing)}")
                stack.await_environment(environment)
            with _opened(stack, environment, deadline_s) as own:
                yield own
        finally:
            with step(f"removing the environment {name}"):
                stack.remove_environment(name)
    finally:
        if started:
            stack.down()


def _end_as_by_ctrl_c() -> None:
    """SIGTERM cleans up too. Only a main thread may say so; elsewhere the caller's handling stands."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def _opened(stack: EmbeddedStack, environment: Environment, deadline_s: float) -> Iterator[OwnEnvironment]:
    pool = open_pool(stack.postgres_dsn, environment.schema, environment.name, max_size=8)
    try:
        admin = ApiClient(stack.api_url(environment.name), _first_admin_key(pool))
        programs: list[Program] = []
        barriers = Barriers(
            pool, lambda: describe_unwell(stack), lambda: _heal(stack, environment, programs), deadline_s
        )
        own = OwnEnvironment(stack, environment, pool, admin, barriers, programs)
    except BaseException:
        pool.close()
        raise
    try:
        yield own
    finally:
        _heal(stack, environment, programs)
        own.close()


def _heal(stack: EmbeddedStack, environment: Environment, programs: list[Program]) -> None:
    """Supervisord restarts everything but itself: when it was killed, begin again from what is on disk."""
    if stack.supervisor.is_alive():
        return
    say("the supervisor was killed: starting everything again")
    stack.up()
    stack.create_environment(environment)
    for program in programs:
        stack.add_program(program)


def _first_admin_key(pool: Pool) -> str:
    key = new_key()
    with transaction(pool) as connection:
        store = OwnerStore(connection)
        owner = store.insert(ADMIN_OWNER, None) or store.find(ADMIN_OWNER)
        assert owner is not None
        store.insert_key(key.key_id, key.hash, owner.owner_id, {"alerts", "admin"}, None)
    return key.text


def _remove_left_behind(stack: EmbeddedStack, kind: str) -> None:
    for environment in stack.environments():
        owner_kind, _, pid = environment.name.rpartition("-")
        if owner_kind == kind and pid.isdigit() and not psutil.pid_exists(int(pid)):
            with step(f"removing {environment.name}, which a killed run left behind"):
                stack.remove_environment(environment.name)

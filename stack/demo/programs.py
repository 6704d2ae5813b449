"""The demo's own programs: the mailbox and the webhook receiver, supervised like every other."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ports.secrets import new_key
from stack.embedded import EmbeddedStack
from stack.health import await_healthy
from stack.listening_ports import LOOPBACK
from stack.program import Program, inherited_env
from stack.replay.own_environment import OwnEnvironment
from stack.settings import REPOSITORY

MAILBOX, RECEIVER = "demo-mailbox", "demo-receiver"
# Nobody wants to wait half an hour in a demo.
RETRY_SECONDS = "1,2,4,8,15,30,60,60"
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Receivers:
    """Where mail and webhooks of the demo go, and what the environment must be told of it."""

    smtp_port: int
    page_port: int
    receiver_port: int
    folder: Path

    @property
    def mailbox_url(self) -> str:
        return f"http://{LOOPBACK}:{self.page_port}"

    @property
    def receiver_url(self) -> str:
        return f"http://{LOOPBACK}:{self.receiver_port}"

    @property
    def secrets_file(self) -> Path:
        return self.folder / "webhook-secrets.json"

    def service_env(self) -> dict[str, str]:
        """For the notifier and the API."""
        return {
            "ALERTS_SECRET_KEY": new_key(),
            "ALERTS_SMTP_HOST": LOOPBACK,
            "ALERTS_SMTP_PORT": str(self.smtp_port),
            "ALERTS_SMTP_SECURITY": "none",
            "ALERTS_MAIL_FROM": "Rolling Alerts <alerts@demo.example>",
            "ALERTS_WEBHOOK_ALLOW_PRIVATE": "true",
            "ALERTS_RETRY_SECONDS": RETRY_SECONDS,
        }

    def programs(self, home: Path) -> tuple[Program, Program]:
        env = {
            **inherited_env(),
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "ALERTS_DEMO_SMTP_PORT": str(self.smtp_port),
            "ALERTS_DEMO_PAGE_PORT": str(self.page_port),
            "ALERTS_DEMO_RECEIVER_PORT": str(self.receiver_port),
            "ALERTS_DEMO_SECRETS_FILE": str(self.secrets_file),
        }

        def program(name: str, module: str, folder: str) -> Program:
            return Program(
                name=name, command=(sys.executable, "-m", module), directory=home, writes_health=True,
                env={**env, "ALERTS_DEMO_FOLDER": str(self.folder / folder)},
            )  # fmt: skip

        return program(MAILBOX, "stack.demo.mailbox", "mail"), program(RECEIVER, "stack.demo.receiver", "received")


def choose_receivers(stack: EmbeddedStack) -> Receivers:
    """Empty mail folder, free ports; ends those of a demo that was killed."""
    if stack.supervisor.is_alive():
        for name in (MAILBOX, RECEIVER):
            stack.remove_program(name)
    folder = stack.home.root / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    ports = [stack.ports.choose(f"demo_{name}")[0] for name in ("smtp", "mailbox", "receiver")]
    return Receivers(ports[0], ports[1], ports[2], folder)


def start_receivers(own: OwnEnvironment, receivers: Receivers) -> None:
    """They end with the environment; their mail stays in the home until the next demo."""
    home, supervisor = own.stack.home, own.stack.supervisor
    for program in receivers.programs(home.root):
        own.add_program(program)
    await_healthy(home, supervisor, [MAILBOX, RECEIVER], START_TIMEOUT_S)

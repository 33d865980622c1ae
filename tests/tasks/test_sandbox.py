"""Generated code that goes wrong is stopped, the reason is named, and nothing is left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from fenced import needs_fences
from helpers import run_command, wait_until
from refusals import refused

from practicum.tasks.sandbox import fences
from practicum.tasks.sandbox.runner import UNFENCED, Limits, ProgramResult, Sandbox

LIMITS = Limits(cpu=3, wall=30.0)


pytestmark = needs_fences


def run(code: str, stdin: str = "", limits: Limits = LIMITS, **files: str) -> ProgramResult:
    return asyncio.run(Sandbox(limits).run({"main.py": code, **files}, stdin=stdin))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own, since other tests run code at the same time."""
    folder = tmp_path_factory.mktemp("code")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.glob("practicum-code-*"))


def test_a_program_of_several_files_reads_prints_and_ends() -> None:
    ran = asyncio.run(
        Sandbox().run(
            {"main.py": "import sys, parts.one\nprint(parts.one.word(input()), sys.argv)", "parts/one.py": WORD},
            args=("a b",),
            stdin="grüezi\n",
        )
    )
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.reason) == (0, "GRÜEZI ['main.py', 'a b']\n", "", "")


WORD = "def word(text):\n    return text.upper()\n"


def test_a_program_is_compiled_without_future_imports() -> None:
    """What our own code imports from `__future__` is nothing to it."""
    assert run("def f(x: int): ...\nprint(f.__annotations__)").stdout == "{'x': <class 'int'>}\n"


def test_usual_programs_work() -> None:
    ran = run(
        "import asyncio, os, shutil, sqlite3, tempfile, threading, zoneinfo\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "thread = threading.Thread(target=print, args=('from a thread',)); thread.start(); thread.join()\n"
        "open('a', 'w').write('x'); shutil.copy2('a', 'b'); os.makedirs('c/d'); os.rename('b', 'c/d/b')\n"
        "with tempfile.TemporaryDirectory() as name: open(name + '/x', 'w').close()\n"
        "sqlite3.connect('x.db').execute('create table t(x)')\n"
        "print(sorted(os.listdir('.')))\n"
        "exit()\n"
    )
    assert ran.reason == ""
    assert ran.stdout == "from a thread\n['a', 'c', 'main.py', 'x.db']\n"


def test_the_kernel_limits_are_set() -> None:
    names = ("CPU", "FSIZE", "NOFILE", "CORE", "AS")
    code = f"import resource\nprint([resource.getrlimit(getattr(resource, 'RLIMIT_' + n))[0] for n in {names}])"
    ran = run(code, limits=Limits(cpu=3, folder_mb=4, memory_mb=128))
    assert ran.stdout == f"{[3, 4 * 2**20, 64, 0, 128 * 2**20]}\n"


@pytest.mark.slow
def test_an_endless_loop_is_stopped() -> None:
    ran = run("while True: pass", limits=Limits(cpu=1))
    assert ran.exit_code is None
    assert ran.reason.startswith("stopped after")
    assert ran.stopped


def test_an_endless_wait_is_stopped() -> None:
    ran = run("import time\ntime.sleep(1000)", limits=Limits(wall=0.2))
    assert ran.reason == "stopped after 0.2 s"
    assert ran.seconds >= 0.2
    assert ran.stopped


@pytest.mark.slow
def test_memory_is_limited() -> None:
    ran = run("kept = []\nwhile True: kept.append(bytearray(10_000_000))", limits=Limits(memory_mb=128))
    assert ran.reason == "ran out of its 128 MB of memory"
    assert ran.stopped


FORBIDDEN = "stopped because it tried to use the network, or to start or signal another process"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True: os.fork()",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(60)",
        "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)",
        "import os\nos.execv('/bin/true', ['true'])",
        "import os\nos.kill(os.getppid(), 9)",
        "import os, signal\nos.killpg(os.getpgrp(), signal.SIGTERM)",
        "import os, signal\nos.kill(-1, signal.SIGTERM)",
        "import multiprocessing\nif __name__ == '__main__': multiprocessing.Process(target=print).start()",
        "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')",
    ],
)
def test_starting_or_signalling_a_process_stops_a_program(code: str) -> None:
    ran = run(code)
    assert ran.exit_code is None
    assert ran.reason.startswith(FORBIDDEN)
    assert ran.stopped


def test_the_reason_names_the_line() -> None:
    assert run("import os\n\nos.fork()\n").reason == f"{FORBIDDEN} (main.py line 3)"
    assert (
        run("def f():\n    return 1 / 0\nf()\n").reason
        == "ended with ZeroDivisionError: division by zero (main.py line 2)"
    )
    assert run("def f(:\n").reason == "ended with SyntaxError: invalid syntax (main.py line 1)"
    assert run("import sys\nsys.exit(3)\n").reason == "ended with exit code 3"


@pytest.mark.parametrize(
    "code", ["", "1 / 0", "def f(:", "exit(3)", "raise PermissionError('not yours')", "os.abort()"]
)
def test_a_program_that_ends_by_itself_is_not_stopped(code: str) -> None:
    assert not run(f"import os\n{code}").stopped


def test_the_network_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for code in (
            f"import socket\nsocket.create_connection(('127.0.0.1', {port}))",
            f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}/')",
            f"import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        ):
            assert run(code).reason.startswith(FORBIDDEN)
        with pytest.raises(BlockingIOError):
            listener.accept()


WRITES = (
    "open(PATH, 'w').write('x')",
    "os.remove(PATH)",
    "os.truncate(PATH, 0)",
    "os.open(PATH, os.O_RDONLY | os.O_TRUNC)",
    "os.rename('main.py', PATH)",
    "os.link(PATH, 'link'); open('link', 'w')",
    "os.symlink(PATH, 'symlink'); open('symlink', 'w')",
    "os.mkdir(PATH + '.d')",
)


def test_nothing_outside_the_folder_can_be_written(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    tries = "".join(f"try:\n    {write}\nexcept OSError as error:\n    refused.append(error)\n" for write in WRITES)
    ran = run(f"import os\nPATH, refused = {str(theirs)!r}, []\n{tries}print(len(refused))\nraise refused[0]")
    assert ran.stdout == f"{len(WRITES)}\n"
    assert ran.reason.startswith("ended with PermissionError")
    assert ran.stopped
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("theirs", "kept")]


def test_modes_and_times_of_files_outside_do_not_change(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("kept")
    before = theirs.stat()
    ran = run(f"import os\nos.chmod({str(theirs)!r}, 0)\nos.utime({str(theirs)!r}, (1, 1))")
    assert ran.exit_code == 0
    assert (theirs.stat().st_mode, theirs.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_files_of_the_user_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    files = [str(tmp_path / "secret"), "/proc/self/environ", f"/proc/{os.getpid()}/environ"]
    code = f"""
import os
for read, paths in ((open, {files}), (os.listdir, [{str(Path.home())!r}, ".."])):
    for path in paths:
        try:
            print(path, read(path))
        except PermissionError as error:
            refused = error
raise refused
"""
    ran = run(code)
    assert ran.stdout == ""
    assert "PermissionError" in ran.reason


def test_the_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret")
    assert "secret" not in run("import os\nprint(dict(os.environ))").stdout


def test_endless_output_is_stopped() -> None:
    for stream in ("stdout", "stderr"):
        ran = run(f"import sys\nwhile True: print('x' * 10_000, file=sys.{stream})", limits=Limits(output_kb=16))
        assert ran.reason == "stopped after it printed more than 16 kB"
        assert len(ran.stdout) + len(ran.stderr) == 16 * 1024


@pytest.mark.slow
def test_filling_the_disk_is_stopped() -> None:
    full = "stopped after it wrote more than 4 MB or 50 files"
    limits = Limits(folder_mb=4, files=50, wall=10.0)
    many = "import itertools\nfor i in itertools.count(): open(f'f{i}', 'wb').write(b'x' * 1_000_000)"
    deep = "import os\nwhile True: os.mkdir('d'); os.chdir('d')"
    assert run(many, limits=limits).reason == full
    assert run(deep, limits=limits).reason == full
    assert run("open('one', 'wb').write(b'x' * 10_000_000)", limits=limits).exit_code != 0
    removed = """
import os, time
kept = []
for i in range(9):
    kept.append(open(f"f{i}", "wb", 0))
    os.remove(f"f{i}")
    kept[i].write(b"x" * 1_000_000)
time.sleep(60)
"""
    assert run(removed, limits=limits).reason == full
    mapped = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for i in range(9):
    with open("f", "wb", 0) as file:
        file.write(b"x" * 1_000_000)
    handle = os.open("f", os.O_RDONLY)
    libc.mmap(None, ctypes.c_size_t(1_000_000), 1, 1, handle, ctypes.c_long(0))
    os.close(handle)
    os.remove("f")
time.sleep(60)
"""
    assert run(mapped, limits=limits).reason == full


def test_disk_space_cannot_be_reserved_without_writing() -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
with open("f", "wb") as file:
    print(libc.fallocate(file.fileno(), 0, ctypes.c_long(0), ctypes.c_long(1_000_000)), ctypes.get_errno())
"""
    assert run(code).stdout == f"-1 {errno.ENOTSUP}\n"
    assert (
        run("import os\nos.posix_fallocate(os.open('f', 0o102), 0, 10**6)\nprint(os.stat('f').st_size)").stdout
        == "1000000\n"
    )


def test_endless_threads_are_stopped() -> None:
    code = "import threading, time\nthreading.stack_size(65536)\n"
    ran = run(code + "while True: threading.Thread(target=time.sleep, args=(60,)).start()")
    assert ran.exit_code is None or "can't start new thread" in ran.reason


def test_raw_system_calls_are_refused() -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
calls = {"mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "memfd_create": 319, "io_uring_setup": 425}
for name, number in calls.items():
    print(name, libc.syscall(number, 0, 0, 0, 0, 0))
"""
    if os.uname().machine != "x86_64":
        pytest.skip("numbers of x86_64")
    assert run(code).stdout.split()[1::2] == ["-1"] * 6


def test_a_limit_cannot_be_raised_again() -> None:
    ran = run("import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))")
    assert ran.exit_code == 1


def test_file_names_must_stay_in_the_folder() -> None:
    for name in ("../out.py", "/tmp/out.py", "", "a/../../b.py", "."):
        with refused("sandbox.invalid_file"):
            asyncio.run(Sandbox().run({"main.py": "", name: ""}))
    assert "could not be written" in asyncio.run(Sandbox().run({"main.py": "", "main.py/b.py": ""})).reason
    assert asyncio.run(Sandbox().run({"other.py": ""})).reason == "there is no file main.py to run"


@pytest.mark.slow
def test_at_once_limits_concurrent_programs() -> None:
    async def both() -> list[ProgramResult]:
        sandbox = Sandbox(Limits(wall=20.0), at_once=1)
        code = "import time\nprint(time.monotonic_ns())\ntime.sleep(0.1)\nprint(time.monotonic_ns())"
        return list(await asyncio.gather(*(sandbox.run({"main.py": code}) for _ in range(3))))

    spans = sorted(tuple(map(int, ran.stdout.split())) for ran in asyncio.run(both()))
    assert all(one[1] < next_[0] for one, next_ in pairwise(spans))


def test_a_cancelled_run_leaves_nothing() -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(Sandbox(Limits(wall=60.0)).run({"main.py": "import time\ntime.sleep(60)"}))
        done, _ = await asyncio.wait([task], timeout=0.3)
        assert not done
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(cancelled())


def test_without_a_fence_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lame = tmp_path / "fences.py"
    source = Path(fences.__file__).read_text()
    lame.write_text(source.replace('_checked(version, "Landlock")', 'raise OSError("no Landlock here")'))
    monkeypatch.setattr("practicum.tasks.sandbox.runner.FENCES", lame)
    with refused("sandbox.unavailable"):
        run("print(1)")
    with refused("sandbox.unavailable"):
        Sandbox().require()
    monkeypatch.setenv(UNFENCED, "yes")
    assert run("print(1)").stdout == "1\n"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_only_linux_runs_code(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with refused("sandbox.unavailable"):
        run("print(1)")
    with refused("sandbox.unavailable"):
        Sandbox().require()


def test_the_package_imports_without_unix_modules() -> None:
    unix = ("fcntl", "grp", "pwd", "resource", "termios")
    names = ("tasks.scoring.registry", "tasks.scoring.parts", "tasks.formats")
    code = f"import sys\nsys.modules.update(dict.fromkeys({unix}))\nimport signal\ndel signal.SIGKILL, signal.SIGXCPU\n"
    code += "".join(f"import practicum.{name}\n" for name in names)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_children_of_an_unfenced_program_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lame = tmp_path / "fences.py"
    source = Path(fences.__file__).read_text()
    lame.write_text(source.replace("            step()\n", '            raise OSError("no fences here")\n'))
    monkeypatch.setattr("practicum.tasks.sandbox.runner.FENCES", lame)
    monkeypatch.setenv(UNFENCED, "yes")
    code = "import os, time\nchild = os.fork()\nif child: print(child)\nelse: time.sleep(1000)"
    ran = run(code)
    child = int(ran.stdout)
    wait_until(lambda: not alive(child), what="the end of the child")


def alive(pid: int) -> bool:
    """Whether there is such a process, other than one that ended and is not yet buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the tables are for Linux")
def test_no_system_call_is_listed_twice() -> None:
    for column in (0, 1):
        every = (fences.ALLOWED, fences.PRETENDED, fences.ABSENT, fences.STOPPED, fences.BY_ARGUMENTS)
        tables = [fences._numbers(table, column) for table in every]
        numbers = [number for table in tables for number in table.values()]
        assert len(numbers) == len(set(numbers))


@pytest.mark.slow
def test_code_that_ran_without_fences_is_warned_of_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lame = tmp_path / "fences.py"
    lame.write_text(Path(fences.__file__).read_text().replace('_checked(version, "Landlock")', 'raise OSError("none")'))
    monkeypatch.setattr("practicum.tasks.sandbox.runner.FENCES", lame)
    monkeypatch.setenv(UNFENCED, "yes")
    (tmp_path / "unfenced_agent.py").write_text("def agent(text, context):\n    return 'def f(): return 1'\n")
    (tmp_path / "t.jsonl").write_text('{"id": "a", "input": "Write f.", "tests": "assert f() == 1"}\n')
    done = run_command(["eval", "t.jsonl", "--agent", "unfenced_agent:agent", "--scorer", "tests", "--json"], tmp_path)
    assert done.json["counts"] == {"unfenced_programs": 1}
    assert f"{UNFENCED}=yes is set" in done.err
    assert done.json["score"] == 1.0

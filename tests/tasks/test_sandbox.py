"""Generated code that goes wrong is stopped, the reason is named, and no file or process is left."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fenced import needs_fences
from helpers import asynchronous, run_command, wait_until
from postgres import alive
from profiles import cases
from refusals import refused

from practicum.tasks.sandbox import fences
from practicum.tasks.sandbox.runner import UNFENCED, Limits, ProgramResult, Sandbox

LIMITS = Limits(cpu=3, wall=30.0)
FORBIDDEN = "stopped because it tried to use the network, or to start or signal another process"

pytestmark = needs_fences


def run(code: str, stdin: str = "", limits: Limits = LIMITS, **files: str) -> ProgramResult:
    return asyncio.run(Sandbox(limits).run({"main.py": code, **files}, stdin=stdin))


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs run in a new temporary folder, because other tests run code at the same time."""
    folder = tmp_path_factory.mktemp("code")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.glob("practicum-code-*"))


def test_a_program_of_several_files_reads_prints_and_ends() -> None:
    files = {
        "main.py": "import sys, parts.one\ndef f(x: int): ...\n"
        "print(parts.one.word(input()), sys.argv, f.__annotations__)",
        "parts/one.py": "def word(text):\n    return text.upper()\n",
    }
    ran = asyncio.run(Sandbox().run(files, args=("a b",), stdin="grüezi\n"))
    # The future imports of practicum's modules do not apply to the program.
    printed = "GRÜEZI ['main.py', 'a b'] {'x': <class 'int'>}\n"
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.reason, ran.stopped) == (0, printed, "", "", False)


@pytest.mark.slow
def test_usual_programs_work() -> None:
    ran = run(
        "import asyncio, os, shutil, sqlite3, tempfile, threading, zoneinfo\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "thread = threading.Thread(target=print, args=('from a thread',)); thread.start(); thread.join()\n"
        "open('a', 'w').write('x'); shutil.copy2('a', 'b'); os.makedirs('c/d'); os.rename('b', 'c/d/b')\n"
        "with tempfile.TemporaryDirectory() as name: open(name + '/x', 'w').close()\n"
        "sqlite3.connect('x.db').execute('create table t(x)')\n"
        "print(sorted(os.listdir('.')))\n"
        "os.posix_fallocate(os.open('f', 0o102), 0, 10**6)\nprint(os.stat('f').st_size)\n"
        "exit()\n"
    )
    assert ran.reason == ""
    assert ran.stdout == "from a thread\n['a', 'c', 'main.py', 'x.db']\n1000000\n"


ENDS = {
    "def f():\n    return 1 / 0\nf()\n": "ended with ZeroDivisionError: division by zero (main.py line 2)",
    "": "", "def f(:\n": "ended with SyntaxError: invalid syntax (main.py line 1)",
    "exit(3)": "ended with exit code 3", "import os\nos.abort()": "crashed with SIGABRT",
    "raise PermissionError('not yours')": "ended with PermissionError: not yours (main.py line 1)",
}  # fmt: skip


@pytest.mark.parametrize("code", cases(ENDS, next(iter(ENDS))))
def test_a_program_that_ends_by_itself_is_not_stopped(code: str) -> None:
    ran = run(code)
    assert (ran.stopped, ran.reason) == (False, ENDS[code])


# ---- limits


def test_kernel_limits_are_set_and_cannot_be_raised() -> None:
    names = ("CPU", "FSIZE", "NOFILE", "CORE", "AS")
    code = f"import resource\nprint([resource.getrlimit(getattr(resource, 'RLIMIT_' + n))[0] for n in {names}])\n"
    code += "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
    ran = run(code, limits=Limits(cpu=3, folder_mb=4, memory_mb=128))
    assert ran.stdout == f"{[3, 4 * 2**20, 64, 0, 128 * 2**20]}\n"
    assert ran.exit_code == 1


def test_an_endless_wait_is_stopped() -> None:
    ran = run("import time\ntime.sleep(1000)", limits=Limits(wall=0.2))
    assert (ran.reason, ran.stopped, ran.seconds >= 0.2) == ("stopped after 0.2 s", True, True)


@pytest.mark.parametrize("stream", cases(["stdout", "stderr"], "stdout"))
def test_endless_output_is_stopped(stream: str) -> None:
    ran = run(f"import sys\nwhile True: print('x' * 10_000, file=sys.{stream})", limits=Limits(output_kb=16))
    assert ran.reason == "stopped after it printed more than 16 kB"
    assert len(ran.stdout) + len(ran.stderr) == 16 * 1024


@pytest.mark.slow
def test_endless_loops_memory_and_threads_are_stopped() -> None:
    ran = run("while True: pass", limits=Limits(cpu=1))
    assert (ran.exit_code, ran.reason[:13], ran.stopped) == (None, "stopped after", True)
    ran = run("kept = []\nwhile True: kept.append(bytearray(10_000_000))", limits=Limits(memory_mb=128))
    assert (ran.reason, ran.stopped) == ("ran out of its 128 MB of memory", True)
    code = "import threading, time\nthreading.stack_size(65536)\n"
    ran = run(code + "while True: threading.Thread(target=time.sleep, args=(60,)).start()")
    assert ran.exit_code is None or "can't start new thread" in ran.reason


REMOVED = """
import os, time
kept = []
for i in range(9):
    kept.append(open(f"f{i}", "wb", 0))
    os.remove(f"f{i}")
    kept[i].write(b"x" * 1_000_000)
time.sleep(60)
"""


FILLS = {
    "many files": "import itertools\nfor i in itertools.count(): open(f'f{i}', 'wb').write(b'x' * 1_000_000)",
    "deep folders": "import os\nwhile True: os.mkdir('d'); os.chdir('d')",
    "removed files": REMOVED,
}


@pytest.mark.slow
@pytest.mark.parametrize("code", FILLS.values(), ids=FILLS)
def test_filling_the_disk_is_stopped(code: str) -> None:
    limits = Limits(folder_mb=4, files=50, wall=10.0)
    assert run(code, limits=limits).reason == "stopped after it wrote more than 4 MB or 50 files"
    assert run("open('one', 'wb').write(b'x' * 10_000_000)", limits=limits).exit_code != 0


# ---- fences


STARTS = (
    "import os\nif os.fork() == 0: os.setsid()", "import os\nwhile True: os.fork()",
    "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)",
    "import os\nos.execv('/bin/true', ['true'])", "import os\nos.kill(os.getppid(), 9)",
    "import os, signal\nos.kill(-1, signal.SIGTERM)",
    "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "import socket\nsocket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')",
)  # fmt: skip


@pytest.mark.parametrize("code", cases(STARTS, STARTS[0]))
def test_a_program_that_starts_or_signals_a_process_is_stopped(code: str) -> None:
    ran = run(code)
    assert (ran.exit_code, ran.stopped) == (None, True)
    assert ran.reason.startswith(FORBIDDEN)
    assert ran.reason.endswith("(main.py line 2)") or "subprocess" in code


SENDS = ("create_connection(PLACE)", "socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', PLACE)")


@pytest.mark.parametrize("code", cases(SENDS, SENDS[0]))
def test_the_network_cannot_be_reached(code: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        code = f"import socket\nPLACE = {listener.getsockname()}\nsocket.{code}"
        assert run(code).reason.startswith(FORBIDDEN)
        with pytest.raises(BlockingIOError):
            listener.accept()


WRITES = (
    "open(PATH, 'w').write('x')", "os.remove(PATH)", "os.truncate(PATH, 0)", "os.rename('main.py', PATH)",
    "os.open(PATH, os.O_RDONLY | os.O_TRUNC)", "os.link(PATH, 'link'); open('link', 'w')",
    "os.symlink(PATH, 'symlink'); open('symlink', 'w')", "os.mkdir(PATH + '.d')",
)  # fmt: skip


def test_no_file_outside_the_folder_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    before = file.stat()
    tries = "".join(f"try:\n    {write}\nexcept OSError as error:\n    refused.append(error)\n" for write in WRITES)
    code = f"import os\nPATH, refused = {str(file)!r}, []\nos.chmod(PATH, 0); os.utime(PATH, (1, 1))\n{tries}"
    ran = run(f"{code}print(len(refused))\nraise refused[0]")
    assert ran.stdout == f"{len(WRITES)}\n"
    assert ran.reason.startswith("ended with PermissionError")
    assert ran.stopped
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "content")]
    assert (file.stat().st_mode, file.stat().st_mtime) == (before.st_mode, before.st_mtime)


def test_files_and_environment_of_the_user_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a secret")
    (tmp_path / "secret").write_text("the secret")
    files = [str(tmp_path / "secret"), "/proc/self/environ", f"/proc/{os.getpid()}/environ"]
    code = f"""
import os
assert "secret" not in str(os.environ)
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


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_raw_system_calls_are_refused() -> None:
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
calls = {"mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "memfd_create": 319, "io_uring_setup": 425}
for name, number in calls.items():
    print(libc.syscall(number, 0, 0, 0, 0, 0))
with open("f", "wb") as file:
    print(libc.fallocate(file.fileno(), 0, ctypes.c_long(0), ctypes.c_long(1_000_000)), ctypes.get_errno())
"""
    assert run(code).stdout == "-1\n" * 6 + f"-1 {errno.ENOTSUP}\n"


def test_a_program_reads_the_files_that_are_named_readable_and_no_others(tmp_path: Path) -> None:
    for name in ("named", "other"):
        (tmp_path / name).write_text(name)

    def reads(name: str, mode: str = "r") -> ProgramResult:
        source = f"print(open({str(tmp_path / name)!r}, {mode!r}).read())"
        return asyncio.run(Sandbox().run({"main.py": source}, readable=[tmp_path / "named"]))

    assert reads("named").stdout == "named\n"
    assert [reads("other").stopped, reads("named", "r+").stopped] == [True, True]


def test_file_names_must_stay_in_the_folder() -> None:
    for name in ("../out.py", "/tmp/out.py", "", "a/../../b.py", "."):
        with refused("sandbox.invalid_file"):
            asyncio.run(Sandbox().run({"main.py": "", name: ""}))
    assert "could not be written" in asyncio.run(Sandbox().run({"main.py": "", "main.py/b.py": ""})).reason
    assert asyncio.run(Sandbox().run({"other.py": ""})).reason == "there is no file main.py to run"


# ---- without fences


def without_landlock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = folder / "fences.py"
    source = Path(fences.__file__).read_text()
    broken.write_text(source.replace('_checked(version, "Landlock")', 'raise OSError("no Landlock here")'))
    monkeypatch.setattr("practicum.tasks.sandbox.runner.FENCES", broken)


def test_without_a_fence_or_linux_no_code_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        for ask in (lambda: run("print(1)"), Sandbox().require):
            with refused("sandbox.unavailable"):
                ask()
    without_landlock(tmp_path, monkeypatch)
    for ask in (lambda: run("print(1)"), Sandbox().require):
        with refused("sandbox.unavailable"):
            ask()
    monkeypatch.setenv(UNFENCED, "yes")
    assert run("print(1)").stdout == "1\n"


@pytest.mark.slow
def test_unfenced_code_is_counted_and_its_children_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_landlock(tmp_path, monkeypatch)
    monkeypatch.setenv(UNFENCED, "yes")
    (tmp_path / "unfenced_agent.py").write_text("def agent(text, context):\n    return 'def f(): return 1'\n")
    (tmp_path / "t.jsonl").write_text('{"id": "a", "input": "Write f.", "tests": "assert f() == 1"}\n')
    done = run_command(["eval", "t.jsonl", "--agent", "unfenced_agent:agent", "--scorer", "tests", "--json"], tmp_path)
    assert done.json["counts"] == {"unfenced_programs": 1}
    assert f"{UNFENCED}=yes is set" in done.err
    assert done.json["score"] == 1.0
    source = Path(fences.__file__).read_text()
    (tmp_path / "fences.py").write_text(source.replace("            step()\n", '            raise OSError("none")\n'))
    child = int(run("import os, time\nchild = os.fork()\nif child: print(child)\nelse: time.sleep(1000)").stdout)
    wait_until(lambda: not alive(child), event="the end of the child")


@pytest.mark.slow
@asynchronous
async def test_a_cancelled_run_leaves_no_folder() -> None:
    task = asyncio.create_task(Sandbox(Limits(wall=60.0)).run({"main.py": "import time\ntime.sleep(60)"}))
    done, _ = await asyncio.wait([task], timeout=0.3)
    assert not done
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.slow
def test_the_package_imports_without_unix_modules() -> None:
    unix = ("fcntl", "grp", "pwd", "resource", "termios")
    names = ("tasks.scoring.registry", "tasks.scoring.parts", "tasks.formats")
    code = f"import sys\nsys.modules.update(dict.fromkeys({unix}))\nimport signal\ndel signal.SIGKILL, signal.SIGXCPU\n"
    code += "".join(f"import practicum.{name}\n" for name in names)
    subprocess.run([sys.executable, "-c", code], check=True)

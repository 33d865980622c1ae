"""Watches and ends a program that was started in a session of its own, with every process it started."""

from __future__ import annotations

import math
import os
import signal
import stat
import sys
from asyncio.subprocess import Process
from pathlib import Path


def close_pipes(process: Process) -> None:
    """Close the pipes to a process, although another process that it left behind may still hold them."""
    # asyncio has no public way to do this; an open transport warns when it is garbage-collected.
    process._transport.close()  # type: ignore[attr-defined]


def kill_group(group: int) -> None:
    """Kill all processes of a group, if any are left. On Windows, which has no groups, kill the program alone."""
    try:
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)  # which ends the process at once there
        else:
            os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # already gone; macOS raises PermissionError for that
        return


def count_threads(pid: int) -> int:
    """The number of threads of a process; 0 when it cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def disk_usage(folder: Path, max_files: int) -> tuple[float, int]:
    """Bytes on the disk and number of files and folders in a folder, counted up to `max_files` of them."""
    size, count, waiting = 0.0, 0, [str(folder)]
    while waiting and count <= max_files:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > max_files:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue  # the program has just removed it
        except OSError:  # the path is too long, or the program made it unreadable
            return math.inf, count
    return size, count


def deleted_file_bytes(pid: int, folder: Path) -> int:
    """Bytes on the disk of files in the folder that a process has deleted but still holds open or mapped."""
    sizes: dict[tuple[int, int], int] = {}
    try:
        device = folder.stat().st_dev
        with os.scandir(f"/proc/{pid}/fd") as handles:
            for handle in handles:
                file = handle.stat()
                if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                    sizes[file.st_dev, file.st_ino] = file.st_blocks * 512
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, _, _, _, inode, *name = line.split(maxsplit=5)
            if name and name[0].startswith(f"{folder}/") and name[0].endswith(" (deleted)"):
                key = device, int(inode)
                sizes[key] = max(sizes.get(key, 0), _mapped_bytes(pid, addresses))
    except OSError:  # the process has ended: what was read so far counts
        pass
    return sum(sizes.values())


def _mapped_bytes(pid: int, addresses: str) -> int:
    """Bytes on the disk of a mapped file; without the right to read that, the size of the mapping."""
    try:
        return os.stat(f"/proc/{pid}/map_files/{addresses}").st_blocks * 512
    except OSError:
        start, end = addresses.split("-")
        return int(end, 16) - int(start, 16)

"""Functions that watch a program: its threads, and the disk space that it uses."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path


def count_threads(pid: int) -> int:
    """Return the number of threads of a process; 0 if the number cannot be read."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def disk_usage(folder: Path, max_files: int) -> tuple[float, int]:
    """Return the disk usage (bytes) and the number of files and folders in a folder. Counting stops at
    the first file or folder beyond `max_files`."""
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
            continue  # removed by the program in the meantime
        except OSError:  # a path is too long, or the program made it unreadable: report infinite disk usage
            return math.inf, count
    return size, count


def deleted_file_bytes(pid: int, folder: Path) -> int:
    """Return the disk usage (bytes) of files in the folder that a process deleted but still holds open or mapped."""
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
    except OSError:  # the process has ended: return the sizes read so far
        pass
    return sum(sizes.values())


def _mapped_bytes(pid: int, addresses: str) -> int:
    """Return the disk usage (bytes) of a mapped file, or the size of the mapping if the disk usage is not readable."""
    try:
        return os.stat(f"/proc/{pid}/map_files/{addresses}").st_blocks * 512
    except OSError:
        start, end = addresses.split("-")
        return int(end, 16) - int(start, 16)

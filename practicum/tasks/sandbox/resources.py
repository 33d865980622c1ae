"""What a running program takes of the machine, as it is seen from outside: threads, and room on the disk."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path


def threads(pid: int) -> int:
    """How many threads a process has; 0 where that cannot be told."""
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:
        return 0


def on_disk(folder: Path, most: int) -> tuple[float, int]:
    """Bytes on the disk and count of files in a folder, as far as `most` of them."""
    size, count, waiting = 0.0, 0, [str(folder)]
    while waiting and count <= most:
        try:
            with os.scandir(waiting.pop()) as found:
                for item in found:
                    count += 1
                    if count > most:
                        break
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(item.path)
                    size += item.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is being worked in
        except OSError:  # a path longer than paths may be, or closed to us
            return math.inf, count
    return size, count


def removed_but_held(pid: int, folder: Path) -> int:
    """Bytes on the disk of files that a process has removed and still holds, open or mapped, as far as can be told."""
    sizes: dict[tuple[int, int], int] = {}
    try:
        device = folder.stat().st_dev
        with os.scandir(f"/proc/{pid}/fd") as handles:
            for handle in handles:
                file = handle.stat()
                if stat.S_ISREG(file.st_mode) and not file.st_nlink:
                    sizes[file.st_dev, file.st_ino] = file.st_blocks * 512
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, _, _, _, inode, *name = line.split(maxsplit=5)
            if name and name[0].startswith(f"{folder}/") and name[0].endswith(" (deleted)"):
                key = device, int(inode)
                sizes[key] = max(sizes.get(key, 0), _mapped(pid, where))
    except OSError:
        return sum(sizes.values())
    return sum(sizes.values())


def _mapped(pid: int, where: str) -> int:
    """Bytes on the disk of a mapped file; for those who may not ask, of what is mapped of it."""
    try:
        return os.stat(f"/proc/{pid}/map_files/{where}").st_blocks * 512
    except OSError:
        start, end = where.split("-")
        return int(end, 16) - int(start, 16)

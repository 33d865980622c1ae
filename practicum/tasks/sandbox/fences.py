"""Script that runs inside the sandbox: it sets up fences around its own process, then runs the generated program in the
same process.

`runner.py` starts the script with only the standard library. The fences are kernel features, need neither root nor a
package, and cannot be removed by the program: resource limits; a seccomp filter of the allowed system calls; Landlock
for the files that the program may read and write; and, if the user of the process may create namespaces, empty
namespaces for network and messages. All fences except the namespaces are required: if a required fence is missing, the
program is not run, unless the field `unfenced` of the job is true.
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import json
import os
import resource
import signal
import struct
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
MISSING = 120
"""Exit code if a required fence is missing and the program was not run."""

ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine type → (column of this type in the tables below, number of this type in the kernel (AUDIT_ARCH))."""

# Format: name:number on x86_64:number on aarch64; the number is empty if the machine type lacks the call. These calls
# compute, read and write files, and use threads. Not listed: calls that refer to other processes, mounts, keys, clocks,
# modules, or memory that outlives the process.
ALLOWED = """
read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 preadv:295:69 pwritev:296:70
close:3:57 close_range:436:436 lseek:8:62 stat:4: fstat:5:80 lstat:6: newfstatat:262:79 statx:332:291 statfs:137:43
fstatfs:138:44 access:21: faccessat:269:48 faccessat2:439:439 readlink:89: readlinkat:267:78 getdents:78:
getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 mkdir:83: mkdirat:258:34 rmdir:84: unlink:87: unlinkat:263:35
rename:82: renameat:264:38 renameat2:316:276 link:86: linkat:265:37 symlink:88: symlinkat:266:36 ftruncate:77:46
fsync:74:82 fdatasync:75:83 flock:73:32 dup:32:23 dup2:33: dup3:292:24 pipe:22: pipe2:293:59
sendfile:40:71 copy_file_range:326:285 umask:95:166 fadvise64:221:223 mmap:9:222 munmap:11:215 mremap:25:216
mprotect:10:226 brk:12:214 madvise:28:233 mincore:27:232 msync:26:227 clock_gettime:228:113 clock_getres:229:114
clock_nanosleep:230:115 nanosleep:35:101 gettimeofday:96:169 time:201: times:100:153 getitimer:36:102 setitimer:38:103
alarm:37: futex:202:98 set_robust_list:273:99 get_robust_list:274:100 rseq:334:293 set_tid_address:218:96
sched_yield:24:124 sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120
sched_get_priority_max:146:125 sched_get_priority_min:147:126 gettid:186:178 getpid:39:172 getppid:110:173 exit:60:93
exit_group:231:94 membarrier:324:283 getcpu:309:168 arch_prctl:158: rt_sigaction:13:134 rt_sigprocmask:14:135
rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132 pause:34:
restart_syscall:219:128 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getresuid:118:148
getresgid:120:150 getgroups:115:158 getpgid:121:155 getpgrp:111: getsid:124:156 uname:63:160 sysinfo:99:179
getrlimit:97:163 getrusage:98:165 getpriority:140:141 getrandom:318:278 poll:7: ppoll:271:73 select:23: pselect6:270:72
epoll_create:213: epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232: epoll_pwait:281:22 epoll_pwait2:441:441
eventfd:284: eventfd2:290:19 sendto:44:206 recvfrom:45:207 shutdown:48:210 getsockopt:55:209 setsockopt:54:208
getsockname:51:204 getpeername:52:205 wait4:61:260 waitid:247:95
"""
# Landlock does not restrict these calls, so the filter does not execute them. But the filter reports success to the
# program, because a program that copies a file also sets the mode of the copy.
PRETENDED = """
chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 utime:132: utimes:235: utimensat:280:88 futimesat:261:
"""
# Landlock does not restrict file attributes either, and fallocate takes disk space faster than `runner.py` checks the
# disk space. These calls fail as on a file system that does not support them (for fallocate, the C library then writes
# zeros).
ABSENT = """
fallocate:285:47
setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 listxattr:194:11
llistxattr:195:12 flistxattr:196:13 removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16
"""
# Each of these calls stops the program, because the sandbox must prevent such calls.
STOPPED = """
socket:41:198 connect:42:203 bind:49:200 listen:50:201 accept:43:202 accept4:288:242 fork:57: vfork:58: execve:59:221
execveat:322:281 ptrace:101:117 tkill:200:130
"""
# Each of these calls is only allowed with some arguments, see `_argument_filter`.
BY_ARGUMENTS = """
open:2: openat:257:56 clone:56:220 kill:62:129 tgkill:234:131 socketpair:53:199 prlimit64:302:261 fcntl:72:25
ioctl:16:29
"""

KILL, TRAP, ERRNO, ALLOW = 0x80000000, 0x00030000, 0x00050000, 0x7FFF0000
EPERM, ENOSYS, ENOTSUP = 1, 38, 95
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
"""Instructions of classic BPF: load a word of the call, jump if equal, jump if at least, mask, return."""

READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE, IOCTL_DEV = 1 << 2, 1 << 3, 1 << 1, 1 << 14, 1 << 15
OWN_FOLDER = sum(1 << bit for bit in (1, 2, 3, 4, 5, 7, 8, 10, 12))
"""Rights in the program's folder: write, read, list, remove and make files, folders, pipes and links, not devices."""

libc = ctypes.CDLL(None, use_errno=True)


def main(job: Job) -> None:
    """Set up the fences, report missing fences on the status pipe, and run the program."""
    os.chdir(job["folder"])
    status = job["status"]
    missing = raise_fences(job)
    os.write(status, json.dumps({"missing": missing, "at": time.monotonic()}).encode())
    os.close(status)
    if missing and not job["unfenced"]:
        os._exit(MISSING)
    run_program(job)


def raise_fences(job: Job) -> dict[str, str]:
    """Set up all fences. Return each required fence that is missing, with the reason."""
    missing: dict[str, str] = {}
    steps: dict[str, Callable[[], None]] = {
        "limits": lambda: set_limits(job),
        "namespaces": enter_namespaces,
        "privileges": lambda: drop_privileges(job["parent"]),
        "files": lambda: restrict_files(job["folder"], job["readable"]),
        "network and processes": filter_system_calls,
    }
    for name, step in steps.items():
        try:
            if sys.platform != "linux" and name != "limits":
                raise OSError("only available on Linux")
            step()
        except (OSError, ValueError, AttributeError) as error:
            if name != "namespaces":  # namespaces only add to the protection by the other fences
                missing[name] = str(error)
    return missing


def set_limits(job: Job) -> None:
    """Limit CPU time, memory, file size and the number of open files; disable core dumps."""
    cpu = int(job["cpu"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (job["folder_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)


def enter_namespaces() -> None:
    """Enter empty namespaces for network (without loopback) and message queues. This needs a user namespace."""
    new_user, new_net, new_ipc = 0x10000000, 0x40000000, 0x08000000
    _checked(libc.unshare(new_user | new_net | new_ipc), "unshare")


def drop_privileges(parent: int) -> None:
    """Drop all capabilities permanently, even as root, and make the kernel kill this process if its parent ends."""
    set_death_signal, no_new_privileges = 1, 38
    _checked(libc.prctl(set_death_signal, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(MISSING)
    _checked(libc.prctl(no_new_privileges, 1, 0, 0, 0), "no_new_privs")
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(libc.capset(header, nothing), "capset")


def restrict_files(folder: str, readable: list[str]) -> None:
    """Allow only these kinds of file access: reading and writing in the program's folder and in /dev/null, and reading
    the files in `readable` and the paths that Python needs (landlock(7))."""
    create, add, restrict = 444, 445, 446
    version = libc.syscall(create, None, ctypes.c_size_t(0), 1)
    _checked(version, "Landlock")
    supported = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    network = scopes = 3  # forbid binding and connecting, and signals and abstract sockets to other processes
    sizes = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
    attributes = struct.pack("=QQQ", supported, network, scopes)[: sizes.get(version, 24)]
    rules = libc.syscall(create, attributes, ctypes.c_size_t(len(attributes)), 0)
    _checked(rules, "Landlock")
    own = (OWN_FOLDER | 1 << 13 | TRUNCATE) & supported  # bit 13: move files between folders in `folder`
    allowed = {folder: own, "/dev/null": (READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) & supported}
    allowed |= dict.fromkeys(readable_paths(), READ_FILE | READ_DIR) | dict.fromkeys(readable, READ_FILE)
    for path, rights in allowed.items():
        if os.path.exists(path):
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = rights if os.path.isdir(path) else rights & ~READ_DIR
            _checked(libc.syscall(add, rules, 1, struct.pack("=Qi", rights, handle), 0), f"Landlock rule of {path}")
            os.close(handle)
    _checked(libc.syscall(restrict, rules, 0), "Landlock")
    os.close(rules)


def readable_paths() -> set[str]:
    """Return the paths that Python needs: its library, system libraries, random numbers, time zones."""
    system = "/lib /lib64 /usr/lib /usr/lib64 /usr/share/zoneinfo /etc/localtime /etc/ld.so.cache"
    devices = "/dev/urandom /dev/random /dev/zero"
    return {os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib"), *system.split(), *devices.split()}


def filter_system_calls() -> None:
    """Install the filter of system calls (seccomp(2)), by the tables above. Calls in STOPPED end the program. Calls in
    no table fail as unimplemented."""
    machine = os.uname().machine
    if machine not in ARCHES:
        raise OSError(f"no list of system calls for the machine type {machine}")
    column, arch = ARCHES[machine]
    code = _filter_program(column, arch, os.getpid())
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    set_seccomp, filter_mode = 22, 2
    _checked(libc.prctl(set_seccomp, filter_mode, program, 0, 0), "seccomp")


BpfInstruction = tuple[int, int, int, int]


def _filter_program(column: int, arch: int, pid: int) -> list[BpfInstruction]:
    number, machine, other_abi = 0, 4, 0x40000000
    code: list[BpfInstruction] = [(LOAD, 0, 0, machine), (JUMP_EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL)]
    code += [(LOAD, 0, 0, number), (JUMP_AT_LEAST, 0, 1, other_abi), (RETURN, 0, 0, KILL)]
    tables = ((ALLOWED, ALLOW), (PRETENDED, ERRNO), (ABSENT, ERRNO | ENOTSUP), (STOPPED, TRAP))
    for table, verdict in tables:
        for call in _numbers(table, column).values():
            code += [(JUMP_EQUAL, 0, 1, call), (RETURN, 0, 0, verdict)]
    for name, call in _numbers(BY_ARGUMENTS, column).items():
        by_arguments = _argument_filter(name, pid)
        code += [(JUMP_EQUAL, 0, len(by_arguments), call), *by_arguments]
    return [*code, (RETURN, 0, 0, ERRNO | ENOSYS)]


def _argument_filter(name: str, pid: int) -> list[BpfInstruction]:
    """Return the instructions that decide, by the arguments of a call, whether the call is allowed. Each path through
    the instructions ends in a verdict."""
    refused, a_thread, truncate, access = ERRNO | EPERM, 0x10000, 0x200, 3
    match name:
        case "clone":
            return [_argument(0), (AND, 0, 0, a_thread), *_only(a_thread, TRAP)]
        case "kill" | "tgkill":
            return [_argument(0), *_only(pid, TRAP)]
        case "prlimit64":
            return [_argument(0), (JUMP_EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW), *_only(pid, refused)]
        case "socketpair":  # two connected ends within the process, which asyncio needs
            unix, stream = 1, 1
            first = [_argument(0), (JUMP_EQUAL, 1, 0, unix), (RETURN, 0, 0, TRAP)]
            return [*first, _argument(1), (AND, 0, 0, 0xF), *_only(stream, TRAP)]
        case "open" | "openat":  # refuse truncating while opening to read, which the oldest Landlock overlooks
            flags = _argument(1 if name == "open" else 2)
            return [flags, (AND, 0, 0, truncate | access), *_all_except((truncate,), refused)]
        case "fcntl":  # refuse commands that make an open file send signals
            return [_argument(1), *_all_except((8, 10, 15), refused)]
        case _:  # ioctl: refuse such commands too, and the command that writes the input of a terminal
            return [_argument(1), *_all_except((0x8901, 0x8902, 0x5412), refused)]


def _argument(index: int) -> BpfInstruction:
    """Return an instruction that loads the lower half of an argument of the call. Both machine types store this half
    first."""
    return (LOAD, 0, 0, 16 + 8 * index)


def _only(value: int, otherwise: int) -> list[BpfInstruction]:
    return [(JUMP_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, otherwise)]


def _all_except(values: tuple[int, ...], verdict: int) -> list[BpfInstruction]:
    refused = [step for value in values for step in ((JUMP_EQUAL, 0, 1, value), (RETURN, 0, 0, verdict))]
    return [*refused, (RETURN, 0, 0, ALLOW)]


def _numbers(table: str, column: int) -> dict[str, int]:
    rows = (row.split(":") for row in table.split())
    return {name: int(numbers[column]) for name, *numbers in rows if numbers[column]}


def _checked(result: int, operation: str) -> None:
    if result < 0:
        raise OSError(f"{operation}: {os.strerror(ctypes.get_errno())}")


def run_program(job: Job) -> None:
    """Run the entry file as `__main__`. Tracebacks show only the program's lines."""
    faulthandler.register(signal.SIGSYS, chain=True)  # prints the line at which a fence stopped the program
    # `site`, which defines exit() and quit(), is not imported, so define both functions here.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    entry = job["entry"]
    sys.path.insert(0, job["folder"])
    sys.argv = sys.orig_argv = [entry, *job["args"]]
    sys.excepthook = _print_exception
    module = types.ModuleType("__main__")
    module.__dict__["__file__"] = entry
    sys.modules["__main__"] = module
    with open(entry, encoding="utf-8") as file:
        source = file.read()
    exec(compile(source, entry, "exec", dont_inherit=True), module.__dict__)


def _print_exception(kind: type[BaseException], error: BaseException, frames: types.TracebackType | None) -> None:
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    traceback.print_exception(kind, error, frames)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

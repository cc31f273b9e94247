"""What runs in the process that asks for the GPUs, apart from the agent (see `probe`).

It is reached by a fork of a process without threads, or as a fresh interpreter; either way nothing
it does, a crash inside a native library included, can hurt the process that waits for it.

The NVML report is text, one record a line, fields parted by tabs:

    gpu     INDEX  BYTES|-  MAJOR.MINOR|-  UUID|-  NAME|-
    lost    INDEX  REASON       this one device could not be asked
    absent  REASON              there is no NVML on this host
    failed  REASON              there is one, and it refused
    end                         the report is whole
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

NVML_LIBRARY = "libnvidia-ml.so.1"

MAX_ASKED = 1024
"""The most devices asked for, so that a nonsense count ends.  No host has a tenth of it."""

EXIT_FAILED = 70
EXIT_NOT_RUN = 127
"""As in a shell: the command could not be started."""

_PR_SET_PDEATHSIG = 1


def one_line(text: str, limit: int = 200) -> str:
    """`text` as it may stand in a log line: nothing unprintable, at most `limit` characters."""
    return "".join(char if char.isprintable() else "?" for char in text[:limit]).strip()


def run(
    work: str, arguments: Sequence[str], environ: Mapping[str, str], parent: int, writer: int
) -> NoReturn:
    """Do `work` ("nvml" or "execute"), write what it gives to `writer`, and end this process.

    Args:
        work: "nvml" to report the devices; "execute" to become the program `arguments[0]`.
        arguments: for "execute", the whole argv; else empty.
        environ: the program's environment.
        parent: the process that waits; this one does not outlive it.
        writer: the descriptor of the pipe to it.
    """
    status = EXIT_FAILED
    try:
        writer = _set_apart(parent, writer)
        if work == "execute":
            status = EXIT_NOT_RUN
            _execute(arguments, environ, writer)
        _write(writer, "".join(f"{line}\n" for line in nvml_report()))
        status = 0
    except BaseException as error:
        # Above this frame lies the waiting process's own code, which must not run twice.
        said = one_line(str(error) or repr(error))
        _write(writer, f"{said}\n" if work == "execute" else f"failed\t{said}\n")
    finally:
        os._exit(status)


def _set_apart(parent: int, writer: int) -> int:
    """Undo what came along with the fork; return the pipe under a number above the standard ones.

    Signals are still blocked when this begins, so that no handler of the parent's runs here.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    _end_with(parent)
    import fcntl
    import resource

    # A core of a fork would hold the parent's memory, salts included.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    writer = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    return writer


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends; the wish survives an exec."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(EXIT_FAILED)


def _write(writer: int, text: str) -> None:
    rest = text.encode("utf-8", "replace")
    while rest:
        rest = rest[os.write(writer, rest) :]


def _execute(arguments: Sequence[str], environ: Mapping[str, str], writer: int) -> NoReturn:
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    os.execve(arguments[0], list(arguments), dict(environ))


# -- NVML -------------------------------------------------------------------------------------


def nvml_report() -> Iterator[str]:
    """The lines that say what NVML knows of this host's devices (see the module's text)."""
    import ctypes

    try:
        # Before pynvml, which takes 25 ms to import: a host without NVML is to know it at once.
        ctypes.CDLL(NVML_LIBRARY)
    except OSError as error:
        text = str(error)
        # The same text about another file is a broken installation.
        if text.startswith(f"{NVML_LIBRARY}:") and "No such file" in text:
            yield f"absent\t{NVML_LIBRARY} is not installed"
        else:
            yield f"failed\t{one_line(text)}"
        return
    try:
        import pynvml
    except ImportError:
        yield "absent\tthe Python package nvidia-ml-py is not installed"
        return
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        yield f"failed\t{_reason(error)}"
        return
    for index in range(min(count, MAX_ASKED)):
        yield _device(pynvml, index)
    yield "end"


def _device(nvml: Any, index: int) -> str:
    """One device's line.  Only NotSupported means "not known"; any other error loses the device."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = _text(nvml.nvmlDeviceGetName, handle)
        memory = _known(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
        capability = _known(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    except nvml.NVMLError as error:
        return f"lost\t{index}\t{_reason(error)}"
    total = "-" if memory is None else str(memory.total)
    architecture = "-" if capability is None else f"{capability[0]}.{capability[1]}"
    return f"gpu\t{index}\t{total}\t{architecture}\t{_uuid(nvml, handle)}\t{name}"


def _known(nvml: Any, ask: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return ask(handle)
    except nvml.NVMLError_NotSupported:
        return None


def _text(ask: Callable[[Any], str | bytes], handle: Any) -> str:
    """What `ask` says, or "-" where that is nothing or is not UTF-8."""
    try:
        said = ask(handle)
        # Older bindings give bytes.
        return one_line(said if isinstance(said, str) else said.decode()) or "-"
    except UnicodeDecodeError:
        return "-"


def _uuid(nvml: Any, handle: Any) -> str:
    """Only CUDA_VISIBLE_DEVICES may need it, so a device without one is as good as any."""
    try:
        return _text(nvml.nvmlDeviceGetUUID, handle)
    except nvml.NVMLError:
        return "-"


def _reason(error: Any) -> str:
    """pynvml asks the library for the text of a code it does not know, and that may fail too."""
    try:
        return one_line(str(error))
    except Exception:
        return f"NVML error {error.value}"

"""Measure this machine, so that plans for it rest on its own speeds: products, memory, processes, disk."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from subprocess import PIPE
from typing import TYPE_CHECKING, TypeVar

from galley.base import MIB, GalleyError, Observer, SilentObserver
from galley.base.cache import cache_folder
from galley.plan import calibration, machine
from galley.plan.calibration import Calibration, Disk, Product, Reduction

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_GIGA, _TERA = 1e9, 1e12
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_POOL = 4096 * 4096  # numbers that weights are taken from in turn, too many for a core's caches
_WORKER = "import sys; from galley.calibrate import reduce_worker; reduce_worker(*sys.argv[1:])"
_PROCESSES = 2
_BUSY_CORES = 0.3


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Args:
        tokens: rows of the left matrix.
        widths: inner and outer size of the products, as they are in models.
        lap_seconds: how long to repeat one product.
        products_seconds: limit for all products; larger ones are left out when it is reached.
        copy_bytes: size of the memory that is copied.
        reduce_bytes: sizes of the tensors that processes add up.
        reduce_seconds: limit for that, with starting the processes.
        disk_bytes: size of the file that is written and read.
    """

    tokens: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    lap_seconds: float
    products_seconds: float
    copy_bytes: int
    reduce_bytes: tuple[int, ...]
    reduce_seconds: float
    disk_bytes: int


FULL = Effort(
    tokens=(64, 128, 256, 512, 1024),
    widths=((576, 576), (576, 1536), (1536, 576), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)),
    lap_seconds=0.12,
    products_seconds=16.0,
    copy_bytes=256 * MIB,
    reduce_bytes=(4096, 65_536, MIB, 4 * MIB, 16 * MIB, 64 * MIB),
    reduce_seconds=12.0,
    disk_bytes=256 * MIB,
)
QUICK = Effort(
    tokens=(64, 512),
    widths=((576, 576), (576, 1536), (2048, 2048)),
    lap_seconds=0.05,
    products_seconds=1.5,
    copy_bytes=64 * MIB,
    reduce_bytes=(4096, MIB, 16 * MIB),
    reduce_seconds=5.0,
    disk_bytes=32 * MIB,
)
_ACCELERATOR_TOKENS = 16  # an accelerator is fed so many times more at once


def calibrate(*, quick: bool = False, observer: Observer | None = None) -> Calibration:
    """Measure this machine and keep the figures for later plans.

    What cannot be measured is noted and left out.

    Args:
        quick: few shapes and sizes, in seconds instead of half a minute.
        observer: told about progress.

    Raises:
        GalleyError: `package-missing` without torch, `disk-full` when the figures cannot be kept.
    """
    watcher, effort, started = observer or SilentObserver(), QUICK if quick else FULL, time.perf_counter()
    notes: list[str] = []

    def note(message: str) -> None:
        notes.append(message)
        watcher.note("fallback", message)

    watcher.phase("start")
    device = _device()
    _look_around(note)
    with _threads(machine.usable_cores()):
        products = _products(device, effort, watcher, note)
        watcher.phase("memory")
        memory_gbps = _memory(device, effort.copy_bytes)
    watcher.phase("processes")
    reduction = _attempt(lambda: _reduction(effort), "processes of this machine exchange nothing", note)
    watcher.phase("disk")
    disk = _attempt(lambda: _disk(cache_folder(), effort.disk_bytes), "the disk was not measured", note)
    made = Calibration(
        fingerprint=calibration.fingerprint(),
        device=device,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - started, 1),
        quick=quick,
        products=products,
        memory_gbps=memory_gbps,
        reduction=reduction,
        disk=disk,
        notes=tuple(notes),
    )
    try:
        calibration.save(made)
    except OSError as error:
        watcher.note("cache-unavailable", f"the figures are not kept for later plans: {error}")
    return made


def _device() -> str:
    """Where a training would run, as torch calls it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        hint = "pip install 'galley-train[train]'"
        raise GalleyError("package-missing", "measuring needs torch", hint=hint) from error
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator.type if accelerator is not None else "cpu"


def _look_around(note: Callable[[str], None]) -> None:
    """Note when other programs compete for the cores that are measured."""
    import psutil

    all_cores = psutil.cpu_count() or 1
    busy = psutil.cpu_percent(interval=0.3) / 100 * all_cores
    cores = machine.usable_cores()
    if all_cores - busy < cores - _BUSY_CORES:
        note(f"other programs keep {busy:.1f} of {all_cores} cores busy, so the figures of {cores} come out too low")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute on so many threads, as a training does."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _attempt(measure: Callable[[], T], failure: str, note: Callable[[str], None]) -> T | None:
    """What was measured, or a note why not."""
    try:
        return measure()
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()
        note(f"{failure}: {reason[-1] if reason else type(error).__name__}")
        return None


def _products(device: str, effort: Effort, watcher: Observer, note: Callable[[str], None]) -> tuple[Product, ...]:
    """Speeds of all shapes in all precisions that the device multiplies, the small ones first."""
    precisions = ("fp32", "bf16") if device == "cpu" else ("fp32", "bf16", "fp16")
    many = 1 if device == "cpu" else _ACCELERATOR_TOKENS
    shapes = [(many * tokens, inner, outer) for tokens in effort.tokens for inner, outer in effort.widths]
    shapes.sort(key=math.prod)
    watcher.phase("products", total=len(precisions) * len(shapes), seconds=effort.products_seconds)
    found: list[Product] = []
    for precision in precisions:
        # each has the same time, whatever the one before needed
        stop = time.perf_counter() + effort.products_seconds / len(precisions)
        pool, last = _pool(device, precision, max(tokens * inner for tokens, inner, _ in shapes)), 0.0
        for number, (tokens, inner, outer) in enumerate(shapes):
            flops = 2 * tokens * inner * outer
            if last and time.perf_counter() + 3 * flops / last > stop:
                note(f"{len(shapes) - number} larger products in {precision} were left out: they take too long here")
                break
            last = flops / _lap(pool, tokens, inner, outer, effort.lap_seconds)
            found.append(Product(precision=precision, tokens=tokens, inner=inner, outer=outer, tflops=last / _TERA))
            watcher.advance()
    return tuple(found)


def _pool(device: str, precision: str, least: int) -> torch.Tensor:
    """Numbers to multiply, at least so many."""
    import torch

    return torch.randn(max(least, _POOL), device=device).to(getattr(torch, _DTYPES[precision]))


def _lap(pool: torch.Tensor, tokens: int, inner: int, outer: int, seconds: float) -> float:
    """Seconds that one product takes, when every product has other weights, as in a model of many layers."""
    import torch

    x_TI = pool[: tokens * inner].view(tokens, inner)
    size = inner * outer
    weights = cycle([pool[start : start + size].view(outer, inner) for start in range(0, _POOL - size + 1, size)])
    times: list[float] = []
    with torch.inference_mode():
        torch.nn.functional.linear(x_TI, next(weights))  # starts threads and loads kernels
        _finish(pool)
        stop = time.perf_counter() + seconds
        while len(times) < 2 or time.perf_counter() < stop:
            turn = list(islice(weights, _calls(times, seconds)))
            started = time.perf_counter()
            for w_OI in turn:
                torch.nn.functional.linear(x_TI, w_OI)
            _finish(pool)
            times.append((time.perf_counter() - started) / len(turn))
    return min(times[1:])  # what disturbs makes a turn slower, never faster


def _calls(times: Sequence[float], seconds: float) -> int:
    """Products between two looks at the clock: one at first, then as many as fit into a quarter of the time."""
    return max(1, int(seconds / 4 / times[-1])) if times else 1


def _finish(tensor: torch.Tensor) -> None:
    """Wait for an accelerator, which computes while Python goes on."""
    if tensor.device.type != "cpu":
        import torch

        torch.accelerator.synchronize()


def _memory(device: str, size: int) -> float:
    """GB/s of copying, where each byte is read once and written once."""
    import torch

    if device == "cpu":
        size = min(size, machine.available_memory() // 8)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(6):
        started = time.perf_counter()
        target.copy_(source)
        _finish(target)
        times.append(time.perf_counter() - started)
    return 2 * size / min(times[1:]) / _GIGA  # the first one also gets the memory from the system


def _reduction(effort: Effort) -> Reduction:
    """Start processes that add up tensors, and read what the first one measured.

    Raises:
        OSError: when they cannot start.
        RuntimeError: when they fail or hang.
    """
    threads = max(1, machine.usable_cores() // _PROCESSES)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    environment = {"GLOO_SOCKET_IFNAME": loopback} if os.name == "posix" else {}
    environment |= os.environ | {"OMP_NUM_THREADS": str(threads)}
    stop = time.monotonic() + effort.reduce_seconds
    with ExitStack() as ending:
        store = Path(ending.enter_context(tempfile.TemporaryDirectory())) / "store"
        words = [sys.executable, "-c", _WORKER, str(store), ",".join(map(str, effort.reduce_bytes))]
        workers = []
        for rank in range(_PROCESSES):
            worker = subprocess.Popen([*words, str(rank)], stdout=PIPE, stderr=PIPE, text=True, env=environment)
            ending.enter_context(worker)
            ending.callback(worker.kill)
            workers.append(worker)
        try:
            ends = [worker.communicate(timeout=max(0.1, stop - time.monotonic())) for worker in workers]
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"they did not finish in {effort.reduce_seconds:g} s") from error
    for worker, (_, errors) in zip(workers, ends, strict=True):
        if worker.returncode != 0:
            raise RuntimeError(errors.strip() or f"a process ended with code {worker.returncode}")
    measured = {int(size): seconds for size, seconds in json.loads(ends[0][0]).items()}
    latency, speed = calibration.line(measured.items())
    return Reduction(
        backend="gloo",
        processes=_PROCESSES,
        latency_seconds=latency,
        gbps=speed / _GIGA,
        seconds_by_bytes=measured,
    )


def reduce_worker(store: str, sizes: str, rank: str) -> None:
    """One of the processes: prints the seconds of each size as JSON when it is the first.

    Args:
        store: file through which the processes find each other.
        sizes: bytes of the tensors, separated by commas.
        rank: number of the process.
    """
    import torch
    import torch.distributed as dist

    limit = timedelta(seconds=FULL.reduce_seconds)
    meeting = dist.FileStore(store, _PROCESSES)  # type: ignore[attr-defined]  # documented, but not in __all__
    dist.init_process_group("gloo", store=meeting, rank=int(rank), world_size=_PROCESSES, timeout=limit)
    measured = {}
    for size in map(int, sizes.split(",")):
        tensor = torch.ones(size // 4)
        times = []
        for _ in range(5 if size > MIB else 20):
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - started)
        measured[size] = median(times[1:])
    dist.destroy_process_group()
    if rank == "0":
        print(json.dumps(measured))  # noqa: T201


def _disk(folder: Path, size: int) -> Disk:
    """Speed of the disk under a folder.

    Raises:
        OSError: when it is full or cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    block = os.urandom(4 * MIB)  # a disk that compresses gains nothing
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        started = time.perf_counter()
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
        written = time.perf_counter() - started
        if sys.platform == "linux":  # else the file is read from memory
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        buffer = bytearray(len(block))
        started = time.perf_counter()
        while file.readinto(buffer):
            pass
        read = time.perf_counter() - started
        waits = []
        for _ in range(5):
            started = time.perf_counter()
            file.write(block[:4096])
            os.fsync(file.fileno())
            waits.append(time.perf_counter() - started)
    return Disk(write_gbps=size / written / _GIGA, read_gbps=size / read / _GIGA, sync_seconds=median(waits))

"""`galley calibrate`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from galley.cli.verb import Verb, emit, progress_arguments, table, watching

if TYPE_CHECKING:
    from galley.plan.calibration import Calibration


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a few seconds: fewer shapes and sizes")
    progress_arguments(parser)


def _run(args: Namespace) -> int:
    from galley.calibrate import calibrate

    with watching(args) as observer:
        made = calibrate(quick=args.quick, observer=observer)
    emit(args, made.model_dump(mode="json"), lambda: _text(made))
    return 0


def _text(made: Calibration) -> str:
    from galley.plan.calibration import location

    rows = []
    for precision in dict.fromkeys(product.precision for product in made.products):
        speeds = [product.tflops for product in made.products if product.precision == precision]
        span = f"{min(speeds):.3g} to {max(speeds):.3g} TFLOP/s in {len(speeds)} shapes"
        rows.append((f"products in {precision}", span))
    rows.append(("copying memory", f"{made.memory_gbps:.3g} GB/s"))
    if made.reduction is not None:
        latency = f"{1e3 * made.reduction.latency_seconds:.2g} ms, then {made.reduction.gbps:.3g} GB/s"
        rows.append((f"all-reduce of {made.reduction.processes} processes", latency))
    if made.disk is not None:
        speeds_of_disk = f"written at {made.disk.write_gbps:.3g} GB/s, read at {made.disk.read_gbps:.3g} GB/s"
        rows.append(("disk", f"{speeds_of_disk}, {1e3 * made.disk.sync_seconds:.2g} ms to be sure"))
    rows.append(("measured on", f"{made.fingerprint.cpu}, {made.device}, in {made.seconds:.0f} s"))
    return f"{table(('what', 'figure'), rows)}\n\nkept in {location(made.fingerprint)}"


VERB = Verb(
    help="measure this machine, so that plans for it rest on its own speeds",
    group="prepare",
    arguments=_arguments,
    run=_run,
    examples=("galley calibrate", "galley calibrate --quick --json"),
)

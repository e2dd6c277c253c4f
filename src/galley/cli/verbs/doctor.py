"""`galley doctor`."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galley.base import format_bytes
from galley.cli.verb import Verb, emit, json_argument, table

if TYPE_CHECKING:
    from galley.base.diagnosis import Package
    from galley.plan import Hardware


def _arguments(parser: ArgumentParser) -> None:
    json_argument(parser)
    parser.add_argument("--fast", action="store_true", help="skip what needs torch to be imported")


def _run(args: Namespace) -> int:
    from galley.base.diagnosis import environment, packages
    from galley.plan import detect

    hardware, optional = detect(), packages()
    torch = None if args.fast or optional[0].version is None else _torch_facts()
    facts = {
        "python": environment()["python"],
        "hardware": hardware.model_dump(),
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "torch": torch,
        "packages": [asdict(package) for package in optional],
    }
    emit(args, facts, lambda: _text(facts, hardware, optional))
    return 0


def _torch_facts() -> dict[str, Any]:
    """What torch sees, and how fast the processor multiplies."""
    import torch

    from galley.base.diagnosis import matmul_speed

    return {
        "accelerators": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "mps": torch.backends.mps.is_available(),
        "threads": torch.get_num_threads(),
        "bf16_flops": matmul_speed("bfloat16"),
        "fp32_flops": matmul_speed("float32"),
    }


def _text(facts: dict[str, Any], hardware: Hardware, optional: list[Package]) -> str:
    rows = [
        ("python", facts["python"]),
        ("processor", f"{hardware.cores} cores, {', '.join(hardware.features) or 'no instructions for bf16'}"),
        ("device", f"{hardware.name}, {format_bytes(hardware.memory_bytes)} of memory may be used"),
        ("disk", f"{format_bytes(facts['disk_free_bytes'])} free here"),
    ]
    torch = facts["torch"]
    if torch is not None:
        rows.append(("bf16", _bf16_verdict(torch["bf16_flops"], torch["fp32_flops"])))
        seen = torch["accelerators"] or (["mps"] if torch["mps"] else [])
        rows.append(("accelerator", ", ".join(seen) if seen else "none: training runs on the processor"))
    lines = [table(("what", "found"), rows), ""]
    lines.append(table(("package", "version", "for"), [(p.name, p.version or "-", p.enables) for p in optional]))
    missing = sorted({package.extra for package in optional if package.version is None})
    if missing:
        lines += ["", f"to install what is missing: pip install 'galley-train[{','.join(missing)}]'"]
    return "\n".join(lines)


def _bf16_verdict(bf16: float, fp32: float) -> str:
    speeds = f"{bf16 / 1e9:,.0f} GFLOP/s in bf16, {fp32 / 1e9:,.0f} in fp32"
    return f"fast: {speeds}" if bf16 > fp32 else f"slow, fp32 is used: {speeds}"


VERB = Verb(
    help="check the installation, and measure what this machine is good at",
    group="prepare",
    arguments=_arguments,
    run=_run,
)

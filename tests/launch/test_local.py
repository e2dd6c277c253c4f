"""What is said of a job whose processes ended badly."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.api import RunProcsResult
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from galley.base import Exit, GalleyError
from galley.launch.local import _exit_code

pytestmark = pytest.mark.unit


def ended(*codes: int) -> RunProcsResult:
    """Processes that were seen to end one after the other; those with 0 did well."""
    failures = {}
    for rank, code in enumerate(codes):
        if code:
            failures[rank] = ProcessFailure(rank, 1000 + rank, code, "")
            failures[rank].timestamp = 100 + rank
    return RunProcsResult(failures=failures)


def test_the_killed_process_is_named_although_another_was_seen_to_fail_first(tmp_path: Path) -> None:
    with pytest.raises(GalleyError) as caught:
        _exit_code(ended(1, -9, 0), tmp_path)
    assert caught.value.code == "process-failed"
    assert "process 1 was killed by signal 9" in caught.value.message


def test_the_first_failure_is_named_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stderr.log").write_text("\n".join(f"line {n}" for n in range(20)))
    with pytest.raises(GalleyError, match="process 1 ended with 77") as caught:
        _exit_code(ended(0, 77, 78), tmp_path)
    assert "line 19" in caught.value.message
    assert "line 3" not in caught.value.message


def test_an_ending_of_our_own_is_passed_on(tmp_path: Path) -> None:
    assert _exit_code(ended(0, 0), tmp_path) == 0
    assert _exit_code(ended(int(Exit.INTERRUPTED), int(Exit.INTERRUPTED)), tmp_path) == int(Exit.INTERRUPTED)

"""Every error that Galley raises on purpose: a code, what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the `galley` command."""

    DONE = 0
    FAILED = 1
    INVALID_INPUT = 2
    DOES_NOT_FIT = 3
    BELOW_QUALITY = 4
    TRY_AGAIN = 75
    INTERRUPTED = 130


@dataclass(frozen=True)
class ErrorCode:
    """What a code means: the exit code it leads to and its one-line meaning (docs/errors.md has the long one)."""

    exit: Exit
    meaning: str


_INVALID = Exit.INVALID_INPUT

ERROR_CODES: dict[str, ErrorCode] = {
    # recipe
    "recipe-invalid": ErrorCode(_INVALID, "the recipe has one or more mistakes; all of them are listed"),
    "recipe-not-found": ErrorCode(_INVALID, "the recipe file does not exist or cannot be read"),
    "recipe-syntax": ErrorCode(_INVALID, "the recipe is not valid YAML"),
    # data
    "data-not-found": ErrorCode(_INVALID, "the data path, glob or package does not exist"),
    "data-format": ErrorCode(_INVALID, "the format of the data could not be recognised or is not supported"),
    "data-encoding": ErrorCode(_INVALID, "the text encoding of the data could not be determined"),
    "data-columns": ErrorCode(_INVALID, "the columns to train on could not be found in the data"),
    "data-options": ErrorCode(_INVALID, "a setting in data.options does not exist or has a wrong value"),
    "data-offline": ErrorCode(_INVALID, "the dataset is on a hub that cannot be reached, and not in the cache"),
    "data-row": ErrorCode(_INVALID, "a row does not have the expected shape"),
    "data-empty": ErrorCode(_INVALID, "there is nothing to train on after reading, filtering or truncating"),
    "data-template": ErrorCode(_INVALID, "the chat template cannot render or mask these conversations"),
    # environments
    "environment-failed": ErrorCode(Exit.FAILED, "an environment could not be made, raised, or its process died"),
    "environment-invalid": ErrorCode(_INVALID, "an environment gives something that its spaces exclude"),
    "environment-unsupported": ErrorCode(_INVALID, "the method cannot act in an environment of these spaces"),
    # models
    "model-not-found": ErrorCode(_INVALID, "the model reference names nothing that exists"),
    "model-offline": ErrorCode(_INVALID, "the model is on a hub that cannot be reached, and not in the cache"),
    "model-unsupported": ErrorCode(_INVALID, "this kind of model cannot be used for the task"),
    "model-invalid": ErrorCode(_INVALID, "the model's files are damaged or inconsistent"),
    "adapter-targets": ErrorCode(_INVALID, "an adapter target matches no module, or does not train"),
    "adapter-merge": ErrorCode(Exit.FAILED, "the merged model does not behave like the adapter"),
    "package-missing": ErrorCode(_INVALID, "an optional dependency is needed for this"),
    # plan
    "plan-key-unknown": ErrorCode(_INVALID, "the plan decides nothing of that name"),
    "plan-does-not-fit": ErrorCode(Exit.DOES_NOT_FIT, "the job does not fit the hardware"),
    "plan-contradiction": ErrorCode(_INVALID, "two settings contradict each other"),
    "hardware-unknown": ErrorCode(_INVALID, "the hardware description is not understood"),
    # runs
    "seed-failed": ErrorCode(Exit.FAILED, "one of several seeds could not be trained"),
    "run-exists": ErrorCode(_INVALID, "a run of this name exists and may not be overwritten"),
    "run-folder": ErrorCode(_INVALID, "the folder of runs cannot be written to"),
    "run-not-found": ErrorCode(_INVALID, "there is no such run"),
    "run-locked": ErrorCode(Exit.TRY_AGAIN, "another process is training in this run folder"),
    "run-unfinished": ErrorCode(_INVALID, "the run has no result yet"),
    "run-damaged": ErrorCode(Exit.FAILED, "a file of the run folder cannot be read"),
    "checkpoint-missing": ErrorCode(_INVALID, "the run has no complete checkpoint"),
    "checkpoint-mismatch": ErrorCode(_INVALID, "the checkpoint belongs to another model or recipe"),
    "disk-full": ErrorCode(Exit.TRY_AGAIN, "there is no space left to write to"),
    # training
    "loss-not-finite": ErrorCode(Exit.FAILED, "the loss or a gradient became NaN or infinite"),
    "out-of-memory": ErrorCode(Exit.DOES_NOT_FIT, "memory ran out even at the smallest micro-batch"),
    "process-failed": ErrorCode(Exit.FAILED, "one of the processes of a job died or failed"),
    "interrupted": ErrorCode(Exit.INTERRUPTED, "the training was interrupted and saved"),
    "below-quality": ErrorCode(Exit.BELOW_QUALITY, "the result is below the quality that the recipe demands"),
    # generation
    "prompt-too-long": ErrorCode(_INVALID, "the prompt leaves no room for an answer in the model's context"),
    # command line
    "usage": ErrorCode(_INVALID, "the command line is not understood"),
    "file-exists": ErrorCode(_INVALID, "a file that would be written exists and is not overwritten"),
    "internal": ErrorCode(Exit.FAILED, "a mistake of Galley's own; --debug shows where"),
    # registries
    "name-unknown": ErrorCode(_INVALID, "no method, format, engine, adapter or sink has this name"),
}


class GalleyError(Exception):
    """An error that a user can act on.

    Args:
        code: a key of `ERROR_CODES`; docs/errors.md explains each.
        message: what is wrong and where, in one or more plain sentences.
        hint: what to do about it; printed after `hint:`.

    Example:
        >>> raise GalleyError("run-not-found", "there is no run 'faq'", hint="galley runs lists them")
        Traceback (most recent call last):
        galley.base.errors.GalleyError: there is no run 'faq'
    """

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        assert code in ERROR_CODES, f"undeclared error code {code!r}"
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    @property
    def exit(self) -> Exit:
        """The exit code of the command that this error ends."""
        return ERROR_CODES[self.code].exit

    def render(self) -> str:
        """The two lines that a terminal shows (more where the message has several)."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

"""Fine-tune a chat model on a table of questions and answers, see whether it is better, and talk to it.

python examples/train_and_chat.py                   # about a minute of training on two cores
python examples/train_and_chat.py budget.steps=5    # any key of the recipe can be changed
"""

import sys
from pathlib import Path

import galley

RECIPE = Path(__file__).parent.parent / "recipes" / "faq.yaml"


def main(*overrides: str) -> galley.Run:
    run = galley.train(RECIPE, *overrides)
    print(f"{run.name}: {len(run.metrics)} lines of metrics, the last: {run.metrics[-1]}")

    verdict = run.verdict
    print(verdict.sentence)
    for answer in verdict.best[:2]:
        print(f"  {answer.prompt!r}: {answer.base_score:.2f} before, {answer.tuned_score:.2f} after")

    print(run.chat("What is LoRA?"))  # a second question would know of this one
    return run


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Only reading: what Galley makes of a file, without a model.

python examples/read_data.py
python examples/read_data.py my-table.xlsx
"""

import sys
from pathlib import Path

from galley import data
from galley.recipe import DataSection, EvaluateSection

FAQ = Path(__file__).parent.parent / "recipes" / "data" / "faq.csv"


def main(path: str = str(FAQ)) -> data.Dataset:
    dataset = data.read(DataSection(path=path), task="chat", evaluate=EvaluateSection(held_out=0.1))
    print(f"{dataset.format}: {dataset.columns}")
    print(f"{len(dataset.train)} rows to train on, {len(dataset.held_out)} held out")
    print(f"{dataset.statistics.duplicates} duplicates, {dataset.statistics.empty} empty")
    for note in dataset.notes:
        print(f"note: {note}")
    for example in dataset.held_out[:2]:
        assert isinstance(example, data.Conversation)
        for message in example.messages:
            print(f"  {message.role}: {message.content}")
    return dataset


if __name__ == "__main__":
    main(*sys.argv[1:])

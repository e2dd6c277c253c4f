from .choice import choose_scorer as choose_scorer
from .finishing import finish as finish
from .judging import judge as judge
from .parity import TrainedOutputs as TrainedOutputs
from .parity import record as record
from .rendering import render as render
from .verdict import Answer as Answer
from .verdict import Verdict as Verdict

__all__ = ["Answer", "TrainedOutputs", "Verdict", "choose_scorer", "finish", "judge", "record", "render"]

"""Which answers are believed."""

import numpy as np
import pytest

from serving.errors import BadReplicaAnswer
from serving.transport.answers import check_answer
from serving.types import InferRequest, InferResponse, NamedTensor, OutputRequest, TensorSpec

LOGITS = TensorSpec("logits", "FP32", (-1, 10))
BOXES = TensorSpec("boxes", "INT64", (-1, -1, 4))
ROWS = 3


def tensor(name="logits", datatype="FP32", shape=(ROWS, 10)):
    return NamedTensor(name, datatype, np.zeros(shape, np.float32))


def check(*outputs, specs=(LOGITS,), wanted=()):
    request = InferRequest(
        inputs=(NamedTensor("input", "FP32", np.zeros((ROWS, 2), np.float32)),),
        outputs=tuple(map(OutputRequest, wanted)),
    )
    check_answer(request, InferResponse("m", outputs), specs)


GOOD = [
    ([tensor()], {}),
    ([tensor(), tensor("boxes", "INT64", (ROWS, 7, 4))], {"specs": (LOGITS, BOXES)}),
    ([tensor()], {"specs": (LOGITS, BOXES), "wanted": ["logits"]}),
    # A server whose metadata lists no outputs can only be held to the number of rows.
    ([tensor("whatever", "FP64", (ROWS,))], {"specs": ()}),
]

BAD = [
    ([], {}, "lacks output 'logits'"),
    ([], {"specs": ()}, "lacks output"),
    ([tensor("other")], {}, "lacks output 'logits'"),
    ([tensor(), tensor("other")], {}, "no output 'other'"),
    ([tensor()], {"specs": (LOGITS, BOXES)}, "lacks output 'boxes'"),
    ([tensor(shape=(ROWS - 1, 10))], {}, "must have 3 rows"),
    ([tensor(shape=())], {}, "must have 3 rows"),
    ([tensor(shape=(ROWS - 1,))], {"specs": ()}, "must have 3 rows"),
    ([tensor(datatype="FP64")], {}, "datatype FP32, got FP64"),
    ([tensor(shape=(ROWS, 11))], {}, r"shape \[-1, 10\], got \[3, 11\]"),
    ([tensor(shape=(ROWS, 10, 1))], {}, "shape"),
    ([tensor("boxes", "INT64", (ROWS, 7, 5))], {"specs": (BOXES,)}, "shape"),
]


@pytest.mark.parametrize(("outputs", "case"), GOOD)
def test_a_right_answer_is_believed(outputs, case):
    check(*outputs, **case)


@pytest.mark.parametrize(("outputs", "case", "message"), BAD)
def test_a_wrong_answer_is_a_failure_that_says_why(outputs, case, message):
    with pytest.raises(BadReplicaAnswer, match=message):
        check(*outputs, **case)

import numpy as np
import pytest

from coding.output_domain import PROBABILITY_FLOOR, OutputDomain, softmax

LOGITS = np.random.default_rng(0).normal(scale=5, size=(2, 3, 10)).astype(np.float32)


def test_logits_are_decoded_as_they_are_and_leave_as_probabilities() -> None:
    domain = OutputDomain("logits")
    assert domain.to_coding(LOGITS) is LOGITS
    probabilities = domain.to_client(LOGITS)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(probabilities.argmax(axis=-1), LOGITS.argmax(axis=-1))


def test_probabilities_come_back_from_their_logarithms() -> None:
    domain = OutputDomain("probabilities")
    probabilities = softmax(LOGITS)
    np.testing.assert_allclose(domain.to_client(domain.to_coding(probabilities)), probabilities, rtol=1e-5)


def test_logarithms_differ_from_logits_by_a_constant_only() -> None:
    shift = OutputDomain("probabilities").to_coding(softmax(LOGITS)) - LOGITS
    np.testing.assert_allclose(shift, np.broadcast_to(shift[..., :1], shift.shape), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_probability_of_zero_has_a_finite_logarithm(dtype) -> None:
    logarithms = OutputDomain("probabilities").to_coding(np.array([1.0, 0.0], dtype))
    assert np.isfinite(logarithms).all()
    assert logarithms[1] < -9
    assert logarithms[1] >= np.log(PROBABILITY_FLOOR) - 1e-3


def test_as_is_touches_nothing() -> None:
    domain = OutputDomain("as_is")
    assert domain.to_coding(LOGITS) is LOGITS
    assert domain.to_client(LOGITS) is LOGITS


@pytest.mark.parametrize("name", list(OutputDomain))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_shape_and_input_survive(name: str, dtype) -> None:
    outputs = softmax(LOGITS).astype(dtype)
    before = outputs.copy()
    for mapped in (OutputDomain(name).to_coding(outputs), OutputDomain(name).to_client(outputs)):
        assert mapped.dtype == dtype
        assert mapped.shape == outputs.shape
    np.testing.assert_array_equal(outputs, before)


def test_softmax_neither_overflows_nor_loses_half_precision() -> None:
    np.testing.assert_array_equal(softmax(np.array([1e30, 0.0, -1e30], np.float32)), [1, 0, 0])
    np.testing.assert_allclose(softmax(np.zeros(5000, np.float16)).astype(float).sum(), 1, rtol=0.01)


def test_softmax_ignores_a_common_offset() -> None:
    np.testing.assert_allclose(softmax(LOGITS + 7), softmax(LOGITS), rtol=1e-4)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="boxes"):
        OutputDomain("boxes")

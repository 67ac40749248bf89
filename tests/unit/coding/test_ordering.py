import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from coding.ordering import inverse_order, nearest_order


def chain_length(rows: np.ndarray) -> float:
    flat = rows.reshape(len(rows), -1)
    return float(np.linalg.norm(np.diff(flat, axis=0), axis=1).sum())


shapes = st.sampled_from([(), (1,), (7,), (1, 28, 28), (3, 33, 40), (40, 40, 3), (17, 500), (0,), (2, 0, 40)])


@given(st.integers(1, 41), shapes, st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_it_is_a_permutation_and_the_inverse_undoes_it(k: int, item: tuple[int, ...], seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(k, *item)).astype(np.float32)
    order = nearest_order(rows)
    assert sorted(order.tolist()) == list(range(k))
    np.testing.assert_array_equal(rows[order][inverse_order(order)], rows)


def test_points_on_a_line_are_walked_along_it() -> None:
    places = np.array([3.0, -1.0, 8.0, 0.5, 7.0, 2.0])
    walked = places[nearest_order(places[:, None])]
    assert walked.tolist() in (sorted(places), sorted(places, reverse=True))


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_it_is_no_longer_than_the_chain_from_any_one_start(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(6, 4))
    found = chain_length(rows[nearest_order(rows)])
    for start in range(6):
        chain, rest = [start], set(range(6)) - {start}
        while rest:
            chain.append(min(rest, key=lambda row: np.linalg.norm(rows[row] - rows[chain[-1]])))
            rest.remove(chain[-1])
        assert found <= chain_length(rows[chain]) + 1e-9


def test_it_is_close_to_the_shortest_chain_of_all() -> None:
    ratios = []
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(size=(6, 3))
        shortest = min(chain_length(rows[list(order)]) for order in itertools.permutations(range(6)))
        ratios.append(chain_length(rows[nearest_order(rows)]) / shortest)
    assert np.mean(ratios) < 1.05


@pytest.mark.parametrize("layout", ["channels first", "channels last"])
def test_large_images_that_fade_are_put_in_sequence(layout: str) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.uniform(size=(2, 3, 64, 50))
    shares = np.array([0.5, 0.0, 0.75, 1.0, 0.25])
    rows = np.stack([(1 - share) * one + share * other for share in shares])
    if layout == "channels last":
        rows = rows.transpose(0, 2, 3, 1)
    walked = shares[nearest_order(rows)].tolist()
    assert walked in (sorted(shares), sorted(shares, reverse=True))


def block_sums(rows: np.ndarray) -> np.ndarray:
    """Images of shape (k, c, h, w) at the resolution at which they are compared, by whole blocks."""
    for axis in (2, 3):
        block = -(-rows.shape[axis] // 16)
        starts = np.arange(0, rows.shape[axis] // block * block, block)
        rows = np.add.reduceat(rows.take(range(starts[-1] + block), axis), starts, axis)
    return rows


@pytest.mark.parametrize("side", [16, 28, 32])
def test_of_small_images_every_pixel_counts(side: int) -> None:
    for seed in range(20):
        rows = np.random.default_rng(seed).integers(0, 256, size=(8, 3, side, side)).astype(np.float32)
        np.testing.assert_array_equal(nearest_order(rows), nearest_order(block_sums(rows).reshape(8, -1)))


@pytest.mark.parametrize("side", [60, 228])
def test_a_few_pixels_order_large_images_about_as_well_as_all(side: int) -> None:
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        coarse = rng.normal(size=(8, 3, 12, 12))
        rough = rng.normal(0.0, 0.3, size=(8, 3, side, side))
        smooth = coarse.repeat(side // 12, axis=2).repeat(side // 12, axis=3)
        rows = (
            ndimage.uniform_filter1d(ndimage.uniform_filter1d(smooth, side // 12, 2), side // 12, 3) + rough
        )
        whole = rows[nearest_order(block_sums(rows).reshape(8, -1))]
        ratios.append(chain_length(rows[nearest_order(rows)]) / chain_length(whole))
    assert np.mean(ratios) < 1.005


def test_bytes_do_not_overflow_in_the_sums() -> None:
    shares = np.array([0, 255, 64, 192, 128])
    rows = np.tile(shares[:, None, None], (1, 60, 60)).astype(np.uint8)
    walked = shares[nearest_order(rows)].tolist()
    assert walked in (sorted(shares), sorted(shares, reverse=True))


def test_a_large_common_offset_does_not_blur_the_distances() -> None:
    places = 1e4 + np.array([0.03, 0.0, 0.02, 0.01])
    rows = np.tile(places[:, None], (1, 50)).astype(np.float32)
    walked = places[nearest_order(rows)].tolist()
    assert walked in (sorted(places), sorted(places, reverse=True))


def test_equal_rows_are_fine() -> None:
    assert sorted(nearest_order(np.ones((5, 3))).tolist()) == list(range(5))


def test_the_input_is_not_changed() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3))
    before = rows.copy()
    nearest_order(rows)
    np.testing.assert_array_equal(rows, before)

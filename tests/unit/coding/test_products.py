import numpy as np
import pytest

from coding.products import gram, multiply, product


@pytest.mark.parametrize("width", [0, 1, 63, 3000, 40_000])
def test_strips_add_up_to_the_whole_product(width: int) -> None:
    rng = np.random.default_rng(width)
    matrix, columns = rng.normal(size=(12, 8)), rng.normal(size=(2, 8, width))
    out = np.full((12, 2, width), np.nan)
    multiply(matrix, columns, out.transpose(1, 0, 2))
    np.testing.assert_allclose(out.transpose(1, 0, 2), matrix @ columns, atol=1e-12)


def test_a_large_matrix_still_gets_strips() -> None:
    matrix, columns = np.ones((600, 600)), np.ones((600, 200))
    out = np.empty((600, 200))
    multiply(matrix, columns, out)
    assert (out == 600).all()


@pytest.mark.parametrize(("rows", "width"), [(1, 5), (8, 0), (8, 10_000), (40, 700)])
def test_gram_is_all_inner_products(rows: int, width: int) -> None:
    values = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    products = gram(values)
    assert products.dtype == np.float32
    np.testing.assert_allclose(products, values.astype(float) @ values.T.astype(float), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("width", [0, 5, 9_000])
def test_gram_of_many_groups_is_that_of_each(width: int) -> None:
    values = np.random.default_rng(0).normal(size=(8, 3, width)).swapaxes(0, 1)
    np.testing.assert_allclose(gram(values), [gram(group) for group in values], rtol=1e-10)


def test_no_rows_have_no_products() -> None:
    assert gram(np.zeros((0, 7))).shape == (0, 0)


@pytest.mark.parametrize("width", [0, 1, 3000, 40_000])
def test_product_is_the_whole_product(width: int) -> None:
    rng = np.random.default_rng(width)
    matrix, columns = rng.normal(size=(12, 8)), rng.normal(size=(8, width))
    np.testing.assert_allclose(product(matrix, columns), matrix @ columns, atol=1e-12)


def test_a_product_over_nothing_is_zero() -> None:
    out = np.full((2, 3), np.nan)
    multiply(np.zeros((2, 0)), np.zeros((0, 3)), out)
    assert (out == 0).all()

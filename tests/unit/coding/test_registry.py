import dataclasses
import json
import math
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from coding.berrut import BerrutParams
from coding.copies import HedgedParams, NoneParams, ReplicationParams
from coding.errors import BadParameter
from coding.letcc import LetccParams
from coding.registry import PARAMS_BY_KIND, AnySchemeParams

ADAPTER: TypeAdapter[AnySchemeParams] = TypeAdapter(Annotated[AnySchemeParams, Field(discriminator="kind")])
CODES = [LetccParams, BerrutParams]


@pytest.mark.parametrize("kind", PARAMS_BY_KIND)
def test_each_kind_is_the_default_of_its_class_and_builds_every_size(kind: str) -> None:
    params = PARAMS_BY_KIND[kind]()
    assert params.kind == kind
    for rows in range(1, params.k + 1):
        assert params.build(rows).k == rows
    for rows in (0, params.k + 1):
        with pytest.raises(BadParameter, match=f"rows must be between 1 and .*got {rows}"):
            params.build(rows)


@pytest.mark.parametrize("kind", PARAMS_BY_KIND)
def test_a_scheme_is_built_once(kind: str) -> None:
    params = PARAMS_BY_KIND[kind]
    assert params().build(1) is params().build(1)


def test_the_defaults_are_those_of_the_reference_configuration() -> None:
    assert dataclasses.asdict(LetccParams()) == {
        "kind": "letcc",
        "k": 8,
        "n": 12,
        "wait_for": 10,
        "lambda_enc": 1e-5,
        "lambda_dec": 1e-6,
        "nodes": "equispaced",
        "systematic": False,
        "output_domain": "logits",
        "order": "nearest",
        "floor": None,
        "max_wrong": 0,
    }
    assert BerrutParams().size == LetccParams().size
    assert (ReplicationParams().copies, HedgedParams().copies, HedgedParams().delay_ms) == (2, 2, 100.0)


@pytest.mark.parametrize("kind", PARAMS_BY_KIND)
def test_a_configuration_file_can_set_every_field(kind: str) -> None:
    params = PARAMS_BY_KIND[kind]()
    as_read = json.loads(json.dumps(dataclasses.asdict(params)))
    assert ADAPTER.validate_python(as_read) == params
    assert ADAPTER.validate_python({"kind": kind}) == params


@pytest.mark.parametrize("kind", PARAMS_BY_KIND)
def test_an_unknown_key_is_an_error_that_names_it(kind: str) -> None:
    with pytest.raises(ValidationError, match="waitfor"):
        ADAPTER.validate_python({"kind": kind, "waitfor": 3})


@pytest.mark.parametrize("kind", PARAMS_BY_KIND)
def test_every_field_has_a_description(kind: str) -> None:
    params = PARAMS_BY_KIND[kind]
    described = {
        name
        for base in params.__mro__
        if dataclasses.is_dataclass(base)
        for name, field in TypeAdapter(base).json_schema()["properties"].items()
        if field.get("description")
    }
    assert {field.name for field in dataclasses.fields(params)} == described


def test_a_broken_rule_reaches_the_reader_of_the_configuration() -> None:
    with pytest.raises(ValidationError, match=r"wait_for must be between 1 and n \(12\), got 14"):
        ADAPTER.validate_python({"kind": "letcc", "wait_for": 14})


@pytest.mark.parametrize("params", CODES)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"n": 7}, r"n must be at least k \(8\), got 7"),
        ({"wait_for": 14}, r"wait_for must be between 1 and n \(12\), got 14"),
        ({"floor": 11}, r"floor must be between 1 and wait_for \(10\), got 11"),
        ({"k": True}, "k must be an integer, got True"),
        ({"n": "12"}, "n must be an integer, got '12'"),
        ({"output_domain": "odds"}, "output_domain must be one of logits, probabilities, as_is, got 'odds'"),
        ({"nodes": "random"}, "nodes must be one of chebyshev, equispaced.*, got 'random'"),
        ({"order": "random"}, "order must be one of nearest, none, got 'random'"),
    ],
)
def test_codes_refuse_bad_fields(params, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        params(**fields)


@pytest.mark.parametrize("name", ["lambda_enc", "lambda_dec"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_letcc_refuses_bad_lambdas(name: str, value: float) -> None:
    with pytest.raises(BadParameter, match=f"{name} must be finite and at least 0, got {value}"):
        LetccParams(**{name: value})


@pytest.mark.parametrize("value", ["1e-5", None, False])
def test_a_lambda_is_a_number(value: object) -> None:
    with pytest.raises(BadParameter, match="lambda_dec must be a number, got"):
        LetccParams(lambda_dec=value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReplicationParams(copies=0), "copies must be at least 1, got 0"),
        (lambda: HedgedParams(copies=1.5), "copies must be an integer, got 1.5"),
        (lambda: HedgedParams(delay_ms=-1), "delay_ms must be finite and at least 0, got -1"),
        (lambda: NoneParams(output_domain="odds"), "output_domain must be one of"),
    ],
)
def test_copies_refuse_bad_fields(make, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        make()


def test_a_systematic_code_cannot_look_for_wrong_arrivals() -> None:
    with pytest.raises(BadParameter, match=r"max_wrong must be 0 where systematic is true, .*; got 1"):
        LetccParams(systematic=True, max_wrong=1)


def test_codes_differ_by_their_parameters_only() -> None:
    code = LetccParams(lambda_dec=1e-4).build(8)
    assert code is not LetccParams().build(8)
    assert code.size == LetccParams().build(8).size

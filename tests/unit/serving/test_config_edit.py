"""Setting values in YAML files that people have written."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.config.edit import with_values
from serving.errors import ConfigError

SHIPPED = (Path(__file__).parents[3] / "config.yaml").read_text()
CHOICE = {
    ("scheme", "lambda_enc"): 1e-4,
    ("scheme", "lambda_dec"): 0.0,
    ("scheme", "nodes"): "chebyshev",
    ("model", "source"): "timm:resnet18",
}


def test_only_the_values_change_in_the_shipped_file() -> None:
    before, after = SHIPPED.splitlines(), with_values(SHIPPED, CHOICE).splitlines()
    assert [line for line in before if line not in after] == [
        '  source: "builtin:lenet5-mnist"  # or timm:NAME, torchvision:NAME, torchscript:PATH, python:module:factory',
        "  lambda_enc: 1.0e-5           # smoothing of the encoding spline; 0 interpolates",
        "  lambda_dec: 1.0e-6           # smoothing of the decoding spline (sum-of-squares convention)",
        "  nodes: equispaced            # where queries and tasks sit on the curve; or chebyshev, as in the papers",
    ]
    assert [line for line in after if line not in before] == [
        "  source: timm:resnet18           # or timm:NAME, torchvision:NAME, torchscript:PATH, python:module:factory",
        "  lambda_enc: 0.0001           # smoothing of the encoding spline; 0 interpolates",
        "  lambda_dec: 0.0              # smoothing of the decoding spline (sum-of-squares convention)",
        "  nodes: chebyshev             # where queries and tasks sit on the curve; or chebyshev, as in the papers",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "scheme:\n  k: 4\n"),
        ("# mine\n", "# mine\n\nscheme:\n  k: 4\n"),
        ("log: {level: info}", "log: {level: info}\n\nscheme:\n  k: 4\n"),
        ("scheme: {n: 9}  # flow\n", "scheme: {n: 9, k: 4}  # flow\n"),
        ("scheme: {}\n", "scheme: {k: 4}\n"),
        (
            "scheme:\n    n: 9 # nine\n# end\nlog: {}\n",
            "scheme:\n    n: 9 # nine\n    k: 4\n# end\nlog: {}\n",
        ),
        ("scheme:\n  k: 16 # many\n", "scheme:\n  k: 4  # many\n"),
        ("scheme:\n  k: '8'", "scheme:\n  k: 4"),
        ("scheme:\r\n  n: 9\r\n", "scheme:\r\n  n: 9\r\n  k: 4\r\n"),
        ("scheme:\n  floor: # none\n", "scheme:\n  floor: # none\n  k: 4\n"),
        ("b: &b {k: 8}\nscheme:\n  <<: *b\n  n: 9\n", "b: &b {k: 8}\nscheme:\n  <<: *b\n  n: 9\n  k: 4\n"),
        ("scheme:\n  k: 1\n  k: 2\n", "scheme:\n  k: 1\n  k: 4\n"),
    ],
)
def test_each_layout_is_edited_in_its_own_way(before: str, after: str) -> None:
    assert with_values(before, {("scheme", "k"): 4}) == after
    assert yaml.safe_load(after)["scheme"]["k"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {k: 8}\nscheme: *b\n",
        "scheme:\n",
        "scheme: 3\n",
        "- scheme\n",
        "{log: {level: info}}\n",
        "log: {}\n...\n",
        "scheme: {",
    ],
)
def test_what_cannot_be_edited_safely_is_refused_with_the_lines_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match="write into it yourself:\nlog:\n  level: debug\nscheme:\n  k: 4"):
        with_values(text, {("log", "level"): "debug", ("scheme", "k"): 4})


VALUES = st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
NAMES = st.sampled_from(["a", "b", "long_name"])
SECTIONS = st.dictionaries(NAMES, VALUES | st.text(max_size=9), min_size=1)


@settings(deadline=None, max_examples=50)
@given(
    content=st.dictionaries(NAMES, SECTIONS, min_size=1),
    flow=st.booleans(),
    values=st.dictionaries(st.tuples(NAMES, NAMES), VALUES, min_size=1),
)
def test_the_file_means_what_it_meant_with_the_values_set(content, flow: bool, values) -> None:
    text = "# a comment\n" + yaml.safe_dump(content, default_flow_style=None if flow else False)
    edited = with_values(text, values)
    for (section, key), value in values.items():
        content.setdefault(section, {})[key] = value
    assert yaml.safe_load(edited) == content
    assert edited.startswith("# a comment\n")

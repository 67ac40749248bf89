"""Layers, sources and messages of the configuration."""

from pathlib import Path

import pytest

from serving.config.load import Loaded, load
from serving.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]


def source_of(loaded: Loaded, key: str) -> str:
    return next(source for name, _, source in loaded.rows() if name == key)


def test_the_shipped_file_loads_and_equals_the_defaults() -> None:
    assert load(REPOSITORY / "config.yaml").settings == load().settings


def test_command_line_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("server: {port: 1}\ngrouping: {window_ms: 1}\ndeadline_ms: 1\n")
    environment = {"UNSTRAGGLE_SERVER__PORT": "2", "UNSTRAGGLE_GROUPING__WINDOW_MS": "2"}
    loaded = load(file, environment, ["server.port=3"])
    assert loaded.settings.server.port == 3
    assert loaded.settings.grouping.window_ms == 2
    assert loaded.settings.deadline_ms == 1
    assert source_of(loaded, "server.port") == "command line --set server.port"
    assert source_of(loaded, "grouping.window_ms") == "environment UNSTRAGGLE_GROUPING__WINDOW_MS"
    assert source_of(loaded, "deadline_ms") == f"file {file}"
    assert source_of(loaded, "server.host") == "default"


def test_changing_the_kind_alone_drops_the_keys_that_the_new_kind_does_not_have() -> None:
    file = REPOSITORY / "config.yaml"
    assert load(file, {}, ["scheme.kind=none"]).settings.scheme.kind == "none"
    assert load(file, {"UNSTRAGGLE_SCHEME__KIND": "hedged"}).settings.scheme.kind == "hedged"
    berrut = load(file, {}, ["scheme.kind=berrut"])
    assert (berrut.settings.scheme.k, berrut.settings.scheme.n) == (8, 12)
    remote = load(file, {}, ["replicas={kind: http, urls: ['http://127.0.0.1:9000/']}"])
    assert remote.settings.replicas.urls == ("http://127.0.0.1:9000",)


def test_a_key_of_another_kind_in_the_same_layer_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"unknown key scheme\.wait_for"):
        load(None, {}, ["scheme.kind=none", "scheme.wait_for=3"])


def test_a_mapping_may_be_set_at_once() -> None:
    delay = load(None, {}, ["replicas.faults.delay={kind: inference-trace, median_ms: 50}"]).settings
    assert delay.replicas.faults.delay.median_ms == 50


def test_a_rule_across_keys_blames_the_layer_that_set_the_key_it_names(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("scheme: {kind: letcc, k: 8, n: 12, wait_for: 10}\n")
    with pytest.raises(ConfigError, match=r"wait_for .*13.*\(command line --set scheme.wait_for\)"):
        load(file, {}, ["scheme.wait_for=13"])
    with pytest.raises(ConfigError, match=r"scheme: .*'letcc' \(command line --set scheme\)"):
        load(file, {}, ["scheme=letcc"])
    with pytest.raises(ConfigError, match=r"\(file .*config.yaml\)"):
        load(file, {}, ["scheme.k=5", "scheme.n=9"])


@pytest.mark.parametrize(
    ("override", "fragments"),
    [
        ("scheme.wait_fro=3", ["unknown key scheme.wait_fro", "did you mean scheme.wait_for?"]),
        ("sceme.k=3", ["unknown key sceme", "did you mean scheme?"]),
        ("scheme.kind=leetcc", ["scheme.kind must be one of", "got 'leetcc'", "did you mean letcc?"]),
        ("replicas.kind=ray", ["replicas.kind must be one of local, http", "got 'ray'"]),
        ("replicas.faults.delay.kind=slow", ["replicas.faults.delay.kind must be one of"]),
        (
            "replicas.faults.replicas=[3, 12]",
            ["replicas", "faults.replicas must be numbers from 0 to 11", "got 12"],
        ),
        ("server.port=70000", ["server.port", "less than or equal to 65535", "got 70000"]),
        ("server.port=eighty", ["server.port", "got 'eighty'"]),
        ("deadline_ms=0", ["deadline_ms", "greater than 0", "got 0"]),
        ("scheme.wait_for=13", ["scheme", "wait_for", "13"]),
        ("scheme.max_wrong=2", ["scheme: max_wrong must be between 0 and (wait_for - k) / 2 (1), got 2"]),
        ("scheme={kind: berrut, k: 4, wait_for: 5, max_wrong: 1}", ["max_wrong", "(0), got 1"]),
        ("scheme={kind: replication, max_wrong: 1}", ["unknown key scheme.max_wrong"]),
        ("replicas.wrong_before_ejection=11", ["replicas.wrong_before_ejection", "equal to 10", "got 11"]),
        ("replicas.wrong_ejection_s=0", ["replicas.wrong_ejection_s", "greater than 0", "got 0"]),
        ("replicas.faults.corruption.kind=li", ["replicas.faults.corruption.kind must be one of"]),
        ("replicas.faults.corruption={kind: noise, sigma: 0}", ["sigma", "greater than 0", "got 0"]),
        ("scheme.lambda_dec=-1", ["lambda_dec", "-1"]),
        ("deadline_ms.x=0", ["deadline_ms: ", "valid number", "--set deadline_ms.x"]),
        ("server=8000", ["server", "got 8000"]),
        ("scheme.kind", ["--set needs KEY=VALUE", "'scheme.kind'"]),
        ("scheme.k={", ["--set scheme.k must be a YAML value"]),
        ("replicas={kind: http, urls: ['ftp://x']}", ["replicas.urls", "http:// or https://", "ftp://x"]),
        ("replicas={kind: http, urls: []}", ["replicas.urls", "at least 1"]),
    ],
)
def test_bad_settings_say_what_where_and_how_to_mend(override: str, fragments: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {}, [override])
    for fragment in fragments:
        assert fragment in str(refused.value)


def test_an_unknown_key_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("grouping: {window: 3}\n")
    with pytest.raises(
        ConfigError, match=r"unknown key grouping\.window .*mine\.yaml.*did you mean grouping\.window_ms"
    ):
        load(file)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [("a: [", "not valid YAML"), ("- 1", "must hold keys and values"), ("\x00", "not valid YAML")],
)
def test_a_broken_file_is_one_readable_message(tmp_path: Path, content: str, fragment: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=fragment):
        load(file)


def test_a_missing_file_is_one_readable_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*: No such file"):
        load(tmp_path / "absent.yaml")


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("# nothing\n")
    assert load(file).settings == load().settings


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_no_settings() -> None:
    environment = {"UNSTRAGGLE_SERVICE_HOST": "10.0.0.1", "UNSTRAGGLE_PORT": "tcp://10.0.0.1:80"}
    assert load(None, environment).settings == load().settings


def test_a_misspelt_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"scheme\.knd .*environment UNSTRAGGLE_SCHEME__KND"):
        load(None, {"UNSTRAGGLE_SCHEME__KND": "none"})

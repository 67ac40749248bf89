"""From a source string to a model that runs."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch

from models.adapted import adapted_codes
from models.builtin import BUILTINS
from models.errors import BadSource, ModelError, WeightsUnavailable
from models.hubs import load_timm, load_torchvision, reachable
from models.registry import library_of, load_model
from models.runner import ModelRunner
from models.sources import parse_source

USER_MODULE = """
import torch
from models.spec import float_spec

class Doubler(torch.nn.Module):
    def forward(self, rows):
        return 2 * rows

class Random(torch.nn.Linear):
    input_shape = (3,)
    def __init__(self):
        super().__init__(3, 2)

class Pair(torch.nn.Module):
    def forward(self, rows):
        return rows, rows

class Total(torch.nn.Module):
    def forward(self, rows):
        return rows.sum()

def with_spec():
    return Doubler(), float_spec("ignored", input_shape=(4,), output_shape=(4,), classes=tuple("abcd"))

def wrong_spec():
    return Doubler(), float_spec("ignored", input_shape=(4,), output_shape=(5,))

def nothing():
    return None

def broken():
    raise RuntimeError("out of luck")

number = 3
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """A working directory with a user's module in it."""
    (tmp_path / "users_model.py").write_text(USER_MODULE)
    (tmp_path / "users_typo.py").write_text("import nothing_of_that_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("users_model", None)


def test_a_factory_with_a_spec_is_taken_at_its_word():
    runner = ModelRunner("python:users_model:with_spec")
    assert runner.spec.source == "python:users_model:with_spec"
    assert runner.spec.classes == ("a", "b", "c", "d")
    assert runner.predict(np.ones((2, 4), np.float32)).tolist() == [[2.0] * 4] * 2


def test_without_a_spec_the_shape_comes_from_the_source():
    spec = load_model("python:users_model:Doubler?input_shape=2,5").spec
    assert (spec.input.shape, spec.output.shape) == ((-1, 2, 5), (-1, 2, 5))


def test_without_a_spec_the_shape_may_come_from_the_module():
    spec = load_model("python:users_model:Random").spec
    assert (spec.input.shape, spec.output.shape) == ((-1, 3), (-1, 2))


def test_replicas_of_untrained_models_are_one_function():
    before = torch.random.get_rng_state()
    row = np.ones((1, 3), np.float32)
    first, second = (ModelRunner("python:users_model:Random").predict(row) for _ in range(2))
    assert np.array_equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("builtin:resnet", "must be one of lenet5-mnist, .*; got 'resnet'"),
        ("python:users_model", "must be python:module:factory"),
        ("python:no_such_module:make", "'no_such_module' must be importable from .*ModuleNotFoundError"),
        ("python:users_typo:make", "importing it raised .*nothing_of_that_name"),
        ("python:users_model:make", "must have a callable 'make'; got None"),
        ("python:users_model:number", "must have a callable 'number'; got 3"),
        ("python:users_model:broken", r"broken\(\) raised RuntimeError: out of luck"),
        ("python:users_model:nothing", r"nothing\(\) must return a torch.nn.Module.*got NoneType"),
        (
            "python:users_model:Doubler",
            r"attribute input_shape; .* write python:users_model:Doubler\?input_shape=",
        ),
        ("python:users_model:Random?input_shape=7", r"must take float32 rows of shape \[7\]"),
        ("python:users_model:Pair?input_shape=7", "must return one tensor.*made tuple"),
        ("python:users_model:Total?input_shape=7", r"must return one tensor.*made \[\]"),
        ("torchscript:absent.pt?input_shape=3", "absent.pt must be a file"),
        ("torchscript:users_model.py?input_shape=3", "must be a TorchScript archive"),
        ("torchscript:users_model.py", r"must say its input shape; .*\?input_shape=3,224,224"),
        ("torchvision:no_such_net", "torchvision knows no model 'no_such_net'"),
        ("torchvision:resnet19", "did you mean resnet18"),
        ("torchvision:fcn_resnet50", "must be an image classifier"),
    ],
)
def test_what_cannot_be_loaded_is_explained(source, reason):
    with pytest.raises(BadSource, match=reason) as caught:
        load_model(source)
    assert source.partition("?")[0] in str(caught.value)


def test_a_spec_that_the_model_breaks_is_found_at_start():
    with pytest.raises(ModelError, match=r"'output' must have shape \[1, 5\]; got \[1, 4\]"):
        ModelRunner("python:users_model:wrong_spec")


def test_torchscript_files_run(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of TorchScript
        torch.jit.save(torch.jit.trace(module, torch.zeros(1, 3, 4)), tmp_path / "net.pt")
    runner = ModelRunner("torchscript:net.pt?input_shape=3,4")
    assert (runner.spec.platform, runner.spec.output.shape) == ("pytorch_torchscript", (-1, 5))
    rows = np.random.default_rng(0).random((6, 3, 4), np.float32)
    with torch.inference_mode():
        expected = module(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(runner.predict(rows), expected, rtol=1e-5, atol=1e-6)


def test_hub_models_normalise_inside():
    loaded = load_model("torchvision:squeezenet1_1?pretrained=false")
    assert loaded.spec.input.shape == (-1, 3, 224, 224)
    assert len(loaded.spec.classes) == 1000
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    image = torch.rand(1, 3, 64, 64)
    inner = loaded.module.model
    with torch.inference_mode():
        normalised = (image - mean) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        assert torch.allclose(loaded.module(image), inner(normalised), atol=1e-5)


def test_timm_models_load_untrained():
    loaded = load_model("timm:test_vit?pretrained=false")
    assert loaded.spec.input.shape == (-1, 3, 160, 160)
    assert loaded.spec.output.shape == (-1, 1000)
    with pytest.raises(BadSource, match=r"timm knows no model 'resnet19'; did you mean resnet18"):
        load_model("timm:resnet19")


def test_an_unreachable_hub_is_explained_at_once(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for load, source in ((load_timm, "timm:test_vit"), (load_torchvision, "torchvision:squeezenet1_1")):
        with pytest.raises(WeightsUnavailable, match=r"does not answer.*pretrained=false") as caught:
            load(parse_source(source), probe=lambda _: False)
        assert str(caught.value).startswith(f"{source}: pretrained weights must be cached")
    assert not constants.HF_HUB_OFFLINE


def test_cached_weights_need_no_connection(tmp_path, monkeypatch):
    from torchvision.models import SqueezeNet1_1_Weights, squeezenet1_1

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = SqueezeNet1_1_Weights.DEFAULT.url
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    original = squeezenet1_1()
    torch.save(original.state_dict(), cache / url.rpartition("/")[2])
    loaded = load_torchvision(parse_source("torchvision:squeezenet1_1"), probe=lambda _: False)
    weights = loaded.module.model.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in original.state_dict().items())


def test_a_hub_that_answers_anything_is_reachable():
    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(405)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert reachable(f"http://127.0.0.1:{server.server_port}/")
        thread.join()


def test_a_closed_port_is_not_reachable():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        assert not reachable(f"http://127.0.0.1:{listener.getsockname()[1]}/")


def test_hub_libraries_wait_until_they_are_asked_for():
    code = (
        "import sys, models.runner; assert not {'timm', 'torchvision', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("builtin:lenet5-mnist", None),
        ("builtin:repvgg-cifar10", "timm"),
        ("builtin:vit-cifar10", "timm"),
        ("builtin:efficientnet-lite0-imagenet", "timm"),
        ("builtin:unheard-of", None),
        ("timm:resnet18?pretrained=false", "timm"),
        ("torchvision:resnet18", "torchvision"),
        ("torchscript:net.pt?input_shape=3", None),
        ("python:users_model:Doubler", None),
    ],
)
def test_slow_libraries_are_known_before_a_model_is_loaded(source, library):
    assert library_of(source) == library


def test_weights_of_a_file_replace_a_models_own(tmp_path):
    first = load_model("timm:resnet10t?pretrained=false").module
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.mul_(0.5)
    file = tmp_path / "w.safetensors"
    safetensors.torch.save_file(first.state_dict(), file)
    second = load_model(f"timm:resnet10t?pretrained=false&weights={file}").module
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_weights_that_do_not_fit_are_refused(tmp_path):
    missing, other, broken = (tmp_path / name for name in ("missing", "other", "broken"))
    safetensors.torch.save_file({"x": torch.zeros(2)}, other)
    broken.write_bytes(b"not weights")
    for file, why in ((missing, "must be a file"), (other, "Missing key"), (broken, "this model's weights")):
        with pytest.raises(BadSource, match=why):
            load_model(f"builtin:lenet5-mnist?weights={file}")


def test_an_unknown_code_of_adapted_weights_is_answered_with_the_known_ones():
    with pytest.raises(
        BadSource, match=r"adapted must be a code that lenet5-mnist has weights for: .*got 'x'"
    ):
        load_model("builtin:lenet5-mnist?adapted=x")


@pytest.mark.parametrize("model", sorted(BUILTINS))
def test_every_adapted_weights_file_loads_and_answers(model):
    for code in adapted_codes(model):
        loaded = load_model(f"builtin:{model}?adapted={code.name}")
        original = load_model(f"builtin:{model}")
        rows = torch.rand(2, *loaded.spec.input.item_shape)
        assert not torch.equal(loaded.module(rows), original.module(rows))

"""From a `model.source` string to a module and its contract.

| source | what it loads | options |
|---|---|---|
| `builtin:NAME` | a shipped model: lenet5-mnist, linear-mnist, repvgg-cifar10, vit-cifar10 | `adapted=letcc-8-12-10` |
| `builtin:efficientnet-lite0-imagenet` | its weights come with the extra `imagenet`, images in [0, 1] | |
| `timm:NAME` | a timm model, images in [0, 1], normalised inside | `pretrained=false` |
| `torchvision:NAME` | a torchvision classifier, likewise | `pretrained=false` |
| `torchscript:PATH` | a file written by `torch.jit.save` | `input_shape=3,224,224` (needed) |
| `python:module:factory` | what `factory()` returns: a module, or a module and its `ModelSpec` | `input_shape=...` |

Options follow a question mark, as in `timm:resnet18?pretrained=false`; several are joined by `&`. All kinds but
torchscript take `weights=FILE.safetensors`, to load over the model's own weights: what `unstraggle adapt` writes.
`adapted` names weights of that kind that ship with the package.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from models.adapted import adapted_weights
from models.builtin import BUILTINS
from models.datasets import DATASETS
from models.efficientnet import EFFICIENTNET_LITE0, load_efficientnet_lite0
from models.errors import BadSource, WeightsUnavailable
from models.hubs import HubModel, load_timm, load_torchvision
from models.sources import Source, parse_source
from models.spec import ModelSpec, float_spec

_INITIAL_SEED = 0
_DRY_ROWS = 2


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A module in evaluation mode, and what it takes and gives."""

    module: nn.Module
    spec: ModelSpec


def load_model(source: str) -> LoadedModel:
    """Load the model that a `model.source` string names.

    Weights that are not loaded from anywhere are drawn from a fixed seed: replicas of one source are one function,
    which is what makes their answers decodable. The global generator is left as it was.

    Args:
        source: one of the forms in the table above.

    Raises:
        BadSource: the string, what it names, or what that returns breaks a rule.
        WeightsUnavailable: pretrained weights are neither cached nor reachable.
    """
    parsed = parse_source(source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_INITIAL_SEED)
        loaded = _LOADERS[parsed.kind](parsed)
    if parsed.weights is not None:
        _load_weights(parsed, loaded.module, Path(parsed.weights))
    loaded.module.eval()
    return loaded


def library_of(source: str) -> str | None:
    """The library that loading a model imports and that takes seconds, if any: processes that fork import it first.

    What a user's own module imports is not known; it may start threads.

    Raises:
        BadSource: the string breaks a rule.
    """
    parsed = parse_source(source)
    if parsed.kind in _LIBRARIES:
        return parsed.kind
    if parsed.kind != "builtin":
        return None
    if parsed.target in _PACKAGED:
        return "timm"
    model = BUILTINS.get(parsed.target)
    return None if model is None else model.library


def require_builtin(source: Source) -> None:
    """Make sure that a builtin source names a model that there is.

    Raises:
        BadSource: it does not.
    """
    if source.target not in BUILTINS and source.target not in _PACKAGED:
        names = ", ".join((*BUILTINS, *_PACKAGED))
        raise BadSource(f"{source.text}: a built-in model must be one of {names}; got {source.target!r}")


def _load_builtin(source: Source) -> LoadedModel:
    require_builtin(source)
    packaged = _PACKAGED.get(source.target)
    if packaged is not None:
        if source.adapted is not None:
            adapted_weights(source, source.target)  # there are none: it says so
        return _from_hub(source, packaged(source))
    model = BUILTINS[source.target]
    if not model.weights.is_file():
        raise WeightsUnavailable(
            f"{source.text}: there is no {model.weights}: run `unstraggle train {model.name}` first"
        )
    module = model.make()
    weights = model.weights if source.adapted is None else adapted_weights(source, model.name)
    module.load_state_dict(safetensors.torch.load_file(weights))
    data = DATASETS[model.dataset]
    spec = float_spec(
        source.text,
        input_shape=data.item_shape,
        output_shape=(len(data.classes),),
        classes=data.classes,
    )
    return LoadedModel(module, spec)


def _load_weights(source: Source, module: nn.Module, path: Path) -> None:
    """Load a file over a model's weights.

    Raises:
        BadSource: there is no such file, or it does not hold this model's weights.
    """
    if not path.is_file():
        found = f"{path} is none" if path.exists() else f"there is no {path}"
        raise BadSource(f"{source.text}: weights must be a file; {found} (working directory {Path.cwd()})")
    try:
        tensors = safetensors.torch.load_file(path)
        module.load_state_dict(tensors)
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise BadSource(
            f"{source.text}: {path} must be a safetensors file with this model's weights; {reason}"
        ) from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise BadSource(f"{source.text}: weights must be finite; {name} in {path} is not")


def _load_timm(source: Source) -> LoadedModel:
    return _from_hub(source, load_timm(source))


def _load_torchvision(source: Source) -> LoadedModel:
    return _from_hub(source, load_torchvision(source))


def _from_hub(source: Source, model: HubModel) -> LoadedModel:
    return _with_dry_run(source, model.module, model.input_shape, labels=model.classes)


def _load_torchscript(source: Source) -> LoadedModel:
    path = Path(source.target)
    if not path.is_file():
        raise BadSource(
            f"{source.text}: {path} must be a file; there is none (working directory {Path.cwd()})"
        )
    if source.input_shape is None:
        raise BadSource(
            f"{source.text}: a torchscript source must say its input shape; {_shape_hint(source)}"
        )
    try:
        with warnings.catch_warnings():
            # torch announces the end of TorchScript on every load; users of old exports know.
            warnings.simplefilter("ignore", FutureWarning)
            module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition(". ")[0]
        raise BadSource(
            f"{source.text}: {path} must be a TorchScript archive; torch says: {reason}"
        ) from error
    return _with_dry_run(source, module, source.input_shape, platform="pytorch_torchscript")


def _load_python(source: Source) -> LoadedModel:
    module_name, _, factory_name = source.target.partition(":")
    if not module_name or not factory_name:
        raise BadSource(f"{source.text}: a python source must be python:module:factory")
    factory = getattr(_import(source, module_name), factory_name, None)
    if not callable(factory):
        raise BadSource(
            f"{source.text}: {module_name} must have a callable {factory_name!r}; got {factory!r}"
        )
    try:
        made = factory()
    except Exception as error:
        raise BadSource(f"{source.text}: {factory_name}() raised {type(error).__name__}: {error}") from error
    match made:
        case nn.Module():
            return _without_spec(source, made)
        case (nn.Module() as module, ModelSpec() as spec):
            return LoadedModel(module, replace(spec, source=source.text))
    raise BadSource(
        f"{source.text}: {factory_name}() must return a torch.nn.Module, or one and its ModelSpec; "
        f"got {type(made).__name__}"
    )


def _import(source: Source, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise BadSource(
            f"{source.text}: module {name!r} must be importable from {here}; "
            f"importing it raised {type(error).__name__}: {error}"
        ) from error


def _without_spec(source: Source, module: nn.Module) -> LoadedModel:
    shape = source.input_shape or getattr(module, "input_shape", None)
    if shape is None:
        raise BadSource(
            f"{source.text}: without a ModelSpec the input shape must come from the source or from the module's "
            f"attribute input_shape; {_shape_hint(source)}"
        )
    return _with_dry_run(source, module, tuple(shape))


def _shape_hint(source: Source) -> str:
    return f"for images of 3 x 224 x 224 write {source.kind}:{source.target}?input_shape=3,224,224"


def _with_dry_run(
    source: Source,
    module: nn.Module,
    input_shape: tuple[int, ...],
    *,
    labels: tuple[str, ...] = (),
    platform: str = "pytorch",
) -> LoadedModel:
    """Learn the output's shape from a run on zeros."""
    module.eval()
    zeros = torch.zeros(_DRY_ROWS, *input_shape)
    try:
        with torch.inference_mode():
            output = module(zeros)
    except Exception as error:
        raise BadSource(
            f"{source.text}: the model must take float32 rows of shape {list(input_shape)}; "
            f"a run on zeros raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(output, Tensor) or output.dim() < 2 or len(output) != _DRY_ROWS:
        found = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise BadSource(
            f"{source.text}: the model must return one tensor with a row per input row; "
            f"from {_DRY_ROWS} rows it made {found}"
        )
    shape = tuple(output.shape[1:])
    known = labels if len(labels) == shape[-1] else ()
    spec = float_spec(
        source.text, input_shape=input_shape, output_shape=shape, platform=platform, classes=known
    )
    return LoadedModel(module, spec)


_LIBRARIES = ("timm", "torchvision")
"""Kinds of sources that are named after the library they come from."""

_PACKAGED: Mapping[str, Callable[[Source], HubModel]] = MappingProxyType(
    {EFFICIENTNET_LITE0: load_efficientnet_lite0}
)
"""Built-in models whose weights come in a package of their own."""

_LOADERS: Mapping[str, Callable[[Source], LoadedModel]] = MappingProxyType(
    {
        "builtin": _load_builtin,
        "timm": _load_timm,
        "torchvision": _load_torchvision,
        "torchscript": _load_torchscript,
        "python": _load_python,
    }
)

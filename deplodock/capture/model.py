"""Models of a local Hugging Face folder: the whole forward pass, a part of it, or one of its repeated layers, as a module
with inputs.

    captured = capture_model("path/to/model", layer=0, sequence=128)

transformers builds the model from config.json; nothing here knows a family. What a model is called with follows from the
names of its forward's arguments, and the layers are the largest list of modules of one class. Weights come from the
folder's safetensors files; where there are none they are drawn: vectors that scale around 1, biases around 0, matrices
with a spread of (inputs of a row)^-1/2, each from a seed of its own name.
"""
from __future__ import annotations

import functools
import inspect
import json
import math
import zlib
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch import nn

from deplodock.capture.closed import is_mask
from deplodock.errors import BadWeights, NoModel, ToolMissing, UnsupportedModel, UsageError

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
INPUTS = ("input_ids", "pixel_values", "input_features", "decoder_input_ids")
"""Arguments of a forward that are given, where it has them; all others are left at what they are by default."""


def model_example(folder: Path | str, layer: int | None = None, sequence: int = 128, batch: int = 1, dtype: str | None = None,
                  device: torch.device | str = "cpu", seed: int | None = 0,
                  part: str | None = None) -> tuple[nn.Module, tuple, dict]:
    """A model, its part, or its (or the part's) layer of that number, and what it is called with: arguments and keyword
    arguments.

    part: a module of the model by its path, as `encoder`. sequence: tokens; the other sizes are the configuration's.
    dtype: of the weights (f32, bf16, f16); without it the configuration's. seed: None for weights that hold nothing. A part
    or layer is called with what the model calls it with, drawn tokens in; its mask is a constant.

    NoModel for a folder without a readable config.json, UnsupportedModel for one that transformers cannot build or call,
    BadWeights for safetensors files that are damaged or do not fit, UsageError for a part or layer that the model lacks,
    ToolMissing where transformers is not installed.
    """
    folder = Path(folder)
    folder = folder.parent if folder.name == "config.json" else folder
    config = _config(folder)
    model = _model(folder, config, dtype, device)
    given = _inputs(model, config, batch, sequence, device, seed)
    chosen = _part(model, part)
    if layer is not None:
        layers = _layers(chosen)
        if not 0 <= layer < len(layers):
            raise UsageError(title=f"there is no layer {layer}", expected=f"a layer of {len(layers)}, counted from 0",
                             found=f"--layer {layer}", advice=f"pass --layer 0 to --layer {len(layers) - 1}")
        chosen = layers[layer]
    if chosen is model:
        _drawn(model.modules(), model, device, seed)
        return returning_tensors(model), (), given
    args, named, masks = _called_with(model, chosen, given, device, seed)
    _drawn(chosen.modules(), model, device, seed)
    return returning_tensors(chosen, masks), args, named


def returning_tensors(model: nn.Module, fixed: Mapping[str, torch.Tensor] = {}) -> nn.Module:
    """The model, whose forward returns its logits or its last hidden states, else all tensors of what it returned.

    fixed: arguments that are constants of the program, by name.
    """
    whole = model.forward

    @functools.wraps(whole)
    def forward(*args, **named):
        out = whole(*args, **named, **fixed)
        if isinstance(out, dict):
            main = next((out[k] for k in ("logits", "last_hidden_state") if k in out), None)
            return tuple(v for v in out.values() if isinstance(v, torch.Tensor)) if main is None else main
        return out
    model.forward = forward
    return model


# ---- the model -------------------------------------------------------------------------------------------------------

def _config(folder: Path):
    """transformers' configuration of a folder."""
    path = folder / "config.json"
    try:
        kind = json.loads(path.read_text()).get("model_type")
    except FileNotFoundError as error:
        raise NoModel(folder=folder, found="no config.json in it" if folder.is_dir() else "nothing of this name") from error
    except (OSError, ValueError, AttributeError) as error:
        raise NoModel(folder=folder, found=getattr(error, "strerror", None) or f"config.json is no JSON object: {error}") from error
    try:
        import transformers
    except ImportError as error:
        raise ToolMissing(tool="transformers", purpose="models are built from their configuration",
                          advice="pip install 'deplodock[models]'") from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, KeyError, OSError) as error:
        raise UnsupportedModel(folder=folder, found=f"model_type {kind!r}") from error


def _model(folder: Path, config, dtype: str | None, device) -> nn.Module:
    """The model in evaluation mode; parameters are on the meta device where the folder has no weights."""
    import transformers
    wanted = DTYPES[dtype] if dtype else getattr(config, "dtype", None) or torch.float32
    name = (config.architectures or ("none",))[0]
    made = getattr(transformers, name, None)
    if not (inspect.isclass(made) and issubclass(made, nn.Module)):
        raise UnsupportedModel(folder=folder, found=f"architecture {name}")
    files = sorted(folder.glob("*.safetensors"))
    if files:
        model = _loaded(made, folder, files, wanted).to(device)
    else:
        before = torch.get_default_dtype()
        torch.set_default_dtype(wanted)
        try:
            with _parameters_on_meta():
                model = made(config)
        except (ValueError, KeyError, AttributeError, ImportError, TypeError) as error:
            raise UnsupportedModel(folder=folder, found=f"{name}: {type(error).__name__}: {error}") from error
        finally:
            torch.set_default_dtype(before)
        for module in model.modules():
            for key, b in module._buffers.items():
                module._buffers[key] = b if b is None else b.to(device)
    return model.eval().requires_grad_(False)


def _loaded(made: type, folder: Path, files: list[Path], dtype: torch.dtype) -> nn.Module:
    """A model with the folder's weights, which stay in the files, mapped into memory, where the dtype is theirs."""
    from safetensors import SafetensorError, safe_open
    for path in files:
        try:
            with safe_open(path, "pt") as opened:
                opened.keys()
        except (SafetensorError, OSError) as error:
            raise BadWeights(file=path.name, found=str(error)) from error
    try:
        model, told = made.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True,
                                           use_safetensors=True, ignore_mismatched_sizes=True)
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise BadWeights(file=files[0].name, found=(str(error).splitlines() or [type(error).__name__])[0]) from error
    if told["missing_keys"]:
        raise BadWeights(file=files[0].name, found=f"no {sorted(told['missing_keys'])[0]}, one of {len(told['missing_keys'])} missing")
    if told["mismatched_keys"]:
        name, held, needed = sorted(told["mismatched_keys"])[0]
        raise BadWeights(file=files[0].name, found=f"{name} of shape {tuple(held)} where the model has {tuple(needed)}")
    return model


@contextmanager
def _parameters_on_meta():
    """New parameters take no memory, buffers hold what the model computes for them."""
    register = nn.Module.register_parameter

    def on_meta(self, name, parameter):
        register(self, name, parameter if parameter is None else nn.Parameter(parameter.to("meta"), parameter.requires_grad))
    with mock.patch.object(nn.Module, "register_parameter", on_meta):
        yield


def _drawn(modules, model: nn.Module, device, seed: int | None) -> None:
    """Draws those parameters of modules that hold nothing yet; parameters that are one tensor stay one."""
    names = {id(p): name for name, p in model.named_parameters()}
    for module in modules:
        for key, p in module._parameters.items():
            if p is None or not p.is_meta:
                continue
            name = names[id(p)]
            made = torch.empty(p.shape, dtype=p.dtype, device=device)
            if seed is not None:
                made.normal_(generator=torch.Generator(device).manual_seed(zlib.crc32(f"{seed} {name}".encode())))
                if p.ndim > 1:
                    made *= 1 if isinstance(module, nn.Embedding) else math.prod(p.shape[1:]) ** -0.5
                else:
                    made = 1 + 0.1 * made if key == "weight" else 0.1 * made
            made = nn.Parameter(made, requires_grad=False)
            names[id(made)] = name
            for other in model.modules():
                for k, q in other._parameters.items():
                    if q is p:
                        other._parameters[k] = made


# ---- what it is called with ------------------------------------------------------------------------------------------

def _inputs(model: nn.Module, config, batch: int, sequence: int, device, seed: int | None) -> dict:
    """Drawn inputs for those of INPUTS that the model's forward takes, and no cache."""
    generator = torch.Generator(device).manual_seed(seed or 0)
    takes = inspect.signature(model.forward).parameters
    text = config.get_text_config()
    vision = getattr(config, "vision_config", config)

    def ids() -> torch.Tensor:
        return torch.randint(0, text.vocab_size, (batch, sequence), generator=generator, device=device)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=device).to(model.dtype)
    given: dict = {}
    for name in INPUTS:
        if name not in takes:
            continue
        match name:
            case "input_ids" | "decoder_input_ids": given[name] = ids()
            case "pixel_values":
                size = getattr(vision, "image_size", 224)
                height, width = size if isinstance(size, (tuple, list)) else (size, size)
                given[name] = normal(batch, vision.num_channels, height, width)
            case "input_features":
                given[name] = normal(batch, config.num_mel_bins, 2 * config.max_source_positions)
    if not given:
        raise UnsupportedModel(folder=config.name_or_path or "the model",
                               found=f"a forward that takes none of {', '.join(INPUTS)}")
    return given | ({"use_cache": False} if "use_cache" in takes else {})


def _part(model: nn.Module, path: str | None) -> nn.Module:
    try:
        return model if path is None else model.get_submodule(path)
    except AttributeError:
        raise UsageError(title=f"there is no part {path!r}", found=f"--part {path}", advice="pass a module's path",
                         expected=f"a module of the model, as {', '.join(k for k, _ in model.named_children())}") from None


def _layers(model: nn.Module) -> nn.ModuleList:
    """The largest list of modules of one class, by parameters."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len({type(x) for x in m}) == 1]
    if not lists:
        raise UsageError(title="the model has no layers", expected="a model with a list of modules of one class",
                         found=type(model).__name__, advice="leave --layer out to take the whole model")
    return max(lists, key=lambda m: sum(p.numel() for p in m.parameters()))


class _Reached(Exception):
    """The layer is about to be called."""


def _called_with(model: nn.Module, layer: nn.Module, given: dict, device,
                 seed: int | None) -> tuple[tuple, dict, dict[str, torch.Tensor]]:
    """What a module of the model is called with, found by running the model up to it: arguments, keyword arguments, and
    those that are masks, by name. Only what runs is drawn."""
    found: list[tuple[tuple, dict]] = []

    def before(module, args, named):
        if module is layer:
            found.append((args, named))
            raise _Reached
        _drawn([module], model, device, seed)
    hooks = [m.register_forward_pre_hook(before, with_kwargs=True) for m in model.modules()]
    try:
        with torch.no_grad():
            model(**given)
    except _Reached:
        pass
    finally:
        for h in hooks:
            h.remove()
    if not found:
        raise UnsupportedModel(folder=type(model).__name__, found=f"a forward that does not call its {type(layer).__name__}")
    (args, named), = found
    takes = inspect.signature(layer.forward).parameters
    places = [p.name for p in takes.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    first = next((i for i, v in enumerate(args[:len(places)]) if _masks(v)), len(args))
    args, named = args[:first], dict(zip(places[first:], args[first:])) | named
    more = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    named = {k: v for k, v in named.items() if (more or k in takes) and not k.startswith(("use_cache", "past_key"))}
    named = {k: v for k, v in named.items() if v is None or isinstance(v, (torch.Tensor, tuple, bool, int, float))}
    masks = {k: v for k, v in named.items() if _masks(v)}
    return args, {k: v for k, v in named.items() if k not in masks}, masks


def _masks(value) -> bool:
    return isinstance(value, torch.Tensor) and is_mask(value)

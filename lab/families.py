"""Every causal family of transformers, by the configs of its own tests: decoded as a module and as a folder, and compared.

    python -m lab families /tmp/unpacked/tests --only gpt_neo,llama

TESTS is the folder `tests` of a checkout of transformers, near the installed version; nothing of it is copied. From each
family's model tester comes a small config. Its windows and chunks are shortened, so that prompts are longer than each, and its
matrices are drawn large, so that a wrong position or mask changes tokens. A token counts as wrong where `generate` gives
another one and the module's own full forward scores it lower than its best; log-probabilities are compared with the module's.
"""

from __future__ import annotations

import importlib
import json
import logging
import multiprocessing
import os
import re
import sys
import tempfile
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import decgraph
from decgraph import cache
from decgraph.errors import DecError

PROMPT, NEW, WINDOW = 70, 12, 16
CLOSE = 1e-3  # of scores: two tokens of which either may be taken
Row = dict[str, str]


def command(
    tests: Annotated[Path, Argument(help="the folder tests of a checkout of transformers")],
    only: Annotated[str, Option(help="families, comma separated")] = "",
    seconds: Annotated[int, Option(help="the longest that one class may take")] = 120,
    processes: Annotated[int, Option()] = 1,
    out: Annotated[Path | None, Option(help="a JSON file for the rows")] = None,
) -> None:
    """Print a row for each class, and how many were equal, refused, wrong or raised something else."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    fresh = Path(tempfile.mkdtemp())  # every comparison anew, but what was compiled
    if (cache.folder() / "native").is_dir():
        (fresh / "native").symlink_to(cache.folder() / "native")
    os.environ["DECGRAPH_CACHE"] = str(fresh)
    import torch

    logging.getLogger("decgraph").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    sys.path[:0] = [str(tests.resolve().parent), str(tests.resolve().parent / "utils")]
    _imported("tests.causal_lm_tester")  # once, for all processes
    importlib.import_module("transformers.integrations.ggml")
    names = only.split(",") if only else sorted(p.name for p in (tests / "models").iterdir() if p.is_dir())
    rows: dict[str, Row] = {}
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        waiting = [(name, pool.apply_async(_family, (name, seconds))) for name in names]
        for name, result in waiting:
            try:
                found = result.get(timeout=seconds * 8)
            except Exception as error:  # a family's process that ended or does not
                found = {name: {"made": f"exception: {type(error).__name__}"}}
            for kind, row in found.items():
                print(f"{kind:44}", "; ".join(f"{at}: {said}" for at, said in row.items()), flush=True)
            rows |= found
            if out is not None:
                out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    ways = dict.fromkeys(way for row in rows.values() for way in row)
    for way in ways:
        print(f"{way:30}", dict(Counter(row[way].split(":")[0].split(" ")[0] for row in rows.values() if way in row)))


def _family(name: str, seconds: int) -> dict[str, Row]:
    """The rows of a family's causal classes."""
    import signal

    import torch
    import transformers

    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    rows: dict[str, Row] = {}
    for kind, make in _classes(name):
        signal.alarm(seconds)
        try:
            module = make()
        except unittest.SkipTest:
            continue
        except Exception as error:
            rows[kind] = {"made": f"not: {type(error).__name__}: {str(error)[:80]}"}
            continue
        finally:
            signal.alarm(0)
        signal.alarm(seconds)
        try:
            rows[kind] = _row(module)
        except Exception as error:
            rows[kind] = {"row": f"exception: {type(error).__name__}: {str(error)[:120]}"}
        finally:
            signal.alarm(0)
    return rows


def _classes(name: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The causal classes that a family's tests name, and how a module of each is made."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    causal = {n for v in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values() for n in ([v] if isinstance(v, str) else v)}
    seen: set[str] = set()
    for file in sorted(Path(sys.path[0], "tests", "models", name).glob("test_modeling_*.py")):
        try:
            tests = _imported(f"tests.models.{name}.{file.stem}")
        except Exception as error:
            yield file.stem, _raising(error)
            continue
        for case in [v for v in vars(tests).values() if isinstance(v, type) and issubclass(v, unittest.TestCase)]:
            if case.__module__ != tests.__name__ or not hasattr(case, "setUp"):
                continue
            test: Any = case()
            try:
                test.setUp()
                tester = test.model_tester
                classes = list(getattr(test, "all_model_classes", None) or getattr(tester, "all_model_classes", None) or ())
                classes += [c for c in getattr(test, "all_generative_model_classes", ()) or () if c not in classes]
                config = _config(tester)
            except Exception:  # a case without a tester: of integration
                continue
            for kind in classes:
                said = kind.__name__
                if said in seen or not (said in causal or said.endswith(("ForCausalLM", "LMHeadModel"))):
                    continue
                if hasattr(transformers, said):
                    seen.add(said)
                    yield said, partial(hot, kind, config)


def _imported(name: str) -> Any:
    """A module of tests. What those of another version import beside models, the installed one may lack: it is left blank."""
    import types

    for _ in range(50):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name in sys.modules:
                raise
            sys.modules[error.name] = types.ModuleType(error.name)
            sys.modules[error.name].__spec__ = ModuleSpec(error.name, None)
        except ImportError as error:
            missing = re.match(r"cannot import name '(\w+)'", str(error))
            if error.name is None or missing is None:
                raise
            setattr(sys.modules[error.name], missing[1], type(missing[1], (), {}))
    raise ImportError(name)


def _raising(error: Exception) -> Callable[[], Any]:
    def make() -> Any:
        raise error

    return make


def _config(tester: Any) -> Any:
    if hasattr(tester, "prepare_config_and_inputs_for_common"):
        return tester.prepare_config_and_inputs_for_common()[0]
    return tester.get_config()


def hot(kind: Any, config: Any) -> Any:
    """A module of a class with short windows and matrices drawn large."""
    import copy

    import torch

    config = copy.deepcopy(config)
    inner = config.get_text_config()
    if isinstance(inner, type(config)) or kind.config_class is not None and isinstance(inner, kind.config_class):
        config = inner
    for part in {id(config): config, id(inner): inner}.values():
        for name, value in part.to_dict().items():
            if type(value) is int and value > WINDOW and _a_length(name):
                setattr(part, name, WINDOW)
    if getattr(config, "is_encoder_decoder", False):
        raise unittest.SkipTest("it has an encoder")
    if hasattr(config, "is_decoder"):
        config.is_decoder = True
    torch.manual_seed(0)
    with torch.no_grad():
        module = kind(config).eval()
        drawn = torch.Generator().manual_seed(1)
        embedding = module.get_input_embeddings()
        for weight in module.parameters():
            if weight.dim() >= 2 and weight.is_floating_point():
                size = 1.0 if embedding is not None and weight is embedding.weight else 1.5 / weight.shape[-1] ** 0.5
                weight.data = torch.randn(weight.shape, generator=drawn) * size
    return module


def _a_length(name: str) -> bool:
    return any(word in name for word in ("window", "chunk", "local_attention", "attention_span")) and "layer" not in name


def _row(module: Any) -> Row:
    """What each way and algorithm gave."""
    import copy

    import torch

    text = module.config.get_text_config()
    limit = min(int(getattr(text, name, 0) or 10**6) for name in ("max_position_embeddings", "n_positions", "seq_length"))
    limit = limit if limit > 0 else 10**6
    count = max(4, min(PROMPT, limit - NEW - 1))
    special = {t for n in ("bos", "eos", "pad") for t in _listed(getattr(text, f"{n}_token_id", None))}
    drawn = torch.Generator().manual_seed(2)
    allowed = torch.tensor([t for t in range(3, int(text.vocab_size)) if t not in special])
    ids = allowed[torch.randint(0, len(allowed), (1, count), generator=drawn)]
    ids[:, count // 2 :] = ids[:, : count - count // 2].clone()  # so that lookup finds drafts
    drafter = copy.deepcopy(module)
    with torch.no_grad():
        for weight in drafter.parameters():
            if weight.dim() > 1 and weight.is_floating_point():
                weight.data = weight + torch.randn(weight.shape, generator=drawn) * weight.std() * 0.05
    row: Row = {}
    wanted = _own(module, ids)
    if isinstance(wanted, str):
        return {"generate": wanted}
    for algorithm, more in (
        ("autoregressive", {}),
        ("speculative", {"drafter": drafter, "gamma": 3}),
        ("prompt_lookup", {"k": 4}),
    ):
        row[algorithm] = _tried(partial(_as_module, module, ids, wanted, algorithm, more))
        if row[algorithm].startswith("refused"):
            row["speculative"] = row["prompt_lookup"] = row[algorithm]
            break
    row["padded"] = (
        row["autoregressive"] if row["autoregressive"].startswith("refused") else _tried(lambda: _padded(module, ids))
    )
    with tempfile.TemporaryDirectory() as place:
        try:
            module.save_pretrained(place)
        except Exception as error:
            return {**row, "folder": f"not saved: {type(error).__name__}"}
        for algorithm in ("autoregressive", "prompt_lookup"):
            row[f"folder, {algorithm}"] = _tried(partial(_as_folder, module, ids, wanted, algorithm, place))
        row["log-probabilities"] = _tried(lambda: _logprobs(module, place, ids))
    return row


def _listed(value: Any) -> list[int]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _own(module: Any, ids: Any) -> list[int] | str:
    try:
        out = module.generate(ids, attention_mask=ids * 0 + 1, do_sample=False, max_new_tokens=NEW, eos_token_id=None,
                              pad_token_id=0)  # fmt: skip
    except Exception as error:
        return f"none: {type(error).__name__}: {str(error)[:80]}"
    return out[0, ids.shape[1] :].tolist()


def _module(module: Any, ids: Any, algorithm: str, more: dict[str, Any]) -> list[int]:
    out = module.generate(ids, attention_mask=ids * 0 + 1, do_sample=False, max_new_tokens=NEW, eos_token_id=None,
                          pad_token_id=0, custom_generate=decgraph.hf(algorithm, **more))  # fmt: skip
    return out[0, ids.shape[1] :].tolist()


def _as_module(module: Any, ids: Any, wanted: list[int], algorithm: str, more: dict[str, Any]) -> str:
    return _judged(module, ids, _module(module, ids, algorithm, more), wanted)


def _as_folder(module: Any, ids: Any, wanted: list[int], algorithm: str, place: str) -> str:
    return _judged(module, ids, _run(place, ids, algorithm).tokens, wanted)


def _run(place: str, ids: Any, algorithm: str, **more: Any) -> Any:
    result = decgraph.run(algorithm, ids[0].tolist(), {"target": place}, max_tokens=NEW, temperature=0, eos=(), **more)
    if result.error is not None:
        raise result.error
    return result


def _tried(run: Callable[[], str]) -> str:
    try:
        return run()
    except DecError as error:
        said = " ".join(str(error).split())
        internal = any(word in said for word in ("has no attribute", "IndexError", "RuntimeError", "TypeError", "KeyError:"))
        return f"refused{' with an internal error' if internal else ''}: {said[:150]}"
    except TimeoutError:
        raise
    except Exception as error:
        return f"exception: {type(error).__name__}: {str(error)[:120]}"


def _scores(module: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return module(input_ids=ids, use_cache=False).logits[0].double()


def _judged(module: Any, ids: Any, mine: Any, wanted: list[int]) -> str:
    import torch

    mine = list(mine)
    if mine == wanted:
        return "equal"
    if len(mine) != len(wanted):
        return f"wrong: {len(mine)} tokens, and generate gives {len(wanted)}"
    scores = _scores(module, torch.cat([ids, ids.new_tensor([mine])], 1))[ids.shape[1] - 1 : -1]
    off = float((scores.max(-1).values - scores[range(NEW), mine]).max())
    if off <= CLOSE * float(scores.abs().max()):
        return "equal to its full forward, which generate is not"
    return f"wrong: {sum(a != b for a, b in zip(mine, wanted, strict=True))} tokens differ, by scores of {off:.1e}"


def _padded(module: Any, ids: Any) -> str:
    import torch

    rows = ids.repeat(3, 1)
    mask = torch.ones_like(rows)
    for row, pads in ((0, 5), (2, 23)):
        mask[row, : min(pads, ids.shape[1] - 2)] = 0
        rows[row, : min(pads, ids.shape[1] - 2)] = 0
    given = {"attention_mask": mask, "do_sample": False, "max_new_tokens": NEW, "eos_token_id": None, "pad_token_id": 0}
    wanted = module.generate(rows, **given)[:, ids.shape[1] :].tolist()
    mine = module.generate(rows, **given, custom_generate=decgraph.hf("autoregressive"))[:, ids.shape[1] :].tolist()
    if mine == wanted:
        return "equal"
    said = [_judged(module, rows[n : n + 1, mask[n].bool()], mine[n], wanted[n]) for n in range(3)]
    return next((one for one in said if one.startswith("wrong")), "equal to rows alone, which generate's batch is not")


def _logprobs(module: Any, place: str, ids: Any) -> str:
    import torch

    result = _run(place, ids, "autoregressive", logprobs=0)
    whole = torch.cat([ids, ids.new_tensor([result.tokens])], 1)
    wanted = _scores(module, whole).log_softmax(-1)[ids.shape[1] - 1 : -1]
    mine = torch.tensor(result.logprobs.tokens)
    off = float((mine - wanted[range(NEW), list(result.tokens)]).abs().max())
    if off > 1e-4:  # some modules give others with a cache than without
        own = module.generate(ids, attention_mask=ids * 0 + 1, do_sample=False, max_new_tokens=NEW, eos_token_id=None,
                              pad_token_id=0, output_logits=True, return_dict_in_generate=True)  # fmt: skip
        if own.sequences[0, ids.shape[1] :].tolist() == list(result.tokens):
            rows = torch.cat(own.logits).double().log_softmax(-1)
            off = float((mine - rows[range(NEW), list(result.tokens)]).abs().max())
    return f"{'equal' if off <= 1e-4 else 'wrong'}: {off:.0e}"

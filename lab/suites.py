"""Run the server tests of llama.cpp and of vLLM, which nobody here wrote, against `decgraph serve`.

Nothing of theirs is in the repository: an argument names the folder of an unpacked sdist (llama-cpp-python, vllm), whose tests
run in place, with servers of ours where they start theirs. lab/suites.toml has the versions, the files that apply, and which
tests fail for which documented reason; every other failure, and every status 5xx, is an error. Translated are llama.cpp's
`/completion` and its names of models and versions; texts of its model are not compared. pytest-asyncio and filelock are needed.
Writes lab/results/suites.json and the table of docs/serve.md.
"""

from __future__ import annotations

import base64
import importlib
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Annotated, Any
from unittest.mock import MagicMock

from typer import Argument, Exit, Option

from decgraph import zoo
from lab import pages
from lab.serving import server

FACTS = Path(__file__).with_suffix(".toml")
KINDS = {"text": "model's text or length", "refused": "refused with a clear 4xx", "difference": "documented differences"}
COUNTED = re.compile(r'requests_total{route="(.*?)",status="(\d+)"} (\d+)')
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Servers:
    """Servers by their options, two at a time: each test of llama.cpp's starts one, most of them the same."""

    def __init__(self) -> None:
        self.running, self.folders = dict[tuple[str, ...], tuple[str, ExitStack]](), dict[str, str]()
        self.ended: Counter[str] = Counter()
        self.home = tempfile.TemporaryDirectory()

    def folder(self, model: str, template: str = CHATML) -> str:
        """A model's folder; the shipped ones, which are no chat models, get a template."""
        if model == "smollm2":
            return str(zoo.path(model))
        if template not in self.folders:
            made = Path(self.home.name) / str(len(self.folders))
            made.mkdir()
            for file in zoo.path(model).iterdir():
                (made / file.name).symlink_to(file)
            (made / "chat_template.jinja").write_text(template, "utf-8")
            self.folders[template] = str(made)
        return self.folders[template]

    def url(self, *options: str) -> str:
        """Where the server with these options is, without `/v1`."""
        if options not in self.running:
            self.end(left=1)
            stack = ExitStack()
            started = stack.enter_context(server("--algorithm", "autoregressive", "--max-concurrent", "4", *options))
            self.running[options] = started.url.removesuffix("/v1"), stack
        return self.running[options][0]

    def statuses(self) -> Counter[str]:
        """How often each status was answered so far; `/ready` has 503 until it is."""
        return sum((_statuses(url) for url, _ in self.running.values()), self.ended)

    def end(self, left: int) -> None:
        """End the oldest, until so many are left."""
        while len(self.running) > left:
            url, stack = self.running.pop(next(iter(self.running)))
            self.ended = self.ended + _statuses(url)
            stack.close()


def _statuses(url: str) -> Counter[str]:
    import httpx

    found: Counter[str] = Counter()
    for route, status, count in COUNTED.findall(httpx.get(url + "/metrics").text):
        found[status] += int(count) * (route != "/ready")
    return found


def asked(data: Any, plain: bool) -> Any:
    """A body of llama.cpp's, whose clients may name any model; plain: of `/completion`, in its words."""
    if not isinstance(data, dict):
        return data
    data = {key: value for key, value in data.items() if key != "model"}
    if plain:
        renamed = {"n_predict": "max_tokens", "return_tokens": "return_token_ids", "n_probs": "logprobs"}
        data = {renamed.get(key, key): value for key, value in data.items() if key != "response_fields"}
        if isinstance(data.get("logit_bias"), list):
            data["logit_bias"] = {str(token): bias for token, bias in data["logit_bias"]}
        prompt = data.get("prompt")
        data["prompt"] = [_text(part) for part in prompt] if isinstance(prompt, list) else _text(prompt)
    return data


def _text(part: Any) -> Any:
    return part["prompt_string"] if isinstance(part, dict) and set(part) == {"prompt_string"} else part


def answered(body: Any, plain: bool) -> Any:
    """An answer, or an event of a stream, with llama.cpp's name of a version and null for an empty content; plain: in the words
    of its `/completion`."""
    if not isinstance(body, dict) or "choices" not in body:
        return body
    if not plain:
        for choice in body["choices"]:
            if choice.get("delta", {}).get("content") == "":
                choice["delta"]["content"] = None
        return {**body, "system_fingerprint": "b-" + body["system_fingerprint"]}
    usage = body.get("usage") or {"prompt_tokens": 0, "completion_tokens": 0}
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    times = {"prompt_n": usage["prompt_tokens"] - cached, "cache_n": cached, "predicted_n": usage["completion_tokens"]}
    found = []
    for choice in body["choices"]:
        ended = choice["finish_reason"]
        one = {"content": choice["text"], "tokens": choice.get("token_ids") or [], "stop": bool(ended), "truncated": False}
        if ended:
            kind = "limit" if ended == "length" else "eos"
            one |= {"stop_type": kind, "has_new_line": "\n" in choice["text"], "timings": times}
        found.append(one)
    return found[0] if len(found) == 1 else found


def llama_cpp(folder: Path, servers: Servers) -> None:
    """Puts our servers and the translation into llama.cpp's `utils`, which its tests import, and into OpenAI's client."""
    import openai
    import requests

    sys.path.insert(0, str(folder))
    sys.modules.setdefault("wget", ModuleType("wget"))
    utils: Any = importlib.import_module("utils")
    process, whole, streamed = utils.ServerProcess, utils.ServerProcess.make_request, utils.ServerProcess.make_stream_request
    built = openai.OpenAI._build_request

    def start(self: Any, timeout_seconds: int = 0) -> None:
        template = Path(folder, self.chat_template_file).read_text("utf-8") if self.chat_template_file else CHATML
        room = min((self.n_ctx or 1024) // (1 if self.kv_unified else self.n_slots or 1), 1024)
        options = ["--model", servers.folder("target", template), "--max-context", str(room)]
        options += ["--name", (self.model_alias or "decgraph").split(",")[0]]
        options += ["--api-key", self.api_key] if self.api_key else []
        self.server_host, self.server_port = "127.0.0.1", int(servers.url(*options).rsplit(":", 1)[1])

    def told(self: Any, path: str, data: Any) -> tuple[str, Any, bool]:
        plain = path in ("/completion", "/completions")
        data = asked(data, plain)
        if isinstance(data, dict) and ("prompt" in data or "messages" in data):
            options = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.n_predict}
            data = {key: value for key, value in options.items() if value is not None} | data
            if plain and data.get("stream"):
                data |= {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True}
        return "/v1/completions" if plain else path, data, plain

    def make_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Any:
        path, data, plain = told(self, path, data)
        answer = whole(self, method, path, data, *rest, **more)
        answer.body, answer.headers = answered(answer.body, plain), requests.structures.CaseInsensitiveDict(answer.headers)
        return answer

    def make_stream_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Iterator[Any]:
        path, data, plain = told(self, path, data)
        for event in streamed(self, method, path, data, *rest, **more):
            if not plain or any(choice["text"] or choice["finish_reason"] for choice in event["choices"]):
                yield answered(event, plain)

    def without_model(self: Any, options: Any, **more: Any) -> Any:
        options.json_data = asked(options.json_data, False)
        return built(self, options, **more)

    process.start, process.stop = start, lambda self: utils.server_instances.discard(self)
    process.make_request, process.make_stream_request = make_request, make_stream_request
    openai.OpenAI._build_request = without_model  # type: ignore[method-assign]
    utils.match_regex = lambda regex, text: True
    utils.ServerPreset.load_all = staticmethod(lambda: None)


class Imitated:
    """Finds `vllm` and what is below: modules whose every name is a stand-in. What needs more tests vLLM's own classes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "vllm" else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        return MagicMock()

    def exec_module(self, module: Any) -> None:
        pass


def vllm(files: Sequence[str], servers: Servers) -> None:
    """Puts our servers, and modules that stand in for vLLM's, where its tests import them. files: whose model is SmolLM2."""
    import openai
    import transformers

    def model_of(test: FrameType) -> str:
        return servers.folder("smollm2" if Path(test.f_code.co_filename).name in files else "target")

    class Remote(nullcontext[Any]):
        """`tests.utils.RemoteOpenAIServer`, as far as tests use it."""

        def __init__(self, model: str, vllm_serve_args: Any, **_: Any) -> None:
            super().__init__(self)
            name = dict(zip(vllm_serve_args, vllm_serve_args[1:], strict=False)).get("--served-model-name", model)
            limits = ("--max-tokens", "128", "--max-queue", "256")  # an answer without a limit of its own takes no minutes
            self.url_root = servers.url("--model", model_of(sys._getframe(1)), "--name", name, *limits)

        def url_for(self, *parts: str) -> str:
            return "/".join([self.url_root, *(part.strip("/") for part in parts)])

        def get_client(self, kind: Any = openai.OpenAI, **more: Any) -> Any:
            return kind(base_url=self.url_for("v1"), api_key="none", max_retries=0, **more)

        def get_async_client(self, **more: Any) -> Any:
            return self.get_client(openai.AsyncOpenAI, **more)

    def tokenizer(tokenizer_name: str, **_: Any) -> Any:
        return transformers.AutoTokenizer.from_pretrained(model_of(sys._getframe(1)))

    sys.meta_path.insert(0, Imitated())
    sys.modules["tests.utils"] = utils = ModuleType("tests.utils")
    sys.modules.setdefault("pybase64", base64)
    utils.__dict__.update(RemoteOpenAIServer=Remote, ROCM_EXTRA_ARGS=[], VLLM_PATH=Path())
    size = transformers.AutoConfig.from_pretrained(zoo.path("target")).vocab_size
    meant = {
        "vllm.tokenizers.get_tokenizer": tokenizer,
        "vllm.config.ModelConfig": lambda *_, **__: SimpleNamespace(get_vocab_size=lambda: size),
        "vllm.model_executor.model_loader.weight_utils.download_weights_from_hf": lambda name, **_: name,
        "vllm.exceptions.VLLMValidationError": ValueError,
        "vllm.platforms.current_platform": SimpleNamespace(is_rocm=lambda: False, is_cuda=lambda: False),
    }
    for name, value in meant.items():
        module, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(module), attribute, value)


class Judge:
    """A plugin of pytest: which tests apply, and what came of them."""

    def __init__(self, suite: Mapping[str, Any], servers: Servers) -> None:
        self.suite, self.servers = suite, servers
        self.known = {name: entry["kind"] for entry in suite["known"] for name in entry["tests"]}
        self.tally, self.before = Counter[str](), Counter[str]()
        self.faults = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Tests without a server are of their own classes; others of what is not offered at all, so `leave`."""
        asks, leave = set(self.suite["fixtures"]), self.suite["leave"]
        items[:] = [i for i in items if not asks or asks & {*i.fixturenames, *i.function.__code__.co_names}]
        items[:] = [i for i in items if not any(word in i.nodeid for word in leave)]

    def pytest_runtest_logstart(self) -> None:
        self.before = self.servers.statuses()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped or (report.when != "call" and not report.failed):
            return
        found = self.servers.statuses() - self.before
        path, _, case = report.nodeid.partition("[")
        test = path.rsplit("/", 1)[-1].replace(".py::", "::")
        kinds = (
            kind for name, kind in self.known.items() if name == test or ("[" in name and f"{test}[{case}".startswith(name))
        )
        kind = "passed" if report.passed else next(kinds, "unknown")
        self.tally[kind] += 1
        clear = any(status.startswith("4") for status in found) or kind != "refused"
        if kind == "unknown" or not clear or any(status.startswith("5") for status in found):
            self.faults += 1
            said = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            print(f"\n{kind}: {report.nodeid}: {' '.join(said)[:500]} {dict(found)}", file=sys.stderr, flush=True)


def table() -> str:
    """The table of docs/serve.md, from the result file."""
    rows = [["suite", "applicable", "passed", *KINDS.values()], ["---"] * (3 + len(KINDS))]
    for name, row in pages.result("suites").items():
        rows.append([f"{name} ({row['of']})", *(str(row[column]) for column in ("applicable", "passed", *KINDS))])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def command(
    suite: Annotated[str, Argument(help="llama.cpp or vllm.")],
    source: Annotated[Path, Argument(help="The folder of the unpacked sdist.", exists=True)],
    only: Annotated[str, Option("-k", help="Tests by pytest's expression; nothing is written then.")] = "",
) -> None:
    """Run a suite; exit 1 if something failed that is no documented difference."""
    import pytest

    facts, servers = tomllib.loads(FACTS.read_text("utf-8"))[suite], Servers()
    folder = (source / facts["folder"]).resolve()
    if suite == "vllm":
        vllm(facts["smollm2"], servers)
    else:
        llama_cpp(folder, servers)
    judge = Judge(facts, servers)
    words = ["-q", "--tb=short", "--timeout=300", "--durations=12", "-Wignore", "-pno:cacheprovider", *facts["options"]]
    words += [f"--rootdir={folder}", f"--confcutdir={folder / facts['conftest']}", *(["-k", only] if only else [])]
    try:
        pytest.main([*words, *(str(folder / file) for file in facts["files"])], plugins=[judge])
    finally:
        servers.end(left=0)
    print(dict(judge.tally))
    if not only:
        row = {"of": facts["of"], "applicable": judge.tally.total(), **{kind: judge.tally[kind] for kind in ("passed", *KINDS)}}
        pages.keep("suites", {**pages.result("suites"), suite: row})
        page = pages.DOCS / "serve.md"
        page.write_text(pages.filled(page.read_text("utf-8"), {"suites": table}), "utf-8")
    raise Exit(1 if judge.faults or not judge.tally else 0)

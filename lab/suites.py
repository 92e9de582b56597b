"""Run the server tests of llama.cpp and of vLLM, which nobody here wrote, against `decgraph serve`.

Nothing of theirs is in the repository: an argument names the folder of an unpacked sdist (llama-cpp-python 0.3.36, vllm 0.33.0),
whose tests run in place, with servers of ours where they start theirs. lab/suites.toml says which files apply, and which tests
fail for which documented reason. Every other failure, and every status 5xx, is an error. The texts of llama.cpp's model are not
compared; its `/completion` is translated. pytest-asyncio and filelock are needed. Writes lab/results/suites.json and the table
of docs/serve.md.
"""

from __future__ import annotations

import atexit
import base64
import importlib
import re
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
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
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Servers:
    """Servers by their options, a few at a time: each test of llama.cpp's starts one, most of them the same."""

    def __init__(self, most: int = 2) -> None:
        self.most, self.found, self.folders = most, dict[tuple[str, ...], tuple[str, ExitStack]](), dict[str, str]()
        self.seen: Counter[str] = Counter()
        self.home = tempfile.TemporaryDirectory()
        atexit.register(self.close)

    def folder(self, model: str, template: str | None) -> str:
        """A model's folder; the shipped ones, which are no chat models, get a template."""
        if model == "smollm2":
            return str(zoo.path(model))
        text = template or CHATML
        if text not in self.folders:
            made = Path(self.home.name) / str(len(self.folders))
            made.mkdir()
            for file in zoo.path(model).iterdir():
                (made / file.name).symlink_to(file)
            (made / "chat_template.jinja").write_text(text, "utf-8")
            self.folders[text] = str(made)
        return self.folders[text]

    def url(self, *options: str) -> str:
        """Where the server with these options is, without `/v1`."""
        if options not in self.found:
            while len(self.found) >= self.most:
                self.end(next(iter(self.found)))
            stack = ExitStack()
            running = stack.enter_context(server("--algorithm", "autoregressive", "--max-concurrent", "4", *options))
            self.found[options] = running.url.removesuffix("/v1"), stack
        self.found[options] = self.found.pop(options)  # the last to go
        return self.found[options][0]

    def statuses(self) -> Counter[str]:
        """How often the API has answered with each status, on all servers so far."""
        import httpx

        total = self.seen.copy()
        for url, _ in self.found.values():
            for route, status, count in re.findall(r'requests_total{route="(.*?)",status="(\d+)"} (\d+)', httpx.get(url + "/metrics").text):
                total[status] += int(count) * (route != "/ready")
        return total

    def end(self, options: tuple[str, ...]) -> None:
        kept = dict(self.found)
        self.found = {options: kept.pop(options)}
        self.seen = self.statuses()
        self.found.popitem()[1][1].close()
        self.found = kept

    def close(self) -> None:
        for options in list(self.found):
            self.end(options)
        self.home.cleanup()


def without_model(data: Any, plain: bool) -> Any:
    """llama.cpp's clients name any model; plain: what follows is of `/completion`, in its words."""
    if not isinstance(data, dict):
        return data
    data = {key: value for key, value in data.items() if key != "model"}
    if not plain:
        return data
    renamed = {"n_predict": "max_tokens", "return_tokens": "return_token_ids", "n_probs": "logprobs"}
    data = {renamed.get(key, key): value for key, value in data.items() if key != "response_fields"}
    if isinstance(data.get("logit_bias"), list):
        data["logit_bias"] = {str(token): bias for token, bias in data["logit_bias"]}
    prompt = data.get("prompt")
    text: Callable[[Any], Any] = lambda part: part.get("prompt_string", part) if isinstance(part, dict) and len(part) == 1 else part  # noqa: E731
    data["prompt"] = [text(part) for part in prompt] if isinstance(prompt, list) else text(prompt)
    return data


def completions(body: Any) -> Any:
    """An answer of `/v1/completions`, or an event of its stream, in the words of llama.cpp's `/completion`."""
    if "choices" not in body:
        return body
    usage = body.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    read, written = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    times = {"prompt_n": read - cached, "cache_n": cached, "predicted_n": written}
    found = []
    for choice in body["choices"]:
        ended = choice["finish_reason"]
        one = {"content": choice["text"], "tokens": choice.get("token_ids") or [], "stop": bool(ended), "truncated": False}
        if ended:
            one |= {"stop_type": "limit" if ended == "length" else "eos", "has_new_line": "\n" in choice["text"], "timings": times}
        found.append(one)
    return found[0] if len(found) == 1 else found


def theirs(body: Any) -> Any:
    """An answer, or an event of a stream, with two habits of llama.cpp's: how versions are named, and null for an empty content."""
    if isinstance(body, dict) and "choices" in body:
        body["system_fingerprint"] = "b-" + body["system_fingerprint"]
        for choice in body["choices"]:
            if choice.get("delta", {}).get("content") == "":
                choice["delta"]["content"] = None
    return body


def llama_cpp(folder: Path, servers: Servers) -> None:
    """Puts our servers and the translation into llama.cpp's `utils`, which its tests import."""
    sys.path.insert(0, str(folder))
    sys.modules.setdefault("wget", ModuleType("wget"))
    utils = importlib.import_module("utils")
    process, whole, streamed = utils.ServerProcess, utils.ServerProcess.make_request, utils.ServerProcess.make_stream_request
    utils.match_regex = lambda regex, text: True
    utils.ServerPreset.load_all = staticmethod(lambda: None)

    def start(self: Any, timeout_seconds: int = 0) -> None:
        template = Path(folder, self.chat_template_file).read_text("utf-8") if self.chat_template_file else None
        options = ["--model", servers.folder("target", template), "--name", (self.model_alias or "decgraph").split(",")[0]]
        room = (self.n_ctx or 1024) // (1 if self.kv_unified else self.n_slots or 1)
        options += ["--max-context", str(min(room, 1024))]
        options += ["--api-key", self.api_key] if self.api_key else []
        self.server_port = int(servers.url(*options).rsplit(":", 1)[1])
        self.server_host = "127.0.0.1"

    def asked(self: Any, path: str, data: Any) -> tuple[str, Any, bool]:
        plain = path in ("/completion", "/completions")
        data = without_model(data, plain)
        if isinstance(data, dict) and ("prompt" in data or "messages" in data):
            defaults = {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.n_predict}
            if "n_predict" in data or "max_completion_tokens" in data:
                del defaults["max_tokens"]
            data = {**{key: value for key, value in defaults.items() if value is not None}, **data}
            if plain and data.get("stream"):
                data["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
                data["return_token_ids"] = True
        return "/v1/completions" if plain else path, data, plain

    def make_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Any:
        path, data, plain = asked(self, path, data)
        answer = whole(self, method, path, data, *rest, **more)
        if answer.status_code == 200:
            answer.body = completions(answer.body) if plain else theirs(answer.body)
        return answer

    def make_stream_request(self: Any, method: str, path: str, data: Any = None, *rest: Any, **more: Any) -> Iterator[Any]:
        path, data, plain = asked(self, path, data)
        for event in streamed(self, method, path, data, *rest, **more):
            if not plain:
                yield theirs(event)
            elif any(choice["text"] or choice["finish_reason"] for choice in event["choices"]):
                yield completions(event)

    process.start, process.stop = start, lambda self: utils.server_instances.discard(self)
    process.make_request, process.make_stream_request = make_request, make_stream_request
    _any_model()


def _any_model() -> None:
    """OpenAI's client in tests of llama.cpp, whose server ignores the model's name: it asks for ours."""
    import openai

    plain = openai.OpenAI._build_request

    def built(self: Any, options: Any, **more: Any) -> Any:
        options.json_data = without_model(options.json_data, False)
        return plain(self, options, **more)

    openai.OpenAI._build_request = built  # type: ignore[method-assign]


class Imitated:
    """Finds `vllm` and what is below: modules whose every name is a stand-in. Tests that need more are of vLLM's own classes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "vllm" else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made = ModuleType(spec.name)
        made.__getattr__ = lambda name: MagicMock(name=name) if not name.startswith("__") else _missing(name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: ModuleType) -> None:
        pass


def _missing(name: str) -> Any:
    raise AttributeError(name)


def vllm(files: Sequence[str], servers: Servers) -> None:
    """Puts our servers, and modules that stand in for vLLM's, where its tests import them. files: whose model is SmolLM2."""
    import openai
    import transformers

    def model_of(test: FrameType) -> str:
        return servers.folder("smollm2" if Path(test.f_code.co_filename).name in files else "target", None)

    class Remote:
        """`tests.utils.RemoteOpenAIServer`, as far as tests use it."""

        DUMMY_API_KEY = "token-abc123"

        def __init__(self, model: str, vllm_serve_args: Any, **_: Any) -> None:
            words = list(vllm_serve_args)
            name = words[words.index("--served-model-name") + 1] if "--served-model-name" in words else model
            limit = ("--max-tokens", "128", "--max-queue", "256")  # an answer without a limit of its own takes no minutes
            self.url_root = servers.url("--model", model_of(sys._getframe(1)), "--name", name, *limit)

        def __enter__(self) -> Remote:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def url_for(self, *parts: str) -> str:
            return "/".join([self.url_root, *(part.strip("/") for part in parts)])

        def get_client(self, **more: Any) -> Any:
            return openai.OpenAI(base_url=self.url_for("v1"), api_key="none", max_retries=0, **more)

        def get_async_client(self, **more: Any) -> Any:
            return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key="none", max_retries=0, **more)

    sys.meta_path.insert(0, Imitated())  # type: ignore[arg-type]
    sys.modules["tests.utils"] = utils = ModuleType("tests.utils")
    sys.modules.setdefault("pybase64", base64)
    utils.__dict__.update(RemoteOpenAIServer=Remote, ROCM_EXTRA_ARGS=[], VLLM_PATH=Path())

    def tokenizer(tokenizer_name: str, **_: Any) -> Any:
        return transformers.AutoTokenizer.from_pretrained(model_of(sys._getframe(1)))

    importlib.import_module("vllm.tokenizers").__dict__["get_tokenizer"] = tokenizer
    size = transformers.AutoConfig.from_pretrained(zoo.path("target")).vocab_size
    importlib.import_module("vllm.config").__dict__["ModelConfig"] = lambda *_, **__: SimpleNamespace(get_vocab_size=lambda: size)
    weights = importlib.import_module("vllm.model_executor.model_loader.weight_utils")
    weights.__dict__["download_weights_from_hf"] = lambda name, **_: name
    importlib.import_module("vllm.exceptions").__dict__["VLLMValidationError"] = ValueError
    platform = SimpleNamespace(is_rocm=lambda: False, is_cuda=lambda: False, is_cpu=lambda: True)
    importlib.import_module("vllm.platforms").__dict__["current_platform"] = platform


class Judge:
    """A plugin of pytest: which tests apply, and what came of them."""

    def __init__(self, suite: Mapping[str, Any], servers: Servers) -> None:
        self.suite, self.servers = suite, servers
        self.known = [(name, entry) for entry in suite["known"] for name in entry["tests"]]
        self.tally: Counter[str] = Counter()
        self.faults: list[str] = []
        self.before: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Tests without a server are of their own classes; some are of what is not offered at all, so leave them."""
        asks = set(self.suite["fixtures"])
        items[:] = [i for i in items if not asks or asks & {*i.fixturenames, *i.function.__code__.co_names}]
        items[:] = [i for i in items if not any(word in i.nodeid for word in self.suite["leave"])]

    def pytest_runtest_logstart(self) -> None:
        self.before = self.servers.statuses()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped or (report.when != "call" and not report.failed):
            return
        found = self.servers.statuses() - self.before
        if wrong := [status for status in found if status.startswith("5")]:
            self.fault(f"{report.nodeid}: status {wrong[0]}")
        path, bracket, case = report.nodeid.partition("[")
        test = path.rsplit("/", 1)[-1].replace(".py::", "::")
        if report.passed:
            self.tally["passed"] += 1
            return
        kind = next((e["kind"] for name, e in self.known if name == test or ("[" in name and (test + bracket + case).startswith(name))), "")
        if not kind or (kind == "refused" and not any(status.startswith("4") for status in found)):
            last = str(report.longrepr).strip().splitlines()
            said = next((line for line in reversed(last) if line.startswith("E ")), last[-1])
            self.fault(f"{report.nodeid}: {said[:300]} {dict(found)}")
        self.tally[kind or "unknown"] += 1

    def fault(self, said: str) -> None:
        self.faults.append(said)
        print(f"\n{said}", file=sys.stderr, flush=True)


def table() -> str:
    """The table of docs/serve.md, from the result file."""
    rows = ["| suite | applicable | passed | " + " | ".join(KINDS.values()) + " |", "|---" * (3 + len(KINDS)) + "|"]
    for name, row in pages.result("suites").items():
        rows.append("| " + " | ".join([f"{name} ({row['of']})", *(str(row[c]) for c in ("applicable", "passed", *KINDS))]) + " |")
    return "\n".join(rows) + "\n"


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
    words = ["-q", "--tb=short", "-p", "no:cacheprovider", "--timeout=300", "--durations=12", "-Wignore", f"--rootdir={folder}", f"--confcutdir={folder / facts['conftest']}", *facts["options"]]
    pytest.main([*words, *(["-k", only] if only else []), *(str(folder / file) for file in facts["files"])], plugins=[judge])
    servers.close()
    print(dict(judge.tally))
    if not only:
        counts = {kind: judge.tally[kind] for kind in ("passed", *KINDS)}
        row = {"of": facts["of"], "applicable": judge.tally.total(), **counts}
        pages.keep("suites", {**pages.result("suites"), suite: row})
        page = pages.DOCS / "serve.md"
        page.write_text(pages.filled(page.read_text("utf-8"), {"suites": table}), "utf-8")
    raise Exit(1 if judge.faults or not judge.tally else 0)

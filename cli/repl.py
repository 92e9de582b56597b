"""decgraph repl: A prompt that keeps models in memory: type a text, see it decoded."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import decgraph
from decgraph.cli import completion, options, output, parsing
from decgraph.cli.clock import timing
from decgraph.runtime.prompt_files import Text
from decgraph.runtime.session import Session, check_params
from decgraph.runtime.sources import concerns

settings = options.LENIENT
COMMANDS = {
    "/algorithm": "NAME or FILE.dec: go on with another algorithm; models stay in memory",
    "/model": "head=FOLDER: another model, for this algorithm and the next ones",
    "/set": "gamma=6: a parameter of the algorithm, or one of temperature, top_k, top_p, min_p, seed, max_tokens",
    "/seed": "N: another seed",
    "/trace": "FILE.html: decode the last text again and write its trace",
    "/new": "with --chat: a new conversation",
    "/show": "what is set",
    "/help": "these commands",
    "/quit": "the end; Ctrl-D too",
}
OF_REQUEST = {"temperature": float, "top_k": int, "top_p": float, "min_p": float, "seed": int, "max_tokens": int,
              "repetition_penalty": float}  # fmt: skip


@options.grouped
def command(
    context: typer.Context,
    models: options.AlgorithmOptions,
    request_options: options.RequestOptions,
    shown: options.OutputOptions,
    talk: options.Chat,
    algorithm: Annotated[str, options.algorithm()] = "autoregressive",
) -> None:
    """A prompt that keeps models in memory: type a text, see it decoded. /help lists its commands.

    Without a terminal every line of standard input is a text or such a command, and the answers go to standard output.
    """
    talk.check()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ctrl-C ends an answer here, and not the command
    chosen = decgraph.load(algorithm)
    room = ReplState(models, request_options, shown, talk.chat, talk.system, {"params": models.params(context, chosen.params)})
    room.open(chosen)
    room.session.load_seconds = time.perf_counter() - context.obj
    if sys.stdin.isatty() and not shown.quiet:
        print(f"{room.about()}; /help lists the commands", file=sys.stderr)
    raise typer.Exit(room.talk())


@dataclasses.dataclass
class ReplState:
    """What is set. persistent: models and parameters by name, the last text, the messages of a conversation."""

    models: options.AlgorithmOptions
    request_options: options.RequestOptions
    shown: options.OutputOptions
    chat: bool
    system: str | None
    persistent: dict[str, Any]
    chosen: decgraph.Algorithm = dataclasses.field(init=False)
    session: Session = dataclasses.field(init=False)
    fields: dict[str, Any] = dataclasses.field(init=False)

    def open(self, chosen: decgraph.Algorithm) -> None:
        """A session of an algorithm on the models that are in memory, and what else it needs. Raises DecError; then everything
        stays as it was."""
        from decgraph.cli.run import open_session

        read = self.persistent.setdefault("models", {})
        params = {name: value for name, value in self.persistent["params"].items() if name in chosen.params}
        check_params(chosen.function, params, unread=True)
        fields = self.request_options.fields(chosen)
        models = self.models if not read else dataclasses.replace(self.models, model=self.fitting(chosen))
        bound: dict[str, Any] = dict(models.folders(chosen.models))
        bound |= {name: model for name, model in read.items() if chosen.models.get(name) == model.kind}
        functions = self.models.functions(chosen)
        tokenizer = self.session.tokenizer if read else None
        made = open_session(chosen, bound, params, functions, self.models.backend, tokenizer=tokenizer,
                            placed=self.models.placed())  # fmt: skip
        self.chosen, self.session, self.fields = chosen, made, fields
        self.persistent |= {"params": params, "models": {**read, **made.models}}

    def fitting(self, chosen: decgraph.Algorithm) -> list[str]:
        """The models that were given, without those by name of which this algorithm takes none."""
        given_models = self.models.model or []
        return [m for m in given_models if "=" not in m or concerns(chosen.function, m.partition("=")[0])]

    def about(self) -> str:
        """The algorithm, its models and parameters, in a line."""
        models = ", ".join(model.name for model in self.session.models.values())
        return f"{self.chosen.name} on {models}  {parsing.listed(self.session.params)}".rstrip()

    def talk(self) -> int:
        """Read texts and commands to the end of the input; the exit code."""
        person = sys.stdin.isatty()
        if person:
            self.remember()
        code = 0
        while True:
            try:
                line = input("> " if person and not self.shown.json else "")
            except EOFError:
                return code
            except KeyboardInterrupt:  # at the prompt it empties the line, as a shell does
                print()
                continue
            if line.strip() == "/quit":
                return code
            try:
                if line.strip():
                    self.obey(*line.split(None, 1)) if line.startswith("/") else self.answer(line)
            except decgraph.DecError as error:
                output.show_user_error(error)
                code = 0 if person else output.FAILED

    def obey(self, word: str, rest: str = "") -> None:
        """Run a command. Raises DecError for an unknown one, and for one that fails."""
        if word not in COMMANDS:
            raise decgraph.DecError(f"there is no command {word}", hint=", ".join(COMMANDS))
        if word == "/help":
            output.print_folded("\n".join(f"{name:<12}{help}" for name, help in COMMANDS.items()))
        elif word == "/algorithm":
            self.open(decgraph.load(rest.strip() or self.chosen.name))
        elif word == "/model":
            if not rest.strip():
                raise decgraph.DecError("which model?", hint="/model head=FOLDER, or the name of a shipped one")
            self.model(shlex.split(rest))
        elif word in ("/set", "/seed"):
            self.set(parsing.pairs(shlex.split(f"seed={rest}" if word == "/seed" else rest), "/set"))
        elif word == "/trace":
            self.trace(rest.strip())
        elif word == "/new":
            self.persistent.pop("messages", None)
        if word in ("/algorithm", "/model", "/set", "/seed", "/show"):
            given_here = self.request_options
            now = {name: getattr(given_here, name) for name in OF_REQUEST if getattr(given_here, name) is not None}
            print(f"{self.about()}; {parsing.listed(now)}", file=sys.stderr)

    def model(self, others: list[str]) -> None:
        """Take other models, as --model gives them. Raises DecError, and then nothing is taken."""
        before, in_memory = self.models, dict(self.persistent["models"])
        named = {one.partition("=")[0] for one in others if "=" in one} or {next(iter(self.chosen.models), "")}
        given_before = [m for m in before.model or () if m.partition("=")[0] not in named and ("=" in m or "=" in others[0])]
        self.models = dataclasses.replace(before, model=[*given_before, *others])
        try:
            self.models.folders(self.chosen.models)  # raises for models that the algorithm does not take
            self.persistent["models"] = {name: model for name, model in in_memory.items() if name not in named}
            self.open(self.chosen)
        except decgraph.DecError:
            self.models, self.persistent["models"] = before, in_memory
            raise

    def set(self, values: dict[str, str]) -> None:
        """Set parameters of the algorithm and fields of the request. Raises DecError, and then nothing is set."""
        before = self.request_options, dict(self.persistent["params"])
        try:
            for name, value in values.items():
                if name in OF_REQUEST and name not in self.chosen.params:
                    self.request_options = dataclasses.replace(self.request_options, **{name: OF_REQUEST[name](value)})
                else:
                    self.persistent["params"][name] = value
            check_params(self.chosen.function, self.persistent["params"], unread=True)
            self.open(self.chosen)
        except ValueError as error:
            (self.request_options, self.persistent["params"]) = before
            raise decgraph.DecError(str(error)) from None
        except decgraph.DecError:
            (self.request_options, self.persistent["params"]) = before
            raise

    def prompt(self, text: str) -> Any:
        """A text as a prompt: itself, or the conversation with it at its end."""
        if not self.chat:
            return Text("prompts", text).prompt()
        first = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*self.persistent.setdefault("messages", first), {"role": "user", "content": text}]

    def answer(self, text: str) -> None:
        """Decode a text, and print what comes as it comes."""
        from decgraph.cli.run import show
        from decgraph.cli.summary import result_of
        from decgraph.models import request_for

        prompt = self.prompt(text)
        request = request_for(self.session, prompt, **self.fields)
        self.persistent["text"] = text
        if self.shown.json:
            result = self.session.run(request)
            output.emit_json(result_of(self.session, result))
        else:
            result = show(self.session, request, "", quiet=self.shown.quiet or not sys.stdin.isatty(), brief=True)
        if result.error is not None and result.reason != "interrupted":
            raise result.error
        if self.chat:
            self.persistent["messages"] = [*prompt, {"role": "assistant", "content": result.text}]
        if not (self.shown.json or self.shown.quiet):
            first, decoded = result.first_call_seconds, result.decoding_tokens
            calls = f"{result.stats.target_calls} calls of the target; "
            print(calls + timing(None, first, decoded, result.decoding_seconds), file=sys.stderr)

    def trace(self, path: str) -> None:
        """Write the trace of the last text as a page. Raises DecError for a file that is none of a page."""
        from decgraph.cli.trace import traced
        from decgraph.views.page import trace_page

        if "text" not in self.persistent or not path:
            raise decgraph.DecError("there is nothing to trace yet", hint="a text first, then /trace FILE.html")
        output.check_writable(Path(path), ".html", ".htm", what="a page")
        text, said = Text("prompts", self.persistent["text"]), lambda one: self.prompt(one.shown())
        output.write(Path(path), trace_page([traced(self.chosen, self.session, self.session, text, said, self.fields)]))
        print(f"wrote {path}", file=sys.stderr)

    def remember(self) -> None:
        """The history of earlier sessions, and TAB for commands, algorithms and parameters."""
        import atexit
        import readline

        from decgraph import cache

        path = cache.folder() / "history"
        with suppress(OSError):
            readline.read_history_file(path)
        readline.set_history_length(1000)

        def keep() -> None:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(path)

        def offered(text: str, state: int) -> str | None:
            line = readline.get_line_buffer()
            if line.startswith("/algorithm "):
                words = completion.algorithms([], text)
            elif line.startswith("/set "):
                words = [f"{name}=" for name in (*self.chosen.params, *OF_REQUEST)]
            else:
                words = [f"{name} " for name in COMMANDS] if line.startswith("/") else []
            return [*(word for word in words if word.startswith(text)), None][state]

        atexit.register(keep)
        readline.set_completer_delims(" ")
        readline.set_completer(offered)
        readline.parse_and_bind("tab: complete")

"""`DecError` renders what it carries; `InternalError` says how to see it again."""

from __future__ import annotations

from dataclasses import dataclass

from decgraph.errors import DecError, InternalError


@dataclass(frozen=True)
class Fault:
    code: str
    text: str

    def render(self) -> str:
        return f"error[{self.code}]: {self.text}"


def test_diagnostics_render_themselves_in_order() -> None:
    error = DecError([Fault("E012", "no such name"), Fault("E031", "looks at its own tokens")])
    assert str(error) == "error[E012]: no such name\n\nerror[E031]: looks at its own tokens"
    assert error.codes == ("E012", "E031")
    assert len(error.diagnostics) == 2


def test_one_diagnostic_needs_no_list() -> None:
    assert str(DecError(Fault("E001", "unexpected end"))) == "error[E001]: unexpected end"


def test_a_message_without_source_and_its_hint() -> None:
    assert str(DecError("no file x.dec")) == "error: no file x.dec"
    assert str(DecError("error: no file x", hint="use y")) == "error: no file x\n  = try: use y"
    assert DecError("no file x.dec").codes == ()


def test_internal_errors_say_how_to_reproduce() -> None:
    assert str(InternalError("bad region")) == "internal error: bad region"
    assert str(InternalError("bad region", reproducer="decgraph x")).endswith("\n  = reproduce: decgraph x")

"""Text as it is decoded, with accepted drafts and the target's own tokens in two colours, and rejected drafts on request."""

from __future__ import annotations

from rich.console import Console
from rich.live import Live
from rich.text import Text

from decgraph.runtime import trace
from decgraph.runtime.text import Detokenizer
from decgraph.views.words import word

PROMPT = "dim"
ACCEPTED = "green"
OWN = "bold cyan"
REJECTED = "red strike"
MASKED = "dim"
AGES = ("bright_green", "green", "cyan", "blue")  # a canvas: decided early to decided late
SHADE = "░"


class Stream:
    """Hears the events of a run and shows its text. Without colour it writes the committed text and nothing else.

    drafts: rejected drafts are shown as well, struck through where they were thrown away. Where few are accepted they are most
    of what is shown, and the text between them cannot be read.
    """

    def __init__(
        self, console: Console, detokenizer: Detokenizer, *, colour: bool, canvas: bool = False, drafts: bool = False
    ) -> None:
        self.console, self.detokenizer, self.colour, self.drafts = console, detokenizer, colour, drafts and colour
        self.pending = detokenizer.start()
        self.committed = 0
        self.canvas = CanvasScreen(console, detokenizer) if colour and canvas else None
        self._step()

    def _step(self) -> None:
        """Forget what the last step drafted."""
        self.drafted: dict[int, tuple[int, int]] = {}
        self.accepted: list[int] = []
        self.rejected: list[int] = []
        self.verified = False

    def hear(self, event: trace.Event) -> None:
        match event:
            case trace.Drafted():
                self.drafted[event.node] = (event.parent, event.token)
            case trace.Pruned():
                place = {old: new for new, old in enumerate(event.kept)}
                self.drafted = {place[n]: (place[parent], token) for n, (parent, token) in self.drafted.items() if n in place}
            case trace.Accepted():
                self.accepted.append(event.token)
                self.verified = True
            case trace.Rejected():
                self.rejected.append(event.node)
                self.verified = True
            case trace.Emitted():
                self.verified = True
            case trace.Committed():
                self.commit(event.tokens)
            case trace.Stopped():
                self.finish()
            case _ if self.canvas is not None:
                self.canvas.hear(event)

    def legend(self) -> None:
        """The legend of the colours, in one line."""
        parts = [(word("accepted"), ACCEPTED), (word("own"), OWN)]
        if self.drafts:
            parts.append((word("rejected"), REJECTED))
        if self.canvas is not None:
            words = ("decided early", "then", "later", "last")
            parts = [(SHADE * 4 + " masked", MASKED), *zip(words, AGES, strict=True)]
        if self.colour:
            self.console.print(Text("  ").join(Text(word, style) for word, style in parts))

    def prompt(self, text: str) -> None:
        self.console.print(Text(text, PROMPT if self.colour else ""), end="")

    def commit(self, tokens: tuple[int, ...]) -> None:
        """Show what a step committed: its accepted drafts, what it rejected after them, and the target's own token."""
        styles = [ACCEPTED if i < len(self.accepted) else OWN for i in range(len(tokens))]
        if not self.verified:
            styles = [""] * len(tokens)
        if self.canvas is not None and self.canvas.cells:
            styles = self.canvas.styles(self.committed, len(tokens))
            self.canvas.close()
        for i, token in enumerate(tokens):
            if i == len(self.accepted) and self.drafts:
                self.show(self.thrown_away(), REJECTED)
            self.pending, piece = self.detokenizer.feed(self.pending, token)
            self.show(piece, styles[i])
        self.committed += len(tokens)
        self._step()

    def thrown_away(self) -> str:
        """The drafts below the first rejected one, if they are a chain; of a tree, too many to show, nothing."""
        parents = [parent for parent, _ in self.drafted.values()]
        if not self.rejected or len(parents) != len(set(parents)):
            return ""
        node: int | None = self.rejected[0]
        tokens = []
        while node in self.drafted:
            tokens.append(self.drafted[node][1])
            node = next((n for n, (parent, _) in self.drafted.items() if parent == node), None)
        return self.detokenizer.text(tokens).replace("\n", "⏎")

    def show(self, piece: str, style: str) -> None:
        if piece:
            self.console.print(Text(piece, style if self.colour else ""), end="", soft_wrap=True)

    def finish(self) -> None:
        """A character that was cut in the middle, and the end of the line."""
        if self.canvas is not None:
            self.canvas.close()
        self.show(self.detokenizer.finish(self.pending), "")
        self.pending = self.detokenizer.start()


class CanvasScreen:
    """A canvas on the screen while it is decided, a frame for every model call; then the text takes its place."""

    def __init__(self, console: Console, detokenizer: Detokenizer) -> None:
        self.console, self.detokenizer = console, detokenizer
        self.cells: dict[int, int] = {}
        self.when: dict[int, int] = {}
        self.length = 0
        self.calls = 0
        self.live: Live | None = None

    def hear(self, event: trace.Event) -> None:
        match event:
            case trace.ModelCall():
                self.calls += 1
                if self.cells:
                    self.draw()
            case trace.Unmasked():
                self.cells[event.position] = event.token
                self.when[event.position] = self.calls
                self.length = max(self.length, event.position + 1)
            case trace.Remasked():
                self.cells.pop(event.position, None)

    def style(self, position: int) -> str:
        """The colour of a position: by when it was decided, from the first call to the last."""
        age = self.when.get(position, 0) * len(AGES) // (self.calls + 1)
        return AGES[min(age, len(AGES) - 1)]

    def styles(self, start: int, count: int) -> list[str]:
        """The styles of `count` committed tokens that start at a position."""
        return [self.style(start + i if start + i in self.when else i) for i in range(count)]

    def draw(self) -> None:
        if self.live is None:
            self.console.print()  # a frame has lines of its own
            self.live = Live(console=self.console, transient=True, auto_refresh=False)
            self.live.start()
        frame = Text()
        for i in range(self.length):
            if i in self.cells:
                piece = self.detokenizer.text([self.cells[i]]) or "·"
                frame.append(piece.replace("\n", "⏎\n"), self.style(i))
            else:
                frame.append(SHADE, MASKED)
        self.live.update(frame, refresh=True)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
        self.cells = {}

"""The page /metrics, in Prometheus' text format."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from decgraph.runtime.trace import Stats
from decgraph.serve.worker import CANCELLED, Told

FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """The metrics of one server, in a registry of their own. Times are seconds. No request adds a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        by = ["algorithm"]
        self.requests = Counter(
            "decgraph_requests", "HTTP requests of the API, by route and status.", ["route", "status"], **own
        )
        self.prompt_tokens = Counter("decgraph_prompt_tokens", "Tokens of prompts.", by, **own)
        self.reused_tokens = Counter("decgraph_reused_prompt_tokens", "Of these, tokens that were cached.", by, **own)
        self.tokens = Counter("decgraph_generated_tokens", "Committed tokens of answers.", by, **own)
        self.target_calls = Counter("decgraph_target_calls", "Calls of the target.", by, **own)
        self.draft_calls = Counter("decgraph_draft_calls", "Calls of drafters.", by, **own)
        self.drafted = Counter("decgraph_drafted_tokens", "Draft tokens.", by, **own)
        self.draft_errors = Counter("decgraph_draft_errors", "Drafts that an error ended, by the line.", [*by, "line"], **own)
        self.accepted = Counter("decgraph_accepted_tokens", "Draft tokens that verification accepted.", by, **own)
        self.acceptance = Gauge("decgraph_acceptance_ratio", "Accepted per drafted token since the start.", by, **own)
        self.per_call = Gauge("decgraph_tokens_per_target_call", "Committed tokens per target call since the start.", by, **own)
        self.answers = Counter("decgraph_answers", "Answers that ended, by why.", ["algorithm", "reason"], **own)
        self.cancelled = Counter("decgraph_cancelled_answers", "Of these, answers that nobody waited for.", **own)
        self.queued = Gauge("decgraph_queue_depth", "Answers that wait for a place.", **own)
        self.running = Gauge("decgraph_running", "Answers in flight.", **own)
        self.kv_bytes = Gauge("decgraph_kv_bytes", "Bytes of keys and values, by where: engines or prefixes.", ["where"], **own)
        self.first = Histogram(
            "decgraph_time_to_first_token_seconds", "From a request's arrival to its first token.", by, buckets=FIRST, **own
        )
        self.gaps = Histogram("decgraph_inter_token_seconds", "Between tokens of one answer.", by, buckets=GAPS, **own)
        self._sums: dict[str, list[int]] = {}

    def told(self, news: Told) -> None:
        """Count the news of a job."""
        job, name = news.job, news.job.algorithm
        if news.tokens:
            if news.gap is None:
                self.first.labels(name).observe(job.first - job.arrived)
            else:
                for _ in news.tokens:
                    self.gaps.labels(name).observe(news.gap)
        if news.result is not None:
            self.prompt_tokens.labels(name).inc(len(job.request.prompt))
            self.reused_tokens.labels(name).inc(job.reused)
            self.answers.labels(name, news.result.reason).inc()
            self.cancelled.inc(news.result.reason == CANCELLED)
            self._count(name, news.result.stats)

    def _count(self, name: str, stats: Stats) -> None:
        for told, times in stats.draft_errors.items():  # words of an error may hold values: the lines of a program are few
            at = re.match(r"\S+:\d+(?=: )", told)
            self.draft_errors.labels(name, at[0] if at else "").inc(times)
        accepted = sum(stats.accepted)
        values = (stats.tokens, stats.target_calls, stats.draft_calls, stats.drafted, accepted)
        counters = (self.tokens, self.target_calls, self.draft_calls, self.drafted, self.accepted)
        sums = self._sums.setdefault(name, [0] * len(values))
        for place, (counter, value) in enumerate(zip(counters, values, strict=True)):
            counter.labels(name).inc(value)
            sums[place] += value
        if sums[1]:
            self.per_call.labels(name).set(sums[0] / sums[1])
        if sums[3] and stats.tested:  # a program without `verify` accepts none, and rejects none
            self.acceptance.labels(name).set(sums[4] / sums[3])

    def watch(self, queued: Callable[[], int], running: Callable[[], int], kv: dict[str, Callable[[], int]]) -> None:
        """Where the gauges are read from at each request."""
        self.queued.set_function(queued)
        self.running.set_function(running)
        for where, read in kv.items():
            self.kv_bytes.labels(where).set_function(read)

    def text(self) -> tuple[bytes, str]:
        """The page and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

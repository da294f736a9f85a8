"""What a client counts of its connections: plain numbers, added up where things happen, shown by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ApiStats:
    answers: int = 0
    latency_total_s: float = 0.0
    latency_max_s: float = 0.0


@dataclass(slots=True)
class Stats:
    """Totals of one client since it was made; latencies are from the send to the answer, of each API by the name of its
    response."""

    connections_opened: int = 0
    connections_failed: int = 0
    connections_closed: int = 0
    logins: int = 0
    logins_failed: int = 0
    logins_again: int = 0
    requests: int = 0
    answers: int = 0
    unanswered: int = 0
    timeouts: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    throttled_ms: int = 0
    throttled_max_ms: int = 0
    apis: dict[str, ApiStats] = field(default_factory=dict)

    def answered(self, response: str, latency_s: float, throttle_ms: int) -> None:
        self.answers += 1
        found = self.apis.get(response)
        if found is None:
            found = self.apis[response] = ApiStats()
        found.answers += 1
        found.latency_total_s += latency_s
        if latency_s > found.latency_max_s:
            found.latency_max_s = latency_s
        if throttle_ms:
            self.throttled_ms += throttle_ms
            self.throttled_max_ms = max(self.throttled_max_ms, throttle_ms)

    def snapshot(self) -> dict[str, float]:
        """By the names that Java's clients have in `metrics()`; each API's latencies by its own beside them."""
        total_s = sum(api.latency_total_s for api in self.apis.values())
        longest_s = max((api.latency_max_s for api in self.apis.values()), default=0.0)
        found: dict[str, float] = {
            "connection-count": self.connections_opened - self.connections_closed,
            "connection-creation-total": self.connections_opened,
            "connection-close-total": self.connections_closed,
            "failed-connection-total": self.connections_failed,
            "successful-authentication-total": self.logins,
            "failed-authentication-total": self.logins_failed,
            "successful-reauthentication-total": self.logins_again,
            "request-total": self.requests,
            "response-total": self.answers,
            "request-timeout-total": self.timeouts,
            "requests-in-flight": self.requests - self.answers - self.unanswered,
            "outgoing-byte-total": self.bytes_out,
            "incoming-byte-total": self.bytes_in,
            "request-latency-avg": 1000 * total_s / self.answers if self.answers else 0.0,
            "request-latency-max": 1000 * longest_s,
            "throttle-time-total": self.throttled_ms,
            "throttle-time-max": self.throttled_max_ms,
        }
        for response, api in sorted(self.apis.items()):
            name = response.removesuffix("Response")
            found[f"{name}-latency-avg"] = 1000 * api.latency_total_s / api.answers
            found[f"{name}-latency-max"] = 1000 * api.latency_max_s
        return found

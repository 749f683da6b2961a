"""What the server remembers of a host: successes, errors and losses that fade. Pure data; liveness judges by it."""

from __future__ import annotations

from msgspec import Struct

from windfall.quick import quickly_set

CREDIT_PER_S = 200.0 / 86400.0
"""A cobblestone is 1/200 of a day of a processor of 1 GFLOPS: the unit that BOINC clients show."""


@quickly_set
class Reliability(Struct, array_like=True, gc=False):
    """A host's record. The weights fade with time; the plain counts do not."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    ok_weight: float = 0.0
    error_weight: float = 0.0
    loss_weight: float = 0.0
    weighed_t: float = 0.0
    turnaround_s: float = 0.0
    """Mean time from handing out to result, fading by count."""
    cpu_s: float = 0.0
    day: int = 0
    today: int = 0
    failures_in_a_row: int = 0
    failed_job: int = 0
    probation_until: float | None = None
    probations: int = 0
    suspicion: str = ""
    failing_since: float = 0.0
    """When the present row of failures began."""
    granted_s: float = 0.0
    """Processor seconds that a volunteer's host was credited."""
    valid: int = 0
    """Results of it that hosts of other owners have confirmed since the last contradiction."""
    invalid: int = 0
    """Results of it that were contradicted."""
    credited: int = 0
    """Results of a volunteer's host that were credited: accepted themselves, or agreeing with the one that was."""

    @property
    def weight(self) -> float:
        return self.ok_weight + self.error_weight + self.loss_weight

    @property
    def credit(self) -> float:
        """For processor seconds of results that were accepted; what does not validate earns nothing."""
        return self.granted_s * CREDIT_PER_S

    @property
    def results(self) -> int:
        """Results that were accepted, or agreed with the one that was. Old states count the former alone."""
        return max(self.done, self.credited)

    @property
    def error_rate(self) -> float:
        return self.error_weight / self.weight if self.weight else 0.0

    @property
    def loss_rate(self) -> float:
        return self.loss_weight / self.weight if self.weight else 0.0

    def fade(self, t: float, half_life_s: float) -> None:
        """Bring the weights to time `t`: after a half life a success or an error counts half."""
        if t > self.weighed_t:
            factor = 0.5 ** ((t - self.weighed_t) / half_life_s)
            self.ok_weight *= factor
            self.cpu_s *= factor
            if self.error_weight:
                self.error_weight *= factor
            if self.loss_weight:
                self.loss_weight *= factor
            self.weighed_t = t
        day = t // 86400
        if day != self.day:
            self.day, self.today = int(day), 0

    def succeeded(self, turnaround_s: float, cpu_s: float, mean_over: int) -> None:
        self.done += 1
        self.today += 1
        self.ok_weight += 1.0
        self.cpu_s += cpu_s
        if self.failures_in_a_row:
            self.failures_in_a_row = 0
        if self.probation_until is not None:
            # It passed its test.
            self.pardon()
        self.turnaround_s += (turnaround_s - self.turnaround_s) / (self.done if self.done < mean_over else mean_over)

    def failed_task(self, job: int, cpu_s: float) -> None:
        """A task failed here. The host is not blamed yet: the task may fail everywhere (see `blamed`)."""
        if not self.failures_in_a_row:
            self.failing_since = self.weighed_t
        self.failed += 1
        self.failed_job = job
        self.cpu_s += cpu_s
        self.failures_in_a_row += 1

    def blamed(self, t: float, half_life_s: float) -> None:
        """A task that failed here has succeeded elsewhere."""
        self.fade(t, half_life_s)
        self.error_weight += 1.0

    def checked(self, verdict: int, granted_s: float, t: float, half_life_s: float) -> None:
        """Others have confirmed (1) or contradicted (-1) a result of this host; 0: it was taken as it was."""
        self.granted_s += granted_s
        if verdict >= 0:
            self.credited += 1
        if verdict > 0:
            self.valid += 1
        elif verdict < 0:
            self.valid = 0
            self.invalid += 1
            self.blamed(t, half_life_s)

    def lost_task(self) -> None:
        self.lost += 1
        self.loss_weight += 1.0

    def pardon(self) -> None:
        """An operator has unblocked the host: its failures are forgotten."""
        self.error_weight = self.loss_weight = 0.0
        self.failures_in_a_row = self.probations = 0
        self.probation_until = None
        self.suspicion = ""

"""The numbers of the fair choice."""

from reprieve.core.record import Record
from reprieve.errors import ValidationError

MIN_WEIGHT, MAX_WEIGHT = 0.001, 1_000
"""Weights between these keep loads and virtual times exact in every store."""


class FairnessSettings(Record):
    """Every number of the fair choice. Redis gets them as an argument of each claim."""

    max_in_a_row: int = 3
    """Jobs of one tenant in a row while another waits below its share. As many are picked at once of fast jobs, which
    are fetched ahead."""
    max_share_of_slots: float = 0.9
    """The share of all slots that one tenant may hold while other tenants are active."""
    activity_window_seconds: int = 60
    """How long after its last lease a tenant counts as active."""
    oldest_every_picks: int = 16
    """Every so many picks of a tenant take from the lane that was served longest ago, so that no lane starves."""
    max_blocked_lanes: int = 128
    """Lanes that one claim may find blocked before it stops; the next claim goes on."""
    max_returning_tenants: int = 128
    """Tenants whose blocked lanes one claim opens again behind a limiter that has room."""
    max_lanes_read: int = 64
    """Open lanes of a tenant that a claim reads, by priority; of each priority it also reads the one served longest
    ago."""
    max_tenants_read: int = 24
    """Tenants that a claim on Redis reads at once. SQL stores read as many as the claim may take, and two. The picks
    are the same."""
    max_excluded_tenants: int = 128
    """Tenants with nothing but excluded lanes that a claim passes over in the fair order, and again elsewhere in it."""
    max_excluded_lanes: int = 4_096
    """Open lanes that a claim looks through for one that is not excluded, where a tenant has more than it reads."""
    excluded_recheck_ms: int = 1_000
    """Milliseconds after which a session looks again at what it excludes; in this time it sees all of it."""
    min_excluded_recheck_ms: int = 10
    """The least time between two claims that look at different parts of it and find nothing."""
    max_tenants_weighed: int = 1_000
    """Candidates whose weights are summed: more would not change a share much."""
    base_priority: int = 5
    """The priority of a tenant that was just served, as people watch it."""
    priority_increment: int = 1
    """By how much that priority improves with each round without a lease."""

    def __post_init__(self) -> None:
        """Raise ValidationError for numbers that would stop every claim."""
        counts = (self.max_in_a_row, self.oldest_every_picks, self.max_blocked_lanes, self.max_returning_tenants)
        reads = (self.max_lanes_read, self.max_tenants_read, self.max_excluded_tenants, self.max_excluded_lanes)
        if min(*counts, *reads) < 1:
            message = "max_in_a_row and every other count of the fairness settings must be 1 or more"
            raise ValidationError(message)
        if not 0 < self.max_share_of_slots <= 1:
            message = f"max_share_of_slots must be above 0 and at most 1, got {self.max_share_of_slots}"
            raise ValidationError(message)


DEFAULTS = FairnessSettings()


def aged_priority(rounds: int, settings: FairnessSettings = DEFAULTS) -> int:
    """Return the priority of a tenant that was passed over for so many rounds: 1 is the most urgent."""
    return max(1, settings.base_priority - settings.priority_increment * rounds)

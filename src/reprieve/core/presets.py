"""Named policies.

The first nine copy existing systems exactly; `standard`, `mta` and `webhook` are our own.
"""

from typing import Literal, TypeAlias, get_args

from reprieve.core.backoff import Bounded, Exponential, Formula, PlusMinus, Steps, fixed
from reprieve.core.policy import Policy
from reprieve.core.values import one_of, shown
from reprieve.errors import UnknownPreset

swift = Policy(max_attempts=4, backoff=Exponential("1s", factor=5, cap="30s"))
"""Three quick retries, for calls that a person waits for."""

patient = Policy(max_attempts=3, backoff=Exponential("5m", factor=2, cap="24h"))
"""Two retries minutes apart, for work that can wait."""

smtp = Policy(max_attempts=5, backoff=Exponential("1s", factor=2, cap="300s", jitter=PlusMinus(0.25, cap_last=True)))
"""E-mail over SMTP, in production."""

smtp_dev = Policy(
    max_attempts=3, backoff=Exponential("500ms", factor=2, cap="30s", jitter=PlusMinus(0.25, cap_last=True))
)
"""E-mail over SMTP, in development: the same shape with shorter waits."""

email = Policy(max_attempts=5, backoff=Exponential("1s", factor=2, cap="60s", jitter=PlusMinus(0.25)), deadline="24h")
"""E-mail through a gateway, for many tenants."""

render = Policy(max_attempts=4, backoff=Exponential("5s", factor=5))
"""Pages rendered by a browser."""

screenshot = Policy(max_attempts=6, backoff=Exponential("5s", factor=5, cap="1h"))
"""Screenshots: five retries over an hour."""

pdf = Policy(max_attempts=3, backoff=fixed("5s"))
"""PDFs: two retries, 5 s apart."""

bull = Policy(max_attempts=5, backoff=Formula(lambda failures: 2.0 ** min(failures, 64) - 1))
"""What Bull's "exponential" with a delay of 1 s does: (2^k − 1) s."""

standard = Policy()
"""The default: ten attempts over half an hour on average and an hour at most, with full jitter."""

mta = Policy(max_attempts=None, deadline="5d", backoff=Steps("5m", "25m", "2h", jitter=Bounded(0.1)))
"""Mail transfer by RFC 5321, 4.5.4.1: after minutes, then every two hours, for five days."""

webhook = Policy(max_attempts=8, backoff=Steps("5s", "5m", "30m", "2h", "5h", "10h", "10h", jitter=Bounded(0.1)))
"""Webhooks: from seconds to hours, over more than a day."""

ALL: dict[str, Policy] = {
    "swift": swift,
    "patient": patient,
    "smtp": smtp,
    "smtp_dev": smtp_dev,
    "email": email,
    "render": render,
    "screenshot": screenshot,
    "pdf": pdf,
    "bull": bull,
    "standard": standard,
    "mta": mta,
    "webhook": webhook,
}
"""Every preset by its name."""

_IN_DEVELOPMENT = {"smtp": "smtp_dev"}


Profile: TypeAlias = Literal["production", "development"]


def named(name: str, profile: Profile = "production") -> Policy:
    """Return the preset of that name; in the `development` profile its faster variant, if there is one."""
    one_of(profile, get_args(Profile), "profile", UnknownPreset)
    wanted: object = name
    if not isinstance(wanted, str) or wanted not in ALL:
        message = f"there is no preset {shown(wanted)}; the presets are {', '.join(ALL)}"
        raise UnknownPreset(message)
    return ALL[_IN_DEVELOPMENT.get(name, name) if profile == "development" else name]

"""The settings of learning (the LearningRuntimeConfig of the first description).

Does not own: the section of palyra.toml (config), the rules that read these (thresholds, schedule).
"""

import msgspec

REVIEW_BPS = 7_500
AUTO_WRITE_BPS = 9_000
AUTO_APPLY_BPS = 9_500
DELAY_MS = 30_000  # The next thing a person says tells how a run went, and a conversation goes first.
COOLDOWN_MS = 600_000  # A session asks a model once in this time. Other runs in it are read by the rules.


class LearningRuntimeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds are in basis points: 10,000 is certain.

    `sample` is the share of runs that are reflected on.
    """

    is_enabled: bool = True
    sample: float = 1.0
    review_bps: int = REVIEW_BPS
    auto_write_threshold_bps: int = AUTO_WRITE_BPS
    auto_apply_bps: int = AUTO_APPLY_BPS
    delay_ms: int = DELAY_MS
    cooldown_ms: int = COOLDOWN_MS


NO_LEARNING = LearningRuntimeConfig(is_enabled=False)

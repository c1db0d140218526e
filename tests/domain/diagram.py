"""The states and arrows of docs/model.md, written down by hand: what the code's own table is compared with."""

STATES = {
    "scheduled": 0,
    "processing": 1,
    "in_progress": 2,
    "pending_retry": 3,
    "completed": 4,
    "dead_letter": 5,
    "declined": 6,
    "skipped": 7,
    "cancelled": 8,
}
LIVE = {"scheduled", "processing", "in_progress", "pending_retry"}

ARROWS = {
    # a worker takes it
    ("scheduled", "claim"): "processing",
    ("pending_retry", "claim"): "processing",
    # and comes to an outcome, at once or by a callback
    ("processing", "complete"): "completed",
    ("processing", "await"): "in_progress",
    ("processing", "retry"): "pending_retry",
    ("processing", "bury"): "dead_letter",
    ("processing", "decline"): "declined",
    ("in_progress", "complete"): "completed",
    ("in_progress", "await"): "in_progress",
    ("in_progress", "retry"): "pending_retry",
    ("in_progress", "bury"): "dead_letter",
    ("in_progress", "decline"): "declined",
    # a deferral, a release and a lost claim
    ("processing", "return untried"): "scheduled",
    ("processing", "return tried"): "pending_retry",
    # the callback of a real effect, late, but before the retry
    ("pending_retry", "complete"): "completed",
    # a guard, overlap, catch-up or expiry: always before a provider has it
    ("scheduled", "skip"): "skipped",
    ("pending_retry", "skip"): "skipped",
    ("processing", "skip"): "skipped",
    # a user
    ("scheduled", "cancel"): "cancelled",
    ("pending_retry", "cancel"): "cancelled",
    ("processing", "cancel"): "cancelled",
    ("in_progress", "cancel"): "cancelled",
    # the only ways out of a final state
    ("dead_letter", "redrive"): "scheduled",
    ("dead_letter", "complete"): "completed",
    ("dead_letter", "discard"): "cancelled",
}

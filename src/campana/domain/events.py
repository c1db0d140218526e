"""Events: what each change of a delivery's state is called in the outbox, and what else is told there.

A claim is a lease and no news, so it has no event of its own: the event of its end names its fence. What neither begins nor
ends in another state (a look-up that is unsure, a release from a closed scope) is none either.
"""

from collections.abc import Mapping

from campana.domain.deliveries import State

KINDS: Mapping[str, str] = {
    "delivery.scheduled": "It was taken in, and waits until it is due.",
    "delivery.accepted": "It may have had its effect already: a callback or a look-up will tell.",
    "delivery.retry": "An attempt failed; another one follows.",
    "delivery.deferred": "It was claimed and not tried, or its worker was lost: it waits again, for the `reason` that it names.",
    "delivery.completed": "It had its effect.",
    "delivery.dead_letter": "It wants a person, for the `reason` that it names.",
    "delivery.declined": "The recipient said no.",
    "delivery.skipped": "A guard or its expiry said never, for the `reason` that it names.",
    "delivery.cancelled": "It was withdrawn.",
    "delivery.redriven": "A person let it begin anew.",
}
"""Every kind of event of a delivery, and what is true when it is written."""
OTHERS: Mapping[str, str] = {
    "breaker.tripped": "A receiver of the tenant's keeps failing: an engine sends nothing there until it has answered a probe.",
    "breaker.closed": "That receiver answers again, and its deliveries go on.",
    "switch.changed": "A `scope` was switched off or on again, with its `reason`.",
    "project.secret_rotated": "The project `project_id` signs with its secret `number` now; older ones end by `older_until`.",
}
"""Every kind of event of anything else; what somebody did names the `actor`."""


def kind(state: State, *, was_tried: bool) -> str:
    """Return what a delivery's arrival at a state is called; the same word is the log's."""
    match state:
        case State.IN_PROGRESS:
            return "delivery.accepted"
        case State.PENDING_RETRY if was_tried:
            return "delivery.retry"
        case State.SCHEDULED | State.PENDING_RETRY:
            return "delivery.deferred"
        case _:
            return f"delivery.{state.word}"

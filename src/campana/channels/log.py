"""Channel `log`: a structured log line, and nobody on the other side."""

import json
import logging
from typing import Any

from campana.channels.base import Parcel, Permit
from campana.domain.ambiguity import CONTRACTS
from campana.domain.outcomes import Delivered, Outcome, Withheld
from campana.telemetry import Telemetry


class Log:
    """Writes `message`, or the payload where there is none."""

    name = "log"
    contract = CONTRACTS["log"]

    def __init__(self, telemetry: Telemetry) -> None:
        """Write to this log."""
        self._telemetry = telemetry

    async def send(self, parcel: Parcel, permit: Permit) -> Outcome | Withheld:
        """Write one line."""
        if not await permit():
            return Withheld()
        said: Any = parcel.target.get("message")
        if said is None and parcel.payload is not None:
            said = json.loads(parcel.payload)
        self._telemetry.emit(logging.INFO, "log.message", delivery_id=str(parcel.delivery_id), message=said)
        return Delivered()

    async def close(self) -> None:
        """Nothing to give back."""

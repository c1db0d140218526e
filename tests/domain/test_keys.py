import hashlib
import hmac
import re
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from campana.domain import keys

DELIVERY = UUID("0198c0de-0000-7000-8000-000000000001")
NUMBERS = st.integers(1, 10**6)


def test_the_stable_key_names_the_delivery_alone() -> None:
    assert keys.delivery_key(DELIVERY) == "dlv_0198c0de000070008000000000000001"


def test_the_attempts_key_names_delivery_and_key_number_and_cant_be_guessed() -> None:
    key = keys.idempotency_key(b"secret", DELIVERY, 1, 3)
    proof = hmac.new(b"secret", f"{DELIVERY}|1|3".encode(), hashlib.sha256).hexdigest()
    assert key == f"{DELIVERY}-3-{proof[:8]}"
    assert re.fullmatch(rf"{DELIVERY}-3-[0-9a-f]{{8}}", key)


def test_another_secret_generation_number_or_delivery_makes_another_key() -> None:
    made = [
        keys.idempotency_key(b"secret", DELIVERY, 1, 1),
        keys.idempotency_key(b"other", DELIVERY, 1, 1),
        keys.idempotency_key(b"secret", DELIVERY, 2, 1),
        keys.idempotency_key(b"secret", DELIVERY, 1, 2),
        keys.idempotency_key(b"secret", UUID(int=DELIVERY.int + 1), 1, 1),
        # the parts are kept apart: generation 1, number 11 is not generation 11, number 1
        keys.idempotency_key(b"secret", DELIVERY, 1, 11),
        keys.idempotency_key(b"secret", DELIVERY, 11, 1),
    ]
    assert len(set(made)) == len(made)


@given(st.binary(min_size=1, max_size=64), st.uuids(), NUMBERS, NUMBERS)
def test_a_key_is_a_function_of_durable_values_and_fits_a_header(
    secret: bytes, delivery: UUID, generation: int, number: int
) -> None:
    key = keys.idempotency_key(secret, delivery, generation, number)
    assert key == keys.idempotency_key(secret, delivery, generation, number)
    assert key.isascii()
    assert len(key) <= 64

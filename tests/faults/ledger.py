"""What slow tests injected and what came of it, for docs/reliability.md."""


def record(fault: str, *, injected: int, lost: int, repeated: int, wrong: int) -> None:
    pass

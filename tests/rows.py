"""Tables of cases that one test runs: to collect a test for every row would take longer than the rows themselves."""

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., Any]


class _Failures:
    """The rows of a table that failed."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}

    @contextmanager
    def noted(self, name: str) -> Generator[None]:
        """Note an error of the row and go on."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - a test fails by whatever it raises
            self._errors[name] = error

    def tell(self, count: int) -> None:
        """Fail if a row did, with the names of all that did and the first error."""
        if self._errors:
            names = "\n  ".join(self._errors)
            raise AssertionError(f"{len(self._errors)} of {count} rows:\n  {names}") from next(
                iter(self._errors.values())
            )


def each_row(names: str, table: Iterable[Any], ids: Sequence[str] = ()) -> Callable[[Test], Test]:
    """Run a test for every row of a table, like `pytest.mark.parametrize`, but as one test.

    Every row runs, also behind one that fails, and the failure names each row that failed. Fixtures are made once, so
    this is for tests whose rows leave nothing behind; but each row has a `tmp_path` of its own.

    names   the arguments that a row gives, with commas between
    ids     a name for each row; without it a row is named by its values
    """
    arguments = [each.strip() for each in names.split(",")]
    table = list(table)
    if any(isinstance(row, type(pytest.param())) for row in table):
        raise TypeError("a row is a plain value; its name goes to `ids`")
    values = [(row,) if len(arguments) == 1 else tuple(row) for row in table]
    labels = ids or [", ".join(map(_short, row)) for row in values]
    cases = [
        (f"{number}: {label}", dict(zip(arguments, row, strict=True)))
        for number, (label, row) in enumerate(zip(labels, values, strict=True))
    ]

    def decorate(test: Test) -> Test:
        def every_row(**fixtures: Any) -> None:
            failures = _Failures()
            for name, given in cases:
                with failures.noted(name):
                    test(**_apart(fixtures, name), **given)
            failures.tell(len(cases))

        async def every_row_in_turn(**fixtures: Any) -> None:
            failures = _Failures()
            for name, given in cases:
                with failures.noted(name):
                    await test(**_apart(fixtures, name), **given)
            failures.tell(len(cases))

        made: Any = every_row_in_turn if inspect.iscoroutinefunction(test) else every_row
        made.__name__, made.__qualname__, made.__doc__ = test.__name__, test.__qualname__, test.__doc__
        made.__module__, made.rows = test.__module__, len(cases)
        made.__dict__.update(test.__dict__)  # marks
        fixtures = [each for each in inspect.signature(test).parameters.values() if each.name not in arguments]
        made.__signature__ = inspect.Signature(fixtures)
        return made

    return decorate


def _apart(fixtures: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the fixtures for a row, with a folder of its own."""
    if "tmp_path" not in fixtures:
        return fixtures
    folder = fixtures["tmp_path"] / name.partition(":")[0]
    folder.mkdir()
    return {**fixtures, "tmp_path": folder}


def _short(value: object) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."

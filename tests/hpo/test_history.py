from __future__ import annotations

from typing import Any

from operant.hpo import R, hpo, randint, uniform


def test_the_table_shows_what_the_function_got() -> None:
    seen: list[int] = []

    def measure(config: dict[str, Any]) -> float:
        seen.append(config["width"])
        return config["width"] * config["rate"]

    search = hpo(measure).random(silent=True).max_steps(6).max_workers(1).maximize(R).seed(1).name("powers")
    spaces = {"width": 2 ** randint(4, 6), "rate": 10 ** uniform(-3, -1)}
    search.spaces(spaces).run()
    assert set(seen) <= {16, 32, 64} and [one.flat["width"] for one in search.history] == seen
    assert [row["width"] for row in search.history.rows()] == seen

    again = hpo(measure).random(silent=True).max_steps(6).max_workers(1).maximize(R).seed(1).name("powers")
    again.spaces(spaces).run()
    assert len(seen) == 6 and [one.flat["width"] for one in again.history] == seen  # from the journal


def test_a_value_that_cannot_be_finished_is_shown_as_it_was_searched() -> None:
    def doubled(value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return 2 * value

    search = hpo(lambda config: config["n"]).random(silent=True).max_steps(8).max_workers(1).max_retries(0).maximize(R)
    search.spaces({"n": randint(0, 9) >> doubled}).seed(0).run()
    by_status = {
        status: [one.flat["n"] for one in search.history if one.status == status] for status in ("FINISHED", "ERROR")
    }
    assert by_status["ERROR"] and all(value % 2 for value in by_status["ERROR"])
    assert by_status["FINISHED"] and all(value % 4 == 0 for value in by_status["FINISHED"])


def test_short_times_are_told_in_small_units() -> None:
    search = hpo(lambda config: 1.0).random(silent=True).max_steps(1).max_workers(1).maximize(R)
    search.spaces({"x": uniform(0, 1)}).run()
    assert "µs" in search.history.table() or "ms" in search.history.table()

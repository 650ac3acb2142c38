"""Two sweeps at once, in every order that a seed can make: nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from peagle_guard.sweeper import sweep
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand, set_up
from tests.guard.simulator.people import SETTINGS

# A thousand in all: most where the lock is lost, so that only the conditional writes are left.
SEEDS = {"locked": 20, "lock-lost": 150}


class Turns:
    """Lets one of several threads run at a time; before each operation a seed says whose turn is next."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._gates: list[threading.Semaphore] = []
        self._alive: list[int] = []
        self._number = threading.local()
        self._errors: list[Exception] = []

    def run(self, *jobs: Callable[[], None]) -> None:
        self._gates = [threading.Semaphore(0) for _ in jobs]
        self._alive = list(range(len(jobs)))
        threads = [threading.Thread(target=self._one, args=each) for each in enumerate(jobs)]
        for thread in threads:
            thread.start()
        self._pass_on()
        for thread in threads:
            thread.join(timeout=60)
        assert self._errors == []

    def _one(self, number: int, job: Callable[[], None]) -> None:
        self._number.value = number
        self._gates[number].acquire()
        try:
            job()
        except Exception as error:
            self._errors.append(error)
        finally:
            self._alive.remove(number)
            self._pass_on()

    def step(self, operation: str) -> None:
        number = self._number.value
        if self._random.choice(self._alive) != number:
            self._pass_on(without=number)
            self._gates[number].acquire()

    def _pass_on(self, without: int | None = None) -> None:
        waiting = [number for number in self._alive if number != without]
        if waiting:
            self._gates[self._random.choice(waiting)].release()


def idle() -> AwsByHand:
    aws = quiet_for_the_first_time()
    sweep(aws, SETTINGS, START - 10 * MINUTE)
    return aws


def past_its_lifetime() -> AwsByHand:
    return set_up(age=3 * HOUR, max_lifetime_hours="2", stack="Peagle-chat")


def failed() -> AwsByHand:
    return set_up(age=HOUR, status="Failed")


def quiet_for_the_first_time() -> AwsByHand:
    return set_up(age=3 * HOUR, idle_minutes="30")


def just_gone() -> AwsByHand:
    aws = past_its_lifetime()
    sweep(aws, SETTINGS, START - 5 * MINUTE)
    aws.remove("chat")
    aws.notices.clear()
    aws.invoked.clear()
    return aws


def due_to_be_woken() -> AwsByHand:
    aws = AwsByHand(START - 12 * HOUR)
    aws.add(age=2 * HOUR, hours="Mon-Fri 08:00-19:00 UTC", max_lifetime_hours="100")
    for _ in range(2):
        sweep(aws, SETTINGS, aws.now)
        aws.register.write("chat", off_by="hours", off_at=aws.now)
        if aws.endpoints:
            aws.remove("chat")
        aws.now += 10 * MINUTE
    aws.now = START
    aws.notices.clear()
    aws.invoked.clear()
    return aws


WORLDS = (idle, past_its_lifetime, failed, quiet_for_the_first_time, just_gone, due_to_be_woken)


@pytest.mark.slow
@pytest.mark.parametrize("lock", SEEDS)
@pytest.mark.parametrize("make", WORLDS, ids=[make.__name__ for make in WORLDS])
def test_two_sweeps_at_once_do_nothing_twice(make: Callable[[], AwsByHand], lock: str) -> None:
    done: Counter[str] = Counter()
    for seed in range(SEEDS[lock]):
        aws = make()
        turns = Turns(seed)
        aws.account.hook = turns.step
        errors: list[str] = []

        def job(late: int, aws: AwsByHand = aws, errors: list[str] = errors) -> None:
            if lock == "lock-lost":
                aws.register.table.items.pop("sweep", None)
            errors.extend(sweep(aws, SETTINGS, START + late * MINUTE).failures)

        turns.run(lambda job=job: job(0), lambda job=job, late=seed % 4: job(late))  # type: ignore[misc]
        assert errors == []
        # Removing the schedules of an endpoint that is gone twice does no harm.
        counter = Counter(str(event["action"]) for _, _, event in aws.invoked if "expires_at" not in event)
        answer = Counter(subject for _, subject, _ in aws.notices)
        assert max(counter.values(), default=0) <= 1, (seed, aws.invoked)
        assert max(answer.values(), default=0) <= 1, (seed, aws.notices)
        done += counter + answer
    assert done, "the world gave the sweeps nothing to do"

"""The scheduled prompts of one session: made and listed by `/schedule`, and carried out when their time has come.

They are carried out only while an editor has the session open and no turn runs, one after another, the oldest first.
A time that came while the session was not open, or while the machine slept, was missed. The prompt then fires once, or
only the user is told: the prompt says which. The wall clock decides. It is read at least every 30 seconds, because the
clock by which a process sleeps stands still while a machine is suspended.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

import anyio

from acp_agent.config.call_settings import SchedulerSettings
from acp_agent.core.errors import RequestError, SessionNotFound, StoreUnavailable, ToolError
from acp_agent.core.secrets import Redact
from acp_agent.core.sessions import DuePrompt, ScheduledPrompt
from acp_agent.extend.timing import Every, Once, Timing, told, understood, zone_of
from acp_agent.log import Log
from acp_agent.store.conversations import Firing, StoredSchedule
from acp_agent.text import abbreviated

_log = Log(__name__)
_LOOK = 30.0
"""Seconds between two looks at the clock."""
_LATE = 90_000
"""Milliseconds after which a time counts as missed, if nothing held its prompt up."""
_QUIET = 2.0
"""Seconds without a turn before a prompt fires, so that the user's next prompt goes first."""
_SET_BACK = 2_000
"""Milliseconds by which the clock must have gone back to count as set back."""
_CLEAN_UP = 2.0
_LINE = 100  # characters of a prompt in a list
_ENTRY = re.compile(r"(?P<when>.+?):\s+(?P<text>.+)", re.DOTALL)
_SKIPS = re.compile(r"(?i)[, ]*\bskip if missed$")
USAGE = (
    "Usage: `/schedule WHEN: PROMPT`, such as `/schedule every weekday at 9: run the tests`. `WHEN, skip if missed` "
    "does not make up for a missed time. `/schedule` lists, `/schedule cancel N` or `all` removes, `/schedule run N` "
    "runs one now."
)

_HIDDEN = (
    "This editor shows nothing outside of your prompts, so nothing fires by itself: you are told when a prompt is due, "
    "and `/schedule run N` runs it."
)

Claim = Callable[[], Awaitable[DuePrompt | None]]
Conclude = Callable[[bool], Awaitable[None]]
Background = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


class ScheduledSession(Protocol):
    """The session in which scheduled prompts are carried out."""

    @property
    def is_resident(self) -> bool:
        """Whether this process holds the session's lock."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        ...

    @property
    def unused_seconds(self) -> float:
        """The seconds since the last turn."""
        ...

    @property
    def shows_turns(self) -> bool:
        """Whether the editor shows what happens outside of a prompt of the user."""
        ...

    async def turn_over(self) -> None:
        """Wait until the running turn has ended."""
        ...

    def remind(self, text: str) -> None:
        """Tell the user something in their next turn."""
        ...

    async def carry_out(self, claim: Claim, conclude: Conclude) -> None:
        """Run a turn for the prompt that `claim` returns. Raises RequestError if the session cannot run one here.

        conclude   called at the end, before any other turn begins. Its argument says whether the turn did anything
        """
        ...


class SessionSchedule:
    """A core.services.Scheduler that also carries out its prompts when they are due.

    clock      returns milliseconds since 1970
    settings   returns the settings in force
    redact     removes secrets from prompts before they are stored
    """

    def __init__(
        self,
        stored: StoredSchedule,
        session: ScheduledSession,
        settings: Callable[[], SchedulerSettings],
        clock: Callable[[], int],
        background: Background,
        redact: Redact,
    ) -> None:
        self._stored = stored
        self._session = session
        self._settings = settings
        self._clock = clock
        self._background = background
        self._redact = redact
        self._seen = clock()
        self._why: dict[tuple[int, int | None], str] = {}  # why each prompt that is due fires, by number and time
        self._reminded: set[tuple[int, int | None]] = set()
        self._ended: tuple[ScheduledPrompt, str, bool] | None = None  # a turn, until its end is stored
        self._last_turn = (0, 0)  # when the last scheduled turn began and ended
        self._watching = self._stopped = False
        self._changed = anyio.Event()

    # -------------------------------------------------------------------------------------- making

    async def command(self, text: str) -> str:
        verb, *rest = text.split(maxsplit=1) or [""]
        if not verb:
            return await self.listed()
        if verb == "cancel":
            return await self.cancel("".join(rest).strip())
        found = _ENTRY.fullmatch(text.strip())
        if found is None:
            raise ToolError.invalid(f"There is no prompt behind a colon. {USAGE}")
        return await self.add(found["when"], found["text"])

    async def preview(self, when: str, prompt: str) -> str:
        made = self._made(when, prompt, by_model=True)
        return f"run this prompt later, {made.words}, first on {self._told(made.due)}: {made.text}"

    async def add(self, when: str, prompt: str, *, by_model: bool = False) -> str:
        made, most = self._made(when, prompt, by_model=by_model), self._settings().max_entries
        number = await self._stored.add(made, most)
        if number is None:
            told = f"scheduler.max_entries = {most} (expected fewer scheduled prompts before another is added)"
            raise ToolError.invalid(told, "Cancel one first.")
        self.begin()
        return "\n\n".join((f"Scheduled: {self._line(replace(made, number=number))}", *self._trouble()))

    async def listed(self) -> str:
        prompts = await self._stored.all()
        if not prompts:
            return f"Nothing is scheduled in this session.\n\n{USAGE}"
        lines = "\n".join(map(self._line, prompts))
        return "\n\n".join(("Scheduled in this session:", lines, *self._trouble(), USAGE))

    async def cancel(self, which: str) -> str:
        prompts = await self._stored.all()
        found = [each for each in prompts if which in ("all", str(each.number))]
        if not found:
            raise self._unknown(which, prompts)
        for each in found:
            await self._stored.remove(each.number)
        self._changed.set()
        return "\n".join(("Cancelled:", "", *map(self._line, found)))

    async def now(self, number: str) -> str:
        prompts = await self._stored.all()
        found = next((each for each in prompts if number == str(each.number) and not each.firing), None)
        if found is None:
            raise self._unknown(number, prompts)
        firing, at = str(uuid4()), self._clock()
        following = self._following(found, at)
        if following is not None and found.due and found.due > at:
            following = found.due
        if not await self._stored.claim(found, firing, following):
            raise self._unknown(number, await self._stored.all())
        await self._stored.settle(found.number, firing)
        return self._for_model(found, "The user has it run now.")

    def _made(self, when: str, text: str, *, by_model: bool) -> ScheduledPrompt:
        """Return a new prompt, without a number. Raises ToolError."""
        settings, now = self._settings(), self._clock()
        if not settings.enabled:
            raise ToolError.invalid("Scheduled prompts are switched off (scheduler.enabled)", "The user can change it.")
        words, skips = _SKIPS.subn("", " ".join(when.split()))
        try:
            timing = understood(words, now, zone_of(settings.timezone))
        except ValueError as error:
            raise ToolError.invalid(f'when = "{self._redact(words)[:_LINE]}" (expected {error})') from None
        clean, most = self._redact(text.strip()), settings.max_prompt_chars
        if not 0 < len(clean) <= most:
            told = f"prompt = {len(clean)} characters (expected 1 to {most}, which is scheduler.max_prompt_chars)"
            raise ToolError.invalid(told)
        due = timing.next(now, zone_of(settings.timezone))
        return ScheduledPrompt(0, words, clean, due, bool(skips), by_model, now)

    def _unknown(self, which: str, prompts: Sequence[ScheduledPrompt]) -> ToolError:
        if not prompts:
            return ToolError.invalid("Nothing is scheduled in this session.")
        numbers = ", ".join(str(each.number) for each in prompts)
        return ToolError.invalid(f'number = "{which[:20]}" (expected one of {numbers})', "`/schedule` lists them.")

    # -------------------------------------------------------------------------------------- telling

    def _line(self, each: ScheduledPrompt) -> str:
        short = abbreviated(" ".join(each.text.split()), _LINE)
        extras = [", skipped if missed" if each.skips_missed else "", ", made by the model" if each.by_model else ""]
        following = "it runs now" if each.firing and each.due is None else f"next {self._told(each.due)}"
        when = f"`{each.words}`" if "*" in each.words else f"**{each.words}**"
        return f"{each.number}. {when}{''.join(extras)}: {short} ({following})"

    def _trouble(self) -> Sequence[str]:
        """Return a line with the reason if prompts do not fire by themselves in this session."""
        if not self._settings().enabled:
            return ("Nothing fires: `scheduler.enabled` is false.",)
        return () if self._session.shows_turns else (_HIDDEN,)

    def _told(self, at: int | None) -> str:
        return "never" if at is None else told(at, zone_of(self._settings().timezone))

    def _for_model(self, each: ScheduledPrompt, why: str) -> str:
        maker = "you made it, with the user's yes" if each.by_model else "the user made it"
        made = f"[Scheduled prompt, {each.words}; {maker}, on {self._told(each.created_at)}."
        head = " ".join(filter(None, (made, why, "The user may not be there to answer.]")))
        return f"{head}\n\n{each.text}"

    # ------------------------------------------------------------------------------------- carrying out

    def begin(self) -> None:
        """Carry out prompts from now on, until `stop` is called or none is left."""
        self._changed.set()
        if not (self._watching or self._stopped):
            self._watching = True
            self._background(self._watch)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def _watch(self) -> None:
        try:
            recovered = False
            while not self._stopped:
                self._changed = anyio.Event()
                try:
                    if not recovered and self._session.is_resident:
                        await self.recover()
                        recovered = True
                    wait = await self.step()
                except SessionNotFound:
                    return
                except (StoreUnavailable, RequestError) as error:
                    _log.warning("scheduled prompt not carried out", reason=str(error))
                    wait = _LOOK
                if wait is None and not self._changed.is_set():
                    return
                with anyio.move_on_after(wait or 0):
                    await self._changed.wait()
        finally:
            self._watching = False

    async def recover(self) -> None:
        """Settle the prompts whose process was killed while it carried them out. This process has the session's lock.

        One whose turn had not begun fires again. One that was cut off does not, because it may have had effects; the
        user is told. Raises StoreUnavailable.
        """
        for each in await self._stored.all():
            if not each.firing:
                continue
            reached = await self._stored.reached(each.firing)
            if reached is Firing.NEVER_BEGAN:
                await self._stored.put_back(each.number, each.firing, self._clock())
                continue
            await self._stored.settle(each.number, each.firing)
            if reached is Firing.BEGAN:
                what = "was cut off when the agent ended, and is not run again by itself"
                self._session.remind(f"A scheduled prompt {what}: {each.text[:_LINE]}")

    async def step(self) -> float | None:
        """Carry out the oldest prompt that is due. Return the seconds until the next look; None if there is none.

        Raises StoreUnavailable, RequestError.
        """
        await self._settle()
        now = self._clock()
        prompts = [each for each in await self._stored.all() if each.due is not None and not each.firing]
        if now < self._seen - _SET_BACK:
            await self._set_back(prompts, now)
        self._seen = now
        due = sorted((each.due, each.number, each) for each in prompts if each.due is not None and each.due <= now)
        if not prompts:
            return None
        if not due:
            first = min(each.due for each in prompts if each.due is not None)
            return min((first - now) / 1000, _LOOK)
        for *_, each in due:
            if await self._is_skipped(each, now):
                return 0.0
        return await self._fire_if_idle(due[0][2])

    async def _is_skipped(self, each: ScheduledPrompt, now: int) -> bool:
        """Skip a due prompt if it missed its time and is not to fire late. Return whether it was skipped."""
        if (key := (each.number, each.due)) in self._why or each.due is None:
            return False
        begun, ended = self._last_turn  # which held up what came due meanwhile
        missed = now - (ended if begun <= each.due <= ended else each.due) > _LATE
        if not (missed and each.skips_missed):
            why = f"It comes late, at {self._told(now)}: the session was not open, or the machine slept."
            self._why[key] = why if missed else ""
            return False
        await self._stored.move(each.number, self._following(each, now))
        self._session.remind(
            f"A scheduled prompt was missed on {self._told(each.due)} and is skipped: {each.words}: {each.text[:_LINE]}"
        )
        return True

    async def _fire_if_idle(self, each: ScheduledPrompt) -> float:
        if not self._settings().enabled:
            return _LOOK
        if not self._session.shows_turns:
            if (key := (each.number, each.due)) not in self._reminded:
                self._reminded.add(key)
                advice = f"`/schedule run {each.number}` runs it."
                self._session.remind(f"A scheduled prompt is due: {each.text[:_LINE]}. {advice}")
            return _LOOK
        if self._session.is_busy:
            with anyio.move_on_after(_LOOK):
                await self._session.turn_over()
            return 0.0
        rest = _QUIET - self._session.unused_seconds
        if rest > 0:
            return rest
        await self._fire(each)
        return 0.0

    async def _fire(self, each: ScheduledPrompt) -> None:
        """Carry out a prompt. If nothing came of it because the user went first, it fires again."""
        firing, claimed = str(uuid4()), False

        async def claim() -> DuePrompt | None:
            nonlocal claimed
            following = self._following(each, self._clock())
            claimed = await self._stored.claim(each, firing, following)
            return self._due(each, firing, following) if claimed else None

        async def conclude(done: bool) -> None:  # noqa: FBT001 - a callback
            if not claimed:
                return
            self._ended = each, firing, done
            with anyio.move_on_after(_CLEAN_UP, shield=True):
                await self._settle()

        begun = self._clock()
        try:
            await self._session.carry_out(claim, conclude)
        finally:
            self._last_turn = begun, self._clock()

    async def _settle(self) -> None:
        """Store how the last turn ended, unless that is stored. Raises StoreUnavailable."""
        if self._ended is None:
            return
        each, firing, done = self._ended
        if done:
            self._why.pop((each.number, each.due), None)
            await self._stored.settle(each.number, firing)
        else:
            await self._stored.put_back(each.number, firing, each.due)
        self._ended = None

    def _due(self, each: ScheduledPrompt, firing: str, following: int | None) -> DuePrompt:
        missed = self._why.get((each.number, each.due), "")
        again = "" if following is None else f"Next: {self._told(following)}."
        at = f"Scheduled for {self._told(each.due)} ({each.words})."
        why = " ".join(filter(None, (at, missed, again)))
        entry = {"entry": each.number, "when": each.words, "prompt": each.text}
        return DuePrompt(firing, self._for_model(each, missed), each.text, why, {**entry, "due": self._told(each.due)})

    def _timing(self, each: ScheduledPrompt) -> Timing:
        return understood(each.words, each.created_at, zone_of(self._settings().timezone))

    def _following(self, each: ScheduledPrompt, now: int) -> int | None:
        """Return when a prompt fires after this time. Its period goes on from the time at which it was due."""
        try:
            timing = self._timing(each)
        except ValueError:  # words of a later version, or a time that is over in another time zone
            return None
        if isinstance(timing, Once) or each.due is None:
            return None
        after = max(now, each.due)
        if isinstance(timing, Every):
            period = timing.seconds * 1000
            return each.due + ((after - each.due) // period + 1) * period
        return timing.next(after, zone_of(self._settings().timezone))

    async def _set_back(self, prompts: Sequence[ScheduledPrompt], now: int) -> None:
        """Shorten waits that are longer than their period because the clock was set back. Times of day stay."""
        for each in prompts:
            try:
                seconds = getattr(self._timing(each), "seconds", 0)
            except ValueError:
                continue
            if seconds and each.due is not None and each.due > now + seconds * 1000:
                await self._stored.move(each.number, now + seconds * 1000)

"""Which inference component an invocation goes to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from peagle_sm.aws.control.components import component_names
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.streams.refusals import ComponentRequired
from peagle_sm.core.errors import ServiceFault, SpecError

Answer = TypeVar("Answer")


class Sender:
    """Sends the requests of one endpoint, and learns from the first refusal that it runs components.

    An endpoint that runs a model costs no call beyond the invocation; one that runs components costs two
    more for the first request that names none.
    """

    def __init__(self, session: Session, endpoint: str) -> None:
        self._session = session
        self._endpoint = endpoint
        self._learnt: str | None = None

    def send(self, call: Callable[[str | None], Answer], component: str | None = None) -> Answer:
        """Run ``call`` with the component that was named, else with the endpoint's default once it needs one.

        Raises:
            SpecError: the endpoint runs components, none was named, and none has the endpoint's own name.
            ServiceFault: the endpoint runs components and has none yet.
        """
        if component is not None:
            return call(component)
        try:
            return call(self._learnt)
        except ComponentRequired as refused:  # refused before anything was carried out, so safe to repeat
            self._learnt = self._default(refused)
        return call(self._learnt)

    async def asend(
        self, call: Callable[[str | None], Awaitable[Answer]], component: str | None = None
    ) -> Answer:
        """As `send`, for asyncio."""
        import asyncio

        if component is not None:
            return await call(component)
        try:
            return await call(self._learnt)
        except ComponentRequired as refused:
            self._learnt = await asyncio.to_thread(self._default, refused)
        return await call(self._learnt)

    def _default(self, refused: ComponentRequired) -> str:
        """Return the component called as the endpoint is: what a stack that scales to zero makes."""
        found = component_names(self._session, self._endpoint)
        if self._endpoint in found:
            return self._endpoint
        if not found:
            raise ServiceFault(
                f"endpoint {self._endpoint!r} runs inference components and has none yet.",
                operation=refused.operation,
                code=refused.code,
                next_step="Create one on it, and send the request again.",
                details=refused.details,
            ) from refused
        raise SpecError(
            f"endpoint {self._endpoint!r} runs inference components, and none of them has its name: "
            f"found no component to ask; allowed: {', '.join(found)}.",
            next_step=f"Name one, for example --component {found[0]} (in Python: component={found[0]!r}).",
            details={**refused.details, "components": list(found)},
        ) from refused

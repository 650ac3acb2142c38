"""From the global options to a session: AWS, or the local SageMaker that is found running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peagle_sm.cli.local_options import need_local_extra
from peagle_sm.cli.state import State

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session


def open_session(state: State, spec_region: str | None = None) -> Session:
    """A session for the place that the options name.

    Region: flag, then environment, then the spec, then the profile; a local server has its own.

    Raises:
        CredentialsError: no or unknown region or profile, or a region that the local server does not play.
        NotFound: --local, and no local server runs.
    """
    from peagle_sm.aws.session.session import LocalTarget, make_session

    if not state.local:
        return make_session(
            profile=state.settings.profile, region=state.region(spec_region or state.spec_region)
        )
    need_local_extra()
    from peagle_sm.aws.session.local_server import find_server
    from peagle_sm.core.errors import CredentialsError

    target = LocalTarget.from_status(find_server(state.local_port).to_dict())
    asked = state.settings.region
    if asked and asked != target.region:
        raise CredentialsError(
            f"the local SageMaker plays region {target.region}, and --region asks for {asked}",
            next_step=f"leave --region out, or write --region {target.region}",
            details={"found": asked, "allowed": target.region},
        )
    return make_session(region=target.region, local=target)

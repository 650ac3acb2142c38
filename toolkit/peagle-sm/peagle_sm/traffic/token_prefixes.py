"""Keys and tokens with a fixed prefix that are in no rule of `secret_rules` or of the library. Pure.

A prefix is found without a regular expression; only then is the rest compared. So a long list costs little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from peagle_sm.traffic.secret_rules import Span, is_mixed


@dataclass(frozen=True)
class TokenPrefix:
    """One format: its prefix, and the pattern of the whole, which begins ``before`` characters earlier."""

    prefix: str
    pattern: re.Pattern[str]
    before: int = 0
    mixed: bool = False  #: digits and letters of both cases, where the prefix alone is also in ordinary text


_URL64 = "[A-Za-z0-9_-]"
_HEX = "[a-f0-9]"
_UUID = f"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}"


def _format(prefix: str, rest: str, before: str = "", *, mixed: bool = False) -> TokenPrefix:
    """Make a format; ``before`` is a class and a count, such as ``[a-f0-9]{36}``."""
    width = int(before.partition("{")[2].rstrip("}") or 0)
    whole = rf"(?<![A-Za-z0-9]){before}{re.escape(prefix)}{rest}"
    return TokenPrefix(prefix, re.compile(whole, re.ASCII), width, mixed)


#: Each with the page that documents the prefix or shows an example. The lengths are lower bounds.
TOKEN_PREFIXES: tuple[TokenPrefix, ...] = (
    # Models and what they call.
    _format("sk-or-v1-", f"{_HEX}{{32,}}"),  # OpenRouter: API authentication
    _format("sk-lf-", _UUID),  # Langfuse: API keys
    _format("ABSK", "[A-Za-z0-9+/]{100,}={0,2}"),  # Amazon Bedrock: API keys, long-term
    _format("bedrock-api-key-", "[A-Za-z0-9+/=_%-]{20,}"),  # Amazon Bedrock: API keys, short-term
    _format("tvly-", f"{_URL64}{{20,}}"),  # Tavily: API reference, authentication
    _format("nvapi-", f"{_URL64}{{40,}}"),  # NVIDIA NGC: personal API keys
    _format("csk-", "[a-z0-9]{40,}"),  # Cerebras: inference, API key
    _format("tgp_v1_", f"{_URL64}{{40,}}"),  # Together AI: API keys
    _format("fw_", "[A-Za-z0-9]{22,}", mixed=True),  # Fireworks AI: API keys
    _format("pcsk_", "[A-Za-z0-9_]{40,}"),  # Pinecone: API keys
    _format("jina_", "[A-Za-z0-9_-]{40,}"),  # Jina AI: API keys
    _format("fc-", f"{_HEX}{{32}}"),  # Firecrawl: API reference
    _format("lsv2_", f"[a-z]{{2}}_{_HEX}{{32}}_{_HEX}{{10}}"),  # LangSmith: API keys
    _format("sk_", f"{_HEX}{{48}}"),  # ElevenLabs: API authentication
    # Mail, payment, shops.
    _format("key-", f"(?<![_-]key-){_HEX}{{32}}"),  # Mailgun: API keys
    _format("xkeysib-", f"{_HEX}{{64}}-[A-Za-z0-9]{{16}}"),  # Brevo: API keys
    _format("xsmtpsib-", f"{_HEX}{{64}}-[A-Za-z0-9]{{16}}"),  # Brevo: SMTP keys
    _format("re_", "[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}", mixed=True),  # Resend: API keys
    _format("sq0atp-", f"{_URL64}{{22,}}"),  # Square: access tokens
    _format("sq0csp-", f"{_URL64}{{22,}}"),  # Square: application secrets
    _format("EAAA", f"{_URL64}{{56,}}", mixed=True),  # Square: access tokens, today's format
    _format("EAA", "[A-Za-z0-9]{60,}", mixed=True),  # Meta: Graph API, access tokens
    _format("access_token$", f"(?:production|sandbox)\\$[a-z0-9]{{16}}\\${_HEX}{{32}}"),  # Braintree: OAuth
    _format("access-production-", _UUID),  # Plaid: access tokens
    _format("access-sandbox-", _UUID),  # Plaid: access tokens
    _format("FLWSECK", "(?:_TEST)?-[a-z0-9]{32}-X"),  # Flutterwave: authentication
    _format("EZAK", "[A-Za-z0-9]{54}"),  # EasyPost: API keys
    _format("shippo_live_", f"{_HEX}{{40}}"),  # Shippo: authentication
    # Monitoring.
    _format("NRAK-", "[A-Z0-9]{27}"),  # New Relic: API keys, user key
    _format("NRAL", "", "[A-Za-z0-9]{36}"),  # New Relic: API keys, license key
    _format("NRII-", f"{_URL64}{{32}}"),  # New Relic: API keys, insert key
    _format("glsa_", "[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),  # Grafana: service accounts
    _format("glc_", "[A-Za-z0-9+/]{32,}={0,3}"),  # Grafana Cloud: access policies
    _format("eyJrIjoi", "[A-Za-z0-9+/]{60,}={0,3}"),  # Grafana: API keys before service accounts
    _format("sntryu_", f"{_HEX}{{64}}"),  # Sentry: auth tokens, user
    _format("dt0", r"[a-z]\d\d\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),  # Dynatrace: token format
    _format("phx_", "[A-Za-z0-9_]{40,}"),  # PostHog: personal API keys
    _format("hcaik_", "[a-z0-9]{58}"),  # Honeycomb: API keys
    # Data.
    _format("sbp_", f"(?:v\\d_|oauth_)?{_HEX}{{40}}"),  # Supabase: management API, access tokens
    _format("sb_secret_", f"{_URL64}{{20,}}"),  # Supabase: API keys
    _format("pscale_", "(?:pw|tkn|oauth)_[A-Za-z0-9_.=-]{32,}"),  # PlanetScale: passwords, service tokens
    _format("napi_", "[a-z0-9]{40,}"),  # Neon: API keys
    _format("mdb_sa_sk_", f"{_URL64}{{30,}}"),  # MongoDB Atlas: service accounts
    _format("AVNS_", f"{_URL64}{{18,}}"),  # Aiven: service users
    _format("pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),  # Airtable: personal access tokens
    # Infrastructure and its secrets.
    _format(".atlasv1.", "[A-Za-z0-9_=-]{60,}", "[A-Za-z0-9]{14}"),  # HCP Terraform: API tokens
    _format("pul-", f"{_HEX}{{40}}"),  # Pulumi: access tokens
    _format("dp.", r"(?:pt|ct|sa|scim|audit)\.[A-Za-z0-9]{40,}"),  # Doppler: auth token formats
    _format("dp.st.", r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}"),  # Doppler: auth token formats, service
    _format("ops_eyJ", "[A-Za-z0-9+/=_-]{100,}"),  # 1Password: service accounts
    _format("A3-", "[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),  # 1Password
    _format("AGE-SECRET-KEY-1", "[A-Z0-9]{58}"),  # age: specification, C2SP
    _format("tskey-", "[a-z]{2,12}-[A-Za-z0-9]{5,40}-[A-Za-z0-9]{16,}"),  # Tailscale: key prefixes
    _format("HRKU-", f"{_URL64}{{36,}}"),  # Heroku: authorization tokens
    _format("nfp_", "[A-Za-z0-9]{36,}"),  # Netlify: personal access tokens
    _format("fo1_", f"{_URL64}{{43}}"),  # Fly.io: access tokens
    _format("fm2_", "[A-Za-z0-9+/=,_]{80,}", mixed=True),  # Fly.io: access tokens
    _format("v1.0-", f"{_HEX}{{24}}-{_HEX}{{146}}"),  # Cloudflare: origin CA keys
    _format("LTAI", "[A-Za-z0-9]{16,20}", mixed=True),  # Alibaba Cloud: AccessKey pairs
    _format("AKID", "[A-Za-z0-9]{32}", mixed=True),  # Tencent Cloud: access keys
    _format("AQVN", f"{_URL64}{{35,38}}", mixed=True),  # Yandex Cloud: API keys
    _format("AZDO", "[A-Za-z0-9]{4}", "[A-Za-z0-9]{76}"),  # Azure DevOps: personal access tokens
    _format("JQQJ99", "[A-Za-z0-9]{20,30}", "[A-Za-z0-9]{52}"),  # Microsoft: common annotated security keys
    # Development and work.
    _format("PMAK-", f"{_HEX}{{24}}-{_HEX}{{34}}"),  # Postman: API keys
    _format("figd_", f"{_URL64}{{36,}}"),  # Figma: personal access tokens
    _format("figu_", f"{_URL64}{{36,}}"),  # Figma: OAuth
    _format("ATATT3", "[A-Za-z0-9_=.-]{60,}"),  # Atlassian: API tokens
    _format("ATCTT3", "[A-Za-z0-9_=.-]{60,}"),  # Bitbucket: repository access tokens
    _format("ATBB", "[A-Za-z0-9]{32}"),  # Bitbucket: app passwords
    _format("lin_oauth_", f"{_HEX}{{64}}"),  # Linear: OAuth
    _format("pat-", rf"[a-z]{{2}}\d-{_UUID}"),  # HubSpot: private apps
    _format("tfp_", "[A-Za-z0-9_.-]{40,}"),  # Typeform: personal access tokens
    _format("CFPAT-", f"{_URL64}{{43}}"),  # Contentful: personal access tokens
    _format("pk_", r"\d{5,}_[A-Z0-9]{32}"),  # ClickUp: personal tokens
    _format("sl.", f"{_URL64}{{120,}}"),  # Dropbox: OAuth, short-lived tokens
    _format("bkua_", f"{_HEX}{{40}}"),  # Buildkite: API access tokens
    _format("CCIPAT_", f"[A-Za-z0-9]{{22}}_{_HEX}{{40}}"),  # CircleCI: personal API tokens
    _format("squ_", f"{_HEX}{{40}}"),  # SonarQube: tokens, user
    _format("sqp_", f"{_HEX}{{40}}"),  # SonarQube: tokens, project
    _format("sqa_", f"{_HEX}{{40}}"),  # SonarQube: tokens, global
    _format("cmVmd", "[A-Za-z0-9]{59}"),  # JFrog: reference tokens
    _format("rubygems_", f"{_HEX}{{48}}"),  # RubyGems: API keys
    _format("oy2", "[a-z0-9]{43}"),  # NuGet: API keys
    _format("cio", "[A-Za-z0-9]{32}", mixed=True),  # crates.io: API tokens
    _format("CLOJARS_", "[a-z0-9]{60}"),  # Clojars: deploy tokens
    _format("pnu_", "[A-Za-z0-9]{36}"),  # Prefect: API keys
    _format("sdk-", _UUID),  # LaunchDarkly: SDK keys
    _format("rdme_", "[a-z0-9]{70}"),  # ReadMe: API keys
    _format("discord.com/api/webhooks/", rf"\d{{15,20}}/{_URL64}{{60,}}"),  # Discord: webhooks
)


_LONGEST_BEFORE = 64  #: characters of a token before its longest run of letters and digits


def prefixed_spans(text: str, runs: Sequence[Span]) -> Iterator[Span]:
    """Yield the keys of `TOKEN_PREFIXES`; each ends in one of the runs of letters and digits."""
    for begin, end in _joined((max(0, start - _LONGEST_BEFORE), end) for start, end in runs):
        for each in TOKEN_PREFIXES:
            at = text.find(each.prefix, begin, end)
            while at >= 0:
                match = each.pattern.match(text, at - each.before) if at >= each.before else None
                if match is not None and (not each.mixed or is_mixed(match[0])):
                    yield match.span()
                at = text.find(each.prefix, at + len(each.prefix) if match is None else match.end(), end)


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Join spans in order that overlap."""
    whole: Span | None = None
    for start, end in spans:
        if whole is None or start > whole[1]:
            if whole is not None:
                yield whole
            whole = (start, end)
        else:
            whole = (whole[0], end)
    if whole is not None:
        yield whole
